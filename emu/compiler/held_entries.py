"""Entries of the graph cache that earlier runs of the same script have used: the forker reads them, once for all ranks.

An entry has megabytes, and torch keeps the bytes of each that it has read. Ranks note in the cache's folder whose
entries they used; the next run's forker reads these, and all ranks share them in memory. A rank takes an entry that the
forker has read only while the folder has it, and each copy once: what torch makes of it is that rank's own. Entries
that others can write are not read: the command refuses such a cache before (`phantora_async.compile_cache`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import pickle
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from ..contract import ownership
from ..private.changes import changes
from . import graph_cache

_MOST_NBYTES = 512 << 20
_USED = "used"
"""Folder of notes: one folder for each script, with links to the folders of the entries that it used."""
_GRAPH = ("torch.fx.graph_module", "reduce_graph_module")
"""The function that makes a pickled graph again."""
_LAST = "last"
"""Folder of the notes that the forker has read."""


class HeldEntries:
    """The entries that the forker has read."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._held: dict[str, list[tuple[Any, ...]]] = {}
        """For each entry, by its path: what torch yields for it, as often as a rank has asked for it."""
        self._asked: Counter[str] = Counter()
        """For each key: how often this process has asked."""

    def read(self) -> None:
        """Reads the entries that earlier runs noted. Called in the forker, before it forks. This run notes again what
        it uses.
        """
        contents: dict[Path, bytes] = {}
        for note in self._last_notes():
            with contextlib.suppress(OSError):
                folder = (self._notes / _LAST / note).readlink()
                for path in (folder / name for name in _files(folder)):
                    if path not in contents and sum(map(len, contents.values())) < _MOST_NBYTES:
                        contents[path] = _own_bytes(path)
                    entry = _unpickled(contents[path]) if path in contents else None
                    if entry is not None:
                        about = (contents[path], True)[: int(note.partition(".")[0])]
                        self._held.setdefault(str(path), []).append((entry, *about))

    def _last_notes(self) -> list[str]:
        """Moves the last run's notes into a folder of their own. A run that used no entry has left none: then those of
        the one before are still there.
        """
        last = self._notes / _LAST
        new = [note for note in _files(self._notes) if note != _LAST]
        with contextlib.suppress(OSError):
            last.mkdir(parents=True, exist_ok=True)
            for note in _files(last) if new else ():
                (last / note).unlink()
            for note in new:
                (self._notes / note).rename(last / note)
        return _files(last)

    def change(self, candidates: Any) -> Any:
        """Wraps the method by which one of torch's caches reads the entries of a key, one after the other."""

        @functools.wraps(candidates)
        def iterate_over_candidates(local: bool, remote_cache: Any, key: str) -> Generator[tuple[Any, ...]]:
            folder = Path(candidates.__self__._get_tmp_dir_for_key(key))
            paths = [str(folder / name) for name in _files(folder)] if local and remote_cache is None else []
            if paths and all(self._held.get(path) for path in paths):
                found = (self._held[path].pop() for path in paths)
            else:
                found = candidates(local, remote_cache, key)
            for number, entry in enumerate(found):
                if number == 0:
                    self._note(folder, key, len(entry) - 1)
                yield entry

        return iterate_over_candidates

    def _note(self, folder: Path, key: str, more: int) -> None:
        """Notes that this run used an entry. `more`: how many values torch yields besides the entry, which depends on
        its version.
        """
        number = self._asked[key]
        self._asked[key] += 1
        with contextlib.suppress(OSError):  # noted already; or a full disk: the next run's ranks read the entry
            self._notes.mkdir(parents=True, exist_ok=True)
            (self._notes / f"{more}.{number}.{key}").symlink_to(folder)


def install(torch_version: str, scripts: Sequence[str]) -> HeldEntries | None:
    """Lets torch's caches take entries that the forker has read; returns them, or None without a cache or a script.
    Called once in the forker, before `graph_cache.install`. `scripts`: the run's scripts.
    """
    folder = os.environ.get(graph_cache.FOLDER)
    if not folder or not scripts:
        return None
    names = "\n".join([torch_version, *map(os.path.realpath, scripts)])
    name = hashlib.sha256(os.fsencode(names)).hexdigest()[:20]
    held = HeldEntries(Path(folder, _USED, name))
    for purpose in ("entries of earlier runs", "AOTAutograd's entries of earlier runs"):
        changes.when_imported(purpose, lambda names: names.change("iterate_over_candidates", held.change))
    return held


def _files(folder: Path) -> list[str]:
    """Returns the names of a folder's files, but not of those that are being written."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


def _own_bytes(path: Path) -> bytes:
    """Returns a file's content. Raises OSError also if others can write the file or its folder: reading an entry
    executes what they have written.
    """
    with path.open("rb") as file:
        for found in (os.fstat(file.fileno()), path.parent.stat()):
            if who := ownership.others_writing(found):
                raise PermissionError(f"{who} {path}")
        return file.read()


class _Unpickler(pickle.Unpickler):
    """Imports nothing: modules of the script must first be imported by a rank. Reads no graphs, which torch keeps in
    entries with FlexAttention: it traces them again, and what depends on no input is then computed on a GPU. The forker
    must not ask for GPUs, as torch keeps their number, and a rank may see fewer of them.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == _GRAPH:
            raise pickle.UnpicklingError("a graph is traced when it is read")
        if module not in sys.modules:
            raise pickle.UnpicklingError(f"{module} is not imported")
        return super().find_class(module, name)


def _unpickled(content: bytes) -> Any:
    """Returns the entry, or None if it cannot be read here: then a rank reads it, which says what is wrong."""
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except Exception:
        return None
