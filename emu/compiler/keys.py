"""Keys of the compilers' caches, in what they cost and in what they tell of a run.

torch and Triton hash all of their own sources when a process first asks for a compiled graph or kernel: here the forker
does so, once for all ranks. Triton knows the C module by which it calls the driver by the folders that it is linked
with. One of them is the run's own, where the hook library is; so each run would compile that module again.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from ..private.changes import changes

_FOLDER = "TRITON_LIBCUDA_PATH"
"""Environment variable of Triton's: where libcuda is."""


def install() -> None:
    """In the forker, once."""
    changes.when_imported("Triton's driver module", lambda names: names.change("_get_cache_manager", _any_run))


def compute() -> None:
    """In the forker, once, if the script is likely to compile."""
    names = changes.usable("keys of sources")
    if names is not None:
        for name in ("torch_key", "triton_key"):  # both remember what they return
            names.get(name)()


def _any_run(get_cache_manager: Any) -> Any:
    @functools.wraps(get_cache_manager)
    def cache_manager_of_any_run(src: bytes, config: dict[str, list[str] | None]) -> Any:
        folders = config.get("library_dirs")
        if folders:
            own = os.environ.get(_FOLDER)
            config = config | {"library_dirs": [_FOLDER if folder == own else folder for folder in folders]}
        return get_cache_manager(src, config)

    return cache_manager_of_any_run
