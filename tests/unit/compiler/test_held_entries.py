"""Entries of the graph cache that the forker reads for all ranks."""

from __future__ import annotations

import pickle
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from emu.compiler import held_entries
from emu.compiler.held_entries import HeldEntries


class Cache:
    """A cache as torch has it: a folder for each key."""

    def __init__(self, folder: Path, more: tuple[Any, ...]) -> None:
        self.folder = folder
        self.read: list[str] = []
        self._more = more

    def add(self, key: str, **entries: Any) -> None:
        (self.folder / key).mkdir()
        for name, entry in entries.items():
            (self.folder / key / name).write_bytes(pickle.dumps(entry))

    def _get_tmp_dir_for_key(self, key: str) -> str:
        return str(self.folder / key)

    def candidates(self, local: bool, remote_cache: Any, key: str) -> Generator[Any]:
        for path in sorted((self.folder / key).iterdir()):
            self.read.append(path.name)
            content = path.read_bytes()
            yield pickle.loads(content), content, *self._more


@pytest.fixture(params=[(), (True,)], ids=["as torch 2.9", "as torch 2.15"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Cache:
    folder = tmp_path / "fxgraph"
    folder.mkdir()
    cache = Cache(folder, request.param)
    cache.add("f1", a=["graph"])
    cache.add("f2", b=["of one size"], c=["of another"])
    return cache


def run(cache: Cache, notes: Path, *keys: str) -> tuple[list[Any], list[str]]:
    """Returns what a rank gets for these keys, and the files that it reads itself."""
    held = HeldEntries(notes)
    held.read()
    cache.read.clear()
    look_up = held.change(cache.candidates)
    return [list(look_up(True, None, key)) for key in keys], list(cache.read)


def test_the_next_run_s_ranks_read_no_entry(cache: Cache, tmp_path: Path) -> None:
    keys = ("f1", "f2", "f1")
    first, read = run(cache, tmp_path / "notes", *keys)
    assert read == ["a", "b", "c", "a"]
    for _ in range(2):
        assert run(cache, tmp_path / "notes", *keys) == (first, [])
    assert run(cache, tmp_path / "notes") == ([], []), "a run that compiles nothing"
    again, read = run(cache, tmp_path / "notes", *keys)
    assert read == []
    assert again[0][0][0] is not again[2][0][0], "a graph that is loaded twice is changed twice"
    assert run(cache, tmp_path / "notes", "f1", "f1", "f1")[1] == ["a"], "as often as in the run before"
    assert run(cache, tmp_path / "notes", "f2")[1] == ["b", "c"], "the run before did not use it"


def test_entries_are_those_that_the_folder_has(cache: Cache, tmp_path: Path) -> None:
    run(cache, tmp_path / "notes", "f1", "f2")
    held = HeldEntries(tmp_path / "notes")
    held.read()
    (cache.folder / "f2" / "c").unlink()
    (cache.folder / "f1" / "d").write_bytes(pickle.dumps(["new"]))
    look_up = held.change(cache.candidates)
    found = [[one[0] for one in look_up(True, None, key)] for key in ("f1", "f2")]
    assert found == [[["graph"], ["new"]], [["of one size"]]]


def test_an_entry_whose_modules_only_ranks_import_is_theirs_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "module_of_the_script.py").write_text("Thing = 3")
    assert held_entries._unpickled(b"cmodule_of_the_script\nThing\n.") is None
    assert held_entries._unpickled(b"damaged") is None
    assert held_entries._unpickled(pickle.dumps(HeldEntries)) is HeldEntries


def test_a_graph_is_a_rank_s_to_read(cache: Cache, tmp_path: Path) -> None:
    """torch traces it again, which calls what depends on no input."""
    graph = torch.fx.Graph()
    graph.output(graph.call_function(time.monotonic_ns))
    cache.add("f3", d=torch.fx.GraphModule(torch.nn.Module(), graph))
    run(cache, tmp_path / "notes", "f1", "f3")
    _, read = run(cache, tmp_path / "notes", "f1", "f3")
    assert read == ["d"]


@pytest.mark.parametrize("opened", ["file", "folder"])
def test_entries_that_others_can_write_are_not_read(cache: Cache, tmp_path: Path, opened: str) -> None:
    """Reading one executes what it says."""
    run(cache, tmp_path / "notes", "f1")
    entry = cache.folder / "f1" / "a"
    (entry if opened == "file" else entry.parent).chmod(0o777)
    _, read = run(cache, tmp_path / "notes", "f1")
    assert read == ["a"], "a rank reads it, as without the forker"
