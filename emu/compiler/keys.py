"""Keys of the compilers' caches, in what they cost and in what they tell of a run.

torch and Triton hash all of their own sources when a process first asks for a compiled graph or kernel: here the forker
does so, once for all ranks, and later runs find the hash in the cache's folder, by the sizes and times of the sources.
The versions of the tools that Triton calls are asked in the forker, too. Triton knows the C module by which it calls
the driver by the folders that it is linked with. One of them is the run's own, where the hook library is; so each run
would compile that module again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..private.changes import Names, changes
from . import graph_cache

_FOLDER = "TRITON_LIBCUDA_PATH"
"""Environment variable of Triton's: where libcuda is."""
_SUFFIXES = (".py", ".so", ".cpp", ".h", ".ld")
"""Files that are hashed."""
_OTHERS = ("include", "__pycache__")
"""Folders of other files."""

_KEYS = (
    ("key of torch's sources", "torch._inductor.codecache", "torch_key"),
    ("key of Triton's sources", "triton.runtime.cache", "triton_key"),
)
"""Purposes, with the module and the function."""


def install() -> None:
    """Keeps the keys of both compilers' caches in the cache's folder. Called once, in the forker, after
    `graph_cache.install` and before Triton is imported.
    """
    changes.when_imported("Triton's driver module", lambda names: names.change("_get_cache_manager", _any_run))
    folder = os.environ.get(graph_cache.FOLDER)
    if folder:
        for purpose, _, name in _KEYS:
            changes.when_imported(purpose, functools.partial(_keep, Path(folder, "keys"), name))


def compute(capability: int) -> None:
    """Computes the keys for all ranks. Called once, in the forker, if the script is likely to compile. `capability`:
    the described GPU's compute capability, 90 for 9.0.
    """
    for purpose, module, name in _KEYS:
        if changes.usable(purpose) is not None:
            getattr(importlib.import_module(module), name)()  # remembers what it returns, as all here do
    names = changes.usable("versions of Triton's tools")
    if names is not None:
        names.get("platform_key")()
        with contextlib.suppress(OSError):  # there is no such tool: the rank that needs it says so
            names.get("get_ptxas_version")(capability)


def _keep(folder: Path, name: str, names: Names) -> None:
    names.change(name, functools.partial(kept, folder, name))


def kept(folder: Path, name: str, compute_key: Callable[[], Any]) -> Callable[[], Any]:
    """A function without parameters that returns text or bytes, which depend on its package's files alone."""

    @functools.wraps(compute_key)
    @functools.cache
    def key() -> Any:
        package = importlib.import_module(compute_key.__module__.partition(".")[0])
        file = folder / f"{name}-{_state(Path(str(package.__file__)).parent)}"
        with contextlib.suppress(OSError):
            kind, _, text = file.read_text().partition(" ")
            return bytes.fromhex(text) if kind == "bytes" else text
        value = compute_key()
        text = f"bytes {value.hex()}" if isinstance(value, bytes) else f"text {value}"
        with contextlib.suppress(OSError):  # a full disk: the next run computes it, too
            graph_cache.write_atomic(file, text, make_dirs=True)
        return value

    return key


def _state(folder: Path) -> str:
    """Returns a hash of the names, sizes and times of the sources in this folder."""
    found = hashlib.sha256()
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders).difference(_OTHERS))
        for name in sorted(files):
            if name.endswith(_SUFFIXES):
                about = os.stat(os.path.join(at, name))
                found.update(f"{at}/{name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return found.hexdigest()[:32]


def _any_run(get_cache_manager: Any) -> Any:
    @functools.wraps(get_cache_manager)
    def cache_manager_of_any_run(src: bytes, config: dict[str, list[str] | None]) -> Any:
        folders = config.get("library_dirs")
        if folders:
            own = os.environ.get(_FOLDER)
            config = config | {"library_dirs": [_FOLDER if folder == own else folder for folder in folders]}
        return get_cache_manager(src, config)

    return cache_manager_of_any_run
