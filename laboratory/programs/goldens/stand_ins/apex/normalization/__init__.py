"""Apex's fused layer norm: in fp32 a mean and an inverse of the deviation for each row."""
