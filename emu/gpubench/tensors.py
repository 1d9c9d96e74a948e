"""Tensors with random contents, described by JSON: shape, dtype, layout in memory, contents."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Json = dict[str, Any]
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "tf32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b8": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
"""The types of torch, by their names in signatures."""
LAYOUTS = ("dense", "heads", "turned", "part", "channels_last")
"""dense: as it is; heads: its dimensions 1 and 2 are stored the other way round; turned: its last two are; part: half
of rows that are twice as long; channels_last: PyTorch's.
"""
DEVICE = "cuda"


def make_tensor(what: Json) -> Tensor:
    """Makes a tensor of `shape` and `dtype`; `layout`: one of LAYOUTS; `below`: integers are less than this; `values`:
    its contents. Raises ValueError for a layout that the shape cannot have.
    """
    dtype, shape = DTYPES[what["dtype"]], tuple(what["shape"])
    if "values" in what:
        return torch.tensor(what["values"], dtype=dtype, device=DEVICE).reshape(shape)
    stored, layout = shape, what.get("layout", "dense")
    if layout == "heads":
        if len(shape) < 4:
            raise ValueError(f"layout heads of {len(shape)} dimensions")
        stored = (shape[0], shape[2], shape[1], *shape[3:])
    elif layout == "turned":
        if len(shape) < 2:
            raise ValueError(f"layout turned of {len(shape)} dimensions")
        stored = (*shape[:-2], shape[-1], shape[-2])
    elif layout == "part":
        if not shape:
            raise ValueError("layout part of 0 dimensions")
        stored = (*shape[:-1], 2 * shape[-1])
    made = random_tensor(stored, dtype, what.get("below", 0))
    if layout == "heads":
        return made.transpose(1, 2)
    if layout == "turned":
        return made.transpose(-1, -2)
    if layout == "part":
        return made[..., : shape[-1]]
    if layout == "channels_last":
        if len(shape) not in (4, 5):
            raise ValueError(f"layout channels_last of {len(shape)} dimensions")
        return made.contiguous(
            memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d,
        )
    return made


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, below: int = 0) -> Tensor:
    """Returns a tensor of random numbers instead of zeros: what kernels of zeros draw of the power, and so their clock,
    differs.
    """
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, device=DEVICE, dtype=torch.uint8).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, below or 100, shape, device=DEVICE, dtype=dtype)
    if dtype.itemsize == 1:
        return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).to(dtype)
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def touch(tensor: Tensor) -> None:
    """Reads and writes it, and changes nothing: afterwards the L2 cache holds it as if it had just been computed."""
    if tensor.dtype == torch.bool:
        tensor.logical_or_(torch.zeros((), dtype=torch.bool, device=tensor.device))
    elif tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        tensor.view(torch.uint8).bitwise_or_(0)
    else:
        tensor.mul_(1)
