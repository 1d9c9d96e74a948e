"""Checks of what callers pass: sizes of flows, and columns of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.errors import FlowError
from netsim.units import MAX_BYTES, whole


def check_nbytes(nbytes: int, key: Any) -> None:
    """Raises FlowError for a size that no flow can have."""
    if whole(nbytes, "nbytes") < 0:
        raise FlowError(f"flow {key!r}: negative bytes ({nbytes})")
    if nbytes >= MAX_BYTES:
        raise FlowError(f"flow {key!r}: {nbytes} bytes are too many")


def column(name: str, values: Any, dtype: Any) -> NDArray[Any]:
    """A column of whole numbers."""
    try:
        column = np.asarray(values)
        if column.size and not np.issubdtype(column.dtype, np.integer):
            raise FlowError(f"{name}: expected whole numbers")
        return column.astype(dtype, casting="same_kind") if column.size else np.zeros(0, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, FlowError):
            raise
        raise FlowError(f"{name}: expected whole numbers") from error
