"""Analytic cost models: how long a GPU needs for what a signature names.

Lives here: the `Machine` (SMs, bandwidth and rates that a kernel meets), one module per family of kernels, and the
choice between them (`dispatch` by kind of signature, `named_kernels` by kernel name).
Comes in: a `Gpu` and a parsed signature.
Goes out: an `Estimate`: time alone, time beside a resident NCCL kernel, useful floating-point operations.
May import: `profiles.descriptions`, `profiles.kernel_names`, `profiles.signature`, `profiles.errors`.
"""
