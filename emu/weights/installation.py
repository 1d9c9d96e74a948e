"""Changes torch in the forker, so that ranks share weights."""

from __future__ import annotations

from pathlib import Path

from ..interpreter.hook_library import Hook
from . import copies, initialisation, loading
from .store import Store
from .tensors import Sharing


def install(folder: Path, processes: int, hook: Hook) -> Store:
    """Once, when torch is imported. `processes`: how many ranks the run has."""
    sharing = Sharing(folder, processes, hook)
    initialisation.install(sharing)
    copies.install(sharing)
    loading.install(sharing)
    return sharing.store
