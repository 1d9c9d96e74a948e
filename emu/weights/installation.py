"""Changes torch in the forker, so that ranks share weights."""

from __future__ import annotations

from pathlib import Path

from ..interpreter.hook_library import Hook
from ..keeping.client import Client
from ..private.changes import changes
from . import copies, initialisation, loading
from .tensors import Sharing


def install(client: Client, folder: Path, processes: int, hook: Hook) -> None:
    """Makes ranks share weights. Called once, when torch is imported. `folder`: of locks. `processes`: how many ranks
    the run has.
    """
    sharing = Sharing(client, folder, processes, hook)
    names = changes.usable("shared weights")
    if names is None:
        return
    initialisation.install(sharing)
    copies.install(sharing, names.get("_allowed_methods"))
    loading.install(sharing)
