"""How far each model's estimates are from kernels on an H200: `python -m profiles.tools.model_error` prints this table.

Mean of |ln(modelled / measured)| over the measured kernels, long ones counting more. Most of these kernels also served
to fit the models, so work of other shapes may be further off: docs/data/kernel-models.md has errors of times that were
left out.
"""

from __future__ import annotations

ERROR_SHARES: dict[str, float] = {
    "Triton": 0.11,
    "Triton, products": 0.23,
    "attention": 0.12,
    "attention of cuDNN, bwd": 0.08,
    "attention of cuDNN, fwd": 0.09,
    "attention, efficient": 0.25,
    "attention, flash": 0.04,
    "batch norm": 0.11,
    "batch norm of cuDNN": 0.14,
    "concatenation": 0.09,
    "convolution bf16": 0.11,
    "convolution f16": 0.09,
    "convolution f32": 0.40,
    "convolution in groups, padded": 0.62,
    "convolution in groups, without tensor cores": 0.95,
    "convolution tf32": 0.16,
    "copy on the device": 0.11,
    "depthwise convolution": 0.44,
    "depthwise convolution of PyTorch": 0.11,
    "element-wise": 0.07,
    "element-wise, cast": 0.06,
    "element-wise, strided": 0.32,
    "embedding": 0.24,
    "embedding bag": 0.21,
    "gather and scatter": 0.10,
    "gemm bf16": 0.05,
    "gemm f16": 0.06,
    "gemm f32": 0.03,
    "gemm f64": 0.03,
    "gemm f8": 0.05,
    "gemm tf32": 0.10,
    "group norm": 0.31,
    "grouped product": 0.08,
    "layer norm": 0.16,
    "loss": 0.22,
    "memory fill": 0.22,
    "optimizer": 0.10,
    "pooling": 0.14,
    "random numbers": 0.12,
    "reduction": 0.17,
    "resampling": 0.06,
    "rnn gru": 0.21,
    "rnn lstm": 0.12,
    "rnn tanh": 0.04,
    "softmax": 0.06,
    "sorting and scanning": 0.12,
}
UNMEASURED = 0.5
"""Of a model without a measurement."""


def error_share(model: str) -> float:
    return ERROR_SHARES.get(model, UNMEASURED)
