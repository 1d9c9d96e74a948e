"""Analytic cost models: how long a GPU needs for what a signature names.

Lives here: the `Machine` (SMs, bandwidth and rates that a kernel meets), the choice of a model by a signature's kind
(`dispatch`), products of matrices (`products`), kernels by name (`kernels`), kernels that Triton compiled (`triton`),
copies (`transfers`), bounds that no model may cross (`limits`), and each model's error (`errors`).
Comes in: a `Gpu` and a parsed signature.
Goes out: an `Estimate`: time alone, time beside a resident NCCL kernel, useful floating-point operations, the model.
May import: `profiles.descriptions`, `profiles.kernel_names`, `profiles.signature`, `profiles.triton`,
`profiles.errors`.
"""
