"""Reads the facts that a kernel's C++ name contains.

Lives here: a demangler for the part of the Itanium ABI that kernels use; the parts of a readable name.
Comes in: a kernel's name, mangled or not.
Goes out: its function, template arguments and operand sizes (`KernelName`). Reading never fails.
May import: nothing of ours.
"""
