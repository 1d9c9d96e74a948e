"""Kernels that a program launches by their names, as PyTorch does.

Lives here: a module for each group of kernels, and the choice between them (`by_name`).
Comes in: a `Gpu`, a `kernel` signature.
Goes out: an `Estimate`; a kernel that no model knows is priced by its operands, or its grid, and the estimate says so.
May import: `profiles.models.machine`, `profiles.models.products`, `profiles.descriptions`, `profiles.kernel_names`,
`profiles.signature`.
"""
