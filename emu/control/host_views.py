"""CPU tensors over the bytes of CUDA tensors.

The hook library takes all emulated device memory from one range of addresses that the host can read and write. One CPU
tensor of each dtype spans the whole range. The host view of a CUDA tensor is a strided view of it: it copies nothing
and owns nothing, so torch's allocator may reuse the memory as on a GPU.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from ..interpreter.hook_library import Hook

if TYPE_CHECKING:
    from torch import Tensor, dtype


class NoHostView(Exception):
    """The tensor's bytes cannot be seen as a CPU tensor."""


class HostViews:
    """Makes host views of CUDA tensors."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._start = 0
        self._nbytes = 0
        self._whole_range: dict[dtype, Tensor] = {}

    def _map(self) -> None:
        import torch

        self._start, self._nbytes = self._hook.device_range()
        if not self._nbytes:
            return
        window = (ctypes.c_char * self._nbytes).from_address(self._start)
        all_bytes = torch.frombuffer(window, dtype=torch.uint8)
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
        ):
            self._whole_range[dtype] = all_bytes.view(dtype)

    def view(self, tensor: Tensor) -> Tensor | None:
        """The CPU tensor over the same bytes; None for other dtypes, other memory and unaligned tensors."""
        if not self._whole_range:
            self._map()
        base = self._whole_range.get(tensor.dtype)
        offset = tensor.data_ptr() - self._start
        if base is None or not 0 <= offset < self._nbytes:
            return None
        index, rest = divmod(offset, tensor.element_size())
        return None if rest else base.as_strided(tensor.size(), tensor.stride(), index)


def span(tensor: Tensor) -> tuple[int, int]:
    """Address and bytes of the memory from a tensor's first element to its last."""
    item = tensor.element_size()
    if tensor.is_contiguous():
        return tensor.data_ptr(), tensor.numel() * item
    if tensor.numel() == 0:
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * item
