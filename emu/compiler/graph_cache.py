"""Inductor's cache of compiled graphs: shared by ranks, kept between runs, and filled by one rank at a time.

torch keeps what AOTAutograd and Inductor make of a graph in files, named by a hash of the graph, its inputs and all
settings. Added here: the folder has a part for each version of torch; keys and entries are the same for all GPUs of a
server (`any_device`); the first rank that misses a graph holds a lock file while it compiles, the others wait and then
find it; files are written under names that no other process uses.

A rank waits only for a rank that compiles: locks are given up when the graph is stored, at the latest when the
compilation ends, before the program goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import secrets
import threading
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

from ..private.changes import Names, changes
from . import any_device, file_locks

FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable, torch's own."""
_WAIT_S = 1800.0
"""The time, in seconds, after which a rank that waits compiles too: longer than a graph compiles."""


def install(torch_version: str) -> None:
    """Gives the cache a folder for this version of torch and lets ranks share it. Called once, before torch is
    imported, in the forker or in a process that a launcher starts.
    """
    root = place(torch_version)
    if root is None:
        return
    locks = GraphLocks(root / "locks")
    changes.when_imported("graph locks", functools.partial(_release_at_the_end, locks))
    changes.when_imported("shared graphs", functools.partial(_graph_cache, locks))
    changes.when_imported("GPU of shared kernels", _kernels)
    changes.when_imported("graphs within entries", _graphs_within_entries)
    changes.when_imported("shared backward graphs", functools.partial(_autograd_cache, locks))


def place(torch_version: str) -> Path | None:
    """Names the folder for this version of torch in the environment. Returns the folder that holds those of all
    versions; None if there is no cache.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    root, version = Path(folder), f"torch-{torch_version}"
    if root.name == version:  # a launcher's rank has the environment of a process that has done this
        root = root.parent
    os.environ[FOLDER] = str(root / version)
    return root


class GraphLocks:
    """The lock files that the calling thread holds, by the graph's key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = threading.local()

    def _held(self) -> dict[str, IO[str]]:
        held: dict[str, IO[str]] = vars(self._thread).setdefault("held", {})
        return held

    def holds(self, key: str) -> bool:
        return key in self._held()

    def acquire(self, key: str) -> None:
        """Waits until no other process compiles this graph. Without a lock, as on a full disk, the rank compiles."""
        if self.holds(key):
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = file_locks.lock(self._folder / key, _WAIT_S)
            if file is not None:
                self._held()[key] = file

    def release(self, key: str) -> None:
        file = self._held().pop(key, None)
        if file is not None:
            file.close()

    def release_all(self) -> None:
        for key in list(self._held()):
            self.release(key)


def _own_device() -> int:
    import torch

    return torch.cuda.current_device()


def _release_at_the_end(locks: GraphLocks, names: Names) -> None:
    """Gives up this thread's locks when a compilation ends, whether it stored what it compiled or not."""

    def make(install_callbacks: Any) -> Any:
        @functools.wraps(install_callbacks)
        @contextlib.contextmanager
        def compiling(self: Any, *arguments: Any, **options: Any) -> Generator[None]:
            try:
                with install_callbacks(self, *arguments, **options):
                    yield
            finally:
                locks.release_all()

        return compiling

    names.change("install_callbacks", make)


def _graph_cache(locks: GraphLocks, names: Names) -> None:
    """Makes ranks share the cache: its keys, look-up and storing. AOTAutograd's cache is looked up likewise."""
    any_device.install_keys(names, _own_device)
    names.change("write_atomic", lambda _: write_atomic)
    names.change("find_guarded_entry", functools.partial(_one_compiles, locks))
    names.change("iterate_over_candidates", functools.partial(_for_own_device, names.get("code_hash")))
    names.change("_save_graph", functools.partial(_saving, locks))


def _kernels(names: Names) -> None:
    import torch

    any_device.load_on_own_device(names, _own_device, torch.cuda.device_count)


def _graphs_within_entries(names: Names) -> None:
    """Entries of AOTAutograd's cache may hold the compiled graphs themselves, as those that vLLM compiles do. An entry
    that is looked up by its key is moved to the own GPU. One that the program has stored for this process is loaded
    without a key, on any thread, and names the GPU that is meant: nothing is changed then.
    """

    def saving(pre_save: Any) -> Any:
        @functools.wraps(pre_save)
        def remember(self: Any) -> None:
            pre_save(self)
            if hasattr(self.result, "source_code"):
                any_device.remember_device(self.result, _own_device())

        return remember

    def making(create: Any) -> Any:
        @functools.wraps(create)
        def __init__(self: Any, compiled_fn: Any, serialize_fn: Any) -> None:
            def serialize_for_own_device() -> Any:
                entry = serialize_fn()
                for graph in any_device.graphs_within(entry):
                    any_device.to_store(graph, _own_device(), names.get("code_hash"))
                return entry

            create(self, compiled_fn, serialize_for_own_device)

        return __init__

    names.change("BundledOutputCodeLoadable.pre_save", saving)
    names.change("AOTAutogradCache.iterate_over_candidates", functools.partial(_within_own_device, names))
    names.change("SerializableCompiledFunction.__init__", making)


