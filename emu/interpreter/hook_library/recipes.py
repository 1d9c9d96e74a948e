"""Recipes of values, as ranks tell them to each other and to the process that fills pages.

A recipe comes from a process of the user's program, perhaps on another server. So it may hold numbers, texts, tensors,
PyTorch's types and this package's named tuples, and nothing else that reading it would call.
"""

from __future__ import annotations

import io
import pickle
import sys
from functools import reduce
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_NAMES = frozenset(
    {
        ("builtins", "complex"),
        ("builtins", "range"),
        ("builtins", "slice"),
        ("collections", "OrderedDict"),
        ("torch", "Size"),
        ("torch", "device"),
        ("torch.serialization", "_get_layout"),
        ("torch._utils", "_rebuild_tensor_v2"),
    }
)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _storage
        if module in sys.modules:
            found = reduce(getattr, name.split("."), sys.modules[module])
            if (module, name) in _NAMES or _is_type_of_torch(found) or _is_named_tuple(found):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a recipe")


def _storage(content: bytes) -> Any:
    return sys.modules["torch"].load(io.BytesIO(content), weights_only=True)


def _is_type_of_torch(found: Any) -> bool:
    torch = sys.modules["torch"]
    return isinstance(found, torch.dtype | torch.layout | torch.memory_format)


def _is_named_tuple(found: Any) -> bool:
    own = isinstance(found, type) and found.__module__.partition(".")[0] == _PACKAGE
    return own and issubclass(found, tuple) and hasattr(found, "_fields")


def loads(told: bytes) -> Any:
    """Reads a recipe. Raises LookupError for what is none."""
    try:
        return _Reader(io.BytesIO(told)).load()
    except Exception as error:  # whatever damaged bytes lead to
        raise LookupError(f"no recipe: {error}") from None
