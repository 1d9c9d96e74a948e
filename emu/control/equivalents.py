"""What is computed on the CPU where the CPU lacks the operation that a GPU has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def _histc(values: Tensor, *args: Any, out: Tensor | None = None, **kwargs: Any) -> Tensor:
    """The CPU's takes floats alone."""
    import torch

    counts = torch.histc(values.double(), *args, **kwargs).to(values.dtype)
    return counts if out is None else out.copy_(counts)


EQUIVALENTS: dict[str, Callable[..., Any]] = {"aten::histc": _histc}
"""By the operation's name."""
