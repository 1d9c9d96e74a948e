"""The errors of each model's estimates on kernels of an H200 that its figures were not fitted to: `python -m
laboratory.fits.left_out` prints this table.

Mean of |ln(modelled / measured)|, long kernels counting more, with what the other kernels leave open of the figures.
Where a model is further from the kernels that it was fitted to, that error stands. laboratory/notes/kernel-models.md
has both.
"""

from __future__ import annotations

ERROR_SHARES: dict[str, float] = {
    "Transformer Engine, activation": 0.10,
    "Transformer Engine, cast": 0.11,
    "Transformer Engine, norm": 0.17,
    "Transformer Engine, rope": 0.06,
    "Transformer Engine, router": 0.17,
    "Transformer Engine, scales": 0.45,
    "Triton": 0.15,
    "Triton, products": 0.27,
    "attention": 0.12,
    "attention of cuDNN, bwd": 0.09,
    "attention of cuDNN, fwd": 0.10,
    "attention, efficient": 0.27,
    "attention, flash": 0.06,
    "batch norm": 0.13,
    "batch norm of cuDNN": 0.13,
    "concatenation": 0.12,
    "convolution bf16": 0.13,
    "convolution f16": 0.10,
    "convolution f32": 0.29,
    "convolution in groups, one by one": 0.61,
    "convolution in groups, padded": 0.27,
    "convolution in groups, without tensor cores": 0.25,
    "convolution tf32": 0.20,
    "copy on the device": 0.31,
    "depthwise convolution": 0.24,
    "depthwise convolution of PyTorch": 0.11,
    "detection": 0.36,
    "eigenvalues": 0.13,
    "eigenvalues, general": 0.18,
    "element-wise": 0.07,
    "element-wise, cast": 0.07,
    "element-wise, strided": 0.14,
    "element-wise, turned": 0.09,
    "embedding": 0.25,
    "embedding bag": 0.38,
    "factorisation": 0.11,
    "gather and scatter": 0.15,
    "gather of rows": 0.07,
    "gemm bf16": 0.05,
    "gemm f16": 0.07,
    "gemm f32": 0.05,
    "gemm f64": 0.06,
    "gemm f8": 0.09,
    "gemm tf32": 0.17,
    "gemm, unaligned": 0.15,
    "group norm": 0.20,
    "grouped product": 0.08,
    "layer norm": 0.09,
    "loss": 0.24,
    "loss of CTC": 0.36,
    "memory fill": 0.54,
    "optimizer": 0.10,
    "pooling": 0.14,
    "random numbers": 0.13,
    "reduction": 0.15,
    "resampling": 0.20,
    "rnn gru": 0.16,
    "rnn lstm": 0.13,
    "rnn lstm, persistent": 0.20,
    "rnn tanh": 0.36,
    "rnn tanh, persistent": 0.09,
    "rows added by index": 0.30,
    "sharded copy": 0.14,
    "singular values": 0.11,
    "softmax": 0.08,
    "sorting and scanning": 0.21,
    "weight norm": 0.15,
}
OTHER_SHARES: dict[str, float] = {
    "attention to a cache": 0.11,
    "experts": 0.11,
    "vLLM, activation": 0.06,
    "vLLM, cache": 0.10,
    "vLLM, conversion": 0.07,
    "vLLM, norm": 0.06,
    "vLLM, rotary embedding": 0.07,
    "vLLM, routing": 0.09,
    "vLLM, sum of experts": 0.06,
}
"""The errors of models on kernels of inference engines, which that table does not have: those of public tables, and of
an H200 (laboratory/notes/serving-kernels.md). They are of the rows that the models were fitted to, too.
"""
UNMEASURED = 0.5
"""The error of a model without a measurement."""


def error_share(model: str) -> float:
    return ERROR_SHARES.get(model) or OTHER_SHARES.get(model, UNMEASURED)