def _within_own_device(names: Names, candidates: Any) -> Any:
    @functools.wraps(candidates)
    def iterate_over_candidates(*arguments: Any, **options: Any) -> Generator[Any]:
        for entry, *rest in candidates(*arguments, **options):
            for graph in any_device.graphs_within(entry):
                any_device.for_own_device(graph, _own_device(), names.get("code_hash"))
            yield entry, *rest

    return iterate_over_candidates


def _one_compiles(locks: GraphLocks, look_up: Any) -> Any:
    @functools.wraps(look_up)
    def find_guarded_entry(cls: Any, key: str, local: bool, *rest: Any, **options: Any) -> Any:
        found = look_up(cls, key, local, *rest, **options)
        if found[0] is not None or not local or locks.holds(key):
            return found
        locks.acquire(key)
        found = look_up(cls, key, local, *rest, **options)
        if found[0] is not None:
            locks.release(key)
        return found

    return find_guarded_entry


def _for_own_device(code_hash: Any, candidates: Any) -> Any:
    @functools.wraps(candidates)
    def iterate_over_candidates(cls: Any, *arguments: Any, **options: Any) -> Generator[Any]:
        for graph, *rest in candidates(cls, *arguments, **options):
            yield any_device.for_own_device(graph, _own_device(), code_hash), *rest

    return iterate_over_candidates


def _saving(locks: GraphLocks, save: Any) -> Any:
    @functools.wraps(save)
    def _save_graph(key: str, compiled_graph: Any, *rest: Any, **options: Any) -> None:
        any_device.remember_device(compiled_graph, _own_device())
        try:
            save(key, compiled_graph, *rest, **options)
        finally:
            locks.release(key)

    return _save_graph


def _autograd_cache(locks: GraphLocks, names: Names) -> None:
    """An entry needs the compiled backward pass, too, which torch compiles when it first runs. Then every rank would
    trace before one has stored its entry: a rank that holds a lock compiles both together.
    """
    any_device.install_autograd_keys(names, _own_device)
    names.change("try_load", functools.partial(_compiling_both, locks))
    names.change("AOTAutogradCache.save", functools.partial(_releasing, locks))


def _compiling_both(locks: GraphLocks, try_load: Any) -> Any:

    def compile_both(config: Any) -> Any:
        """Returns the settings for the graph that was not found."""
        info = config.cache_info
        if info is None or not locks.holds(info.cache_key) or _is_compiled_autograd_on():
            return config
        if dataclasses.fields(config) and config.__dataclass_params__.frozen:
            return dataclasses.replace(config, force_non_lazy_backward_lowering=True)
        config.force_non_lazy_backward_lowering = True
        return config

    @functools.wraps(try_load)
    def try_load_or_compile_both(*arguments: Any, **named: Any) -> Any:
        found = try_load(*arguments, **named)
        if isinstance(found, tuple):  # torch 2.15: with the settings, which do not change
            compiled, config = found
            return (compiled, compile_both(config) if compiled is None else config)
        if found is None:
            for value in (*arguments, *named.values()):
                if hasattr(value, "force_non_lazy_backward_lowering"):
                    compile_both(value)
        return found

    return try_load_or_compile_both


def _releasing(locks: GraphLocks, save: Any) -> Any:
    @functools.wraps(save)
    def save_and_release(key: str, *rest: Any, **options: Any) -> Any:
        try:
            return save(key, *rest, **options)
        finally:
            locks.release(key)

    return save_and_release


def _is_compiled_autograd_on() -> bool:
    """Tells whether compiled autograd is on. It compiles backward passes in another way: those that AOTAutograd
    compiles would not be used.
    """
    if changes.usable("compiled autograd") is None:
        return True  # it cannot be told
    from torch._dynamo import compiled_autograd, config

    return bool(config.compiled_autograd or compiled_autograd.in_compiled_autograd_region)


def write_atomic(
    path_: str | os.PathLike[str], content: str | bytes, make_dirs: bool = False, encode_utf_8: bool = False
) -> None:
    """Writes a file under a temporary name that no other process uses, then renames it. torch's own function, which
    this replaces, names its temporary file by process and thread: on emulated servers both numbers repeat.
    """
    path = Path(path_)
    if make_dirs:
        path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
