"""Private names of PyTorch and CPython: the table, and the mechanism that changes names."""
