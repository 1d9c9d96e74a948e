"""Device memory as the host sees it: CPU tensors over the bytes of CUDA tensors.

The hook library reserves one range of host-readable addresses for all emulated devices. One giant CPU tensor of each
dtype over that range makes any CUDA tensor's twin a strided view: no copy, no ownership, so the device's allocator
may reuse the memory as it would.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from ..interpreter.hook_library import Hook

if TYPE_CHECKING:
    from torch import Tensor, dtype


class DeviceMemory:
    """Twins of CUDA tensors, and the address ranges that these span."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._start = 0
        self._nbytes = 0
        self._typed: dict[dtype, Tensor] = {}

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
            self._typed[dtype] = all_bytes.view(dtype)

    def twin(self, tensor: Tensor) -> Tensor | None:
        """The CPU tensor over the same bytes; None if there is none (other dtypes, other memory, unaligned views)."""
        if not self._typed:
            self._map()
        base = self._typed.get(tensor.dtype)
        offset = tensor.data_ptr() - self._start
        if base is None or not 0 <= offset < self._nbytes:
            return None
        index, rest = divmod(offset, tensor.element_size())
        return None if rest else base.as_strided(tensor.size(), tensor.stride(), index)


def span(tensor: Tensor) -> tuple[int, int]:
    """Address and length of the bytes from a tensor's first element to its last."""
    item = tensor.element_size()
    if tensor.is_contiguous():
        return tensor.data_ptr(), tensor.numel() * item
    if tensor.numel() == 0:
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * item
