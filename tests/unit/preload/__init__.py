"""Modules that are imported once for all ranks."""
