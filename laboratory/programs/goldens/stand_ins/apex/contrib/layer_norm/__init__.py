"""Apex's persistent layer norm."""
