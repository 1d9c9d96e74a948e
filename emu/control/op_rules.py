"""The rules for single ATen operations, by name, that the functions before torch's CUDA kernels need.

Everything else follows from an operation's schema: which arguments it writes, and what it returns.
"""

from __future__ import annotations

import enum
import functools
from typing import NamedTuple

LEFT_ALONE = frozenset(
    f"aten::{name}"
    for name in [
        "as_strided",
        "view",
        "_reshape_alias",
        "unfold",
        "view_as_real",
        "view_as_complex",
        "_nested_view_from_buffer",
        "empty.memory_format",
        "empty_strided",
        "resize_",
        "set_",
        "set_.source_Storage",
        "set_.source_Storage_storage_offset",
        "set_.source_Tensor",
        "is_set_to",
        "record_stream",
        "_fused_sdp_choice",
        "_use_cudnn_ctc_loss",
        "_use_cudnn_ctc_loss.Tensor",
        "_use_miopen_ctc_loss",
        "_use_miopen_ctc_loss.Tensor",
        "_validate_compressed_sparse_indices",
        "_cslt_sparse_mm_search",
        "_efficient_attention_forward",
        "_flash_attention_forward",
        "_cudnn_attention_forward",
        "_efficient_attention_backward",
        "_flash_attention_backward",
        "_cudnn_attention_backward",
        "_nested_tensor_from_mask_left_aligned",
        "_cudnn_init_dropout_state",
        "_cudnn_rnn_flatten_weight",
        "_to_sparse",
        "_to_sparse.sparse_dim",
        "_to_sparse_bsc",
        "_to_sparse_bsr",
        "_to_sparse_csc",
        "_to_sparse_csr",
    ]
)
"""They make views, take memory or answer questions about shapes: no values are computed. Those that make sparse tensors
consist of other operations. (A cuDNN RNN's weights keep
their bytes when they are flattened: PyTorch copies them first. The six of attention take memory for
all that they write, and `_scaled_dot_product_...` call them.)
"""

NOT_READ = {
    **dict.fromkeys(
        (
            f"aten::{name}"
            for name in ["fill_.Scalar", "fill_.Tensor", "zero_", "copy_", "_foreach_copy_", "_foreach_zero_"]
        ),
        ("self",),
    ),
    "aten::_cummax_helper": ("values", "indices"),
    "aten::_cummin_helper": ("values", "indices"),
    **dict.fromkeys(
        (f"aten::_scaled_dot_product_{kind}_attention_backward" for kind in ("flash", "efficient", "cudnn")),
        ("logsumexp", "philox_seed", "philox_offset", "cum_seq_q", "cum_seq_k"),
    ),
}
"""Arguments that do not matter for what an operation computes: it overwrites them, or its equivalent on the CPU does
without them. Those named `out` and the like need not be here.
"""

OF_ALL_DEVICES = frozenset(f"aten::{name}" for name in ["copy_", "ldexp.Tensor", "ldexp_", "ldexp.out"])
"""Operations that launch kernels and have one function for all devices."""

HIDDEN_WRITES = {
    f"aten::{name}": arguments
    for names, arguments in (
        ("native_batch_norm cudnn_batch_norm miopen_batch_norm", ("running_mean", "running_var")),
        ("batch_norm_gather_stats batch_norm_gather_stats_with_counts", ("running_mean", "running_var")),
    )
    for name in names.split()
}
"""Arguments that an operation writes although its schema does not say so."""

GIVEN_BACK = {"aten::_cudnn_rnn": (4,)}
"""Places of results that may be arguments although the schema calls them new: a recurrent network's weights."""


class Along(enum.Enum):
    """The elements that an index counts."""

    FIRST = enum.auto()
    """It counts the elements of the first dimension."""
    ARGUMENT = enum.auto()
    """It counts the elements of the dimension that the argument after the tensor names."""
    CLASSES = enum.auto()
    """It counts the elements of the dimension of the classes."""
    EACH = enum.auto()
    """There is a list of indices, one for each dimension."""
    ALL = enum.auto()
    """It counts all elements of the tensor."""


class IndexCheck(NamedTuple):
    """The rule for a kernel that stops the program if an index is out of range, whatever it indexes."""

    indices: int
    """The position of the argument that has the indices. The first argument is indexed."""
    along: Along
    from_end: bool = False
    """True if negative indices count from the end."""


INDEX_CHECKS = {
    f"aten::{name}": check
    for names, check in (
        ("embedding _embedding_bag _embedding_bag_forward_only", IndexCheck(1, Along.FIRST)),
        (
            "index_select gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ "
            "index_add index_add_ index_copy index_copy_ index_reduce index_reduce_",
            IndexCheck(2, Along.ARGUMENT),
        ),
        ("index_fill_", IndexCheck(2, Along.ARGUMENT, from_end=True)),
        ("nll_loss_forward nll_loss2d_forward", IndexCheck(1, Along.CLASSES)),
        ("index _index_put_impl_", IndexCheck(1, Along.EACH, from_end=True)),
        ("take put_", IndexCheck(1, Along.ALL, from_end=True)),
    )
    for name in names.split()
}
"""For each such operation, by its name without its overload: the rule."""

FACTORISE = frozenset(
    f"aten::{name}"
    for name in [
        *("linalg_cholesky_ex", "linalg_inv_ex", "_linalg_solve_ex", "linalg_lu_factor_ex", "linalg_lu"),
        *("linalg_ldl_factor_ex", "_linalg_det", "_linalg_slogdet"),
    ]
)
"""Operations, by their names without overloads, that fail for some matrices. They do not for unknown ones, as in the
emulated cuSOLVER (hook/cusolver): these count as the identity.
"""

ASSERTS = ("out of range", "out of bounds", "probability tensor", "should be between 0 and 1", "must be non-negative")
"""Texts in errors of CPU kernels where a CUDA kernel stops the program by an assertion."""


@functools.cache
def device_assert() -> type[RuntimeError]:
    """Returns PyTorch's own error, under its name, for a kernel that stops the program by an assertion."""
    import torch

    class DeviceAssert(torch.AcceleratorError):
        __module__ = "torch"
        __qualname__ = "AcceleratorError"

        def __init__(self, why: str) -> None:
            super().__init__(f"CUDA error: device-side assert triggered: {why}")

    return DeviceAssert
