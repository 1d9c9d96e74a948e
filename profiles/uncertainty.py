"""How far modelled durations are from real ones, by category of work: what intervals of step times are made of.

An error is the standard deviation of the logarithm of modelled over real time, weighted by time, over the kernels of
seven traces of real jobs on an H200 (`python -m profiles.tools.trace_error` prints the same comparison kernel by
kernel). Categories that no trace has take a wide one. Within a category errors are taken to be the same for all
kernels, since a model is wrong in one direction; categories are independent.
"""

from __future__ import annotations

import re

from profiles.signature import Kernel, Signature

ERRORS = {
    "gemm": 0.04,
    "optimizer, foreach": 0.12,
    "element-wise": 0.08,
    "element-wise, cast": 0.05,
    "sdpa": 0.07,
    "softmax": 0.03,
    "batch norm": 0.17,
    "conv": 0.14,
    "layer norm": 0.20,
    "reduction": 0.20,
    "pooling": 0.35,
    "copy": 0.13,
    "memset": 0.50,
    "other": 0.09,
}
UNSEEN = 0.30
"""Of a category that no trace has."""
_KERNELS = (
    ("unrolled_elementwise|WithCast|gpu_kernel_impl<", "element-wise, cast"),
    ("elementwise_kernel", "element-wise"),
    ("multi_tensor_apply", "optimizer, foreach"),
    ("SoftMax|softmax", "softmax"),
    ("layer_norm|GammaBeta|rms_norm", "layer norm"),
    ("batch_norm", "batch norm"),
    ("reduce_kernel", "reduction"),
    ("pool", "pooling"),
)


def category_of(what: Signature) -> str:
    """The kind of a library's work; what a kernel computes, by its name."""
    if not isinstance(what, Kernel):
        return type(what).__name__.lower()
    return next((category for pattern, category in _KERNELS if re.search(pattern, what.name)), "other")


def model_error(category: str) -> float:
    """Standard deviation of a modelled duration, as a share of it."""
    return ERRORS.get(category, UNSEEN)
