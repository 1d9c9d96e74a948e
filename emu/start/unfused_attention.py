"""Tells when Transformer Engine computes attention by single products, though cuDNN's fused attention is there.

Transformer Engine chooses among its backends without a word, and the unfused one takes several times the time and the
memory. A script that has turned the fused one off is not told what it asked for.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ..private.changes import Names, changes

TEXT = (
    "Transformer Engine computes attention unfused, by products and a softmax: neither cuDNN's fused attention nor "
    "flash-attn takes these arguments. NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 make it say why"
)


def install(tell: Callable[[str, str], None]) -> None:
    """Makes Transformer Engine tell when its unfused attention runs. Called once, in the forker. `tell`: shows the user
    a text once for each name.
    """

    def change(backends: Names) -> None:
        backends.change("UnfusedDotProductAttention.forward", functools.partial(_told, tell))

    changes.when_imported("unfused attention", change)


def _told(tell: Callable[[str, str], None], forward: Any) -> Any:
    @functools.wraps(forward)
    def told(*arguments: Any, **named: Any) -> Any:
        if os.environ.get("NVTE_FUSED_ATTN", "1") != "0":
            tell("unfused attention", TEXT)
        return forward(*arguments, **named)

    return told
