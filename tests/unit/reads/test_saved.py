"""Which numbers of a file nobody computed."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from emu.reads import arrays, marked, saved
from emu.reads.marked import Mark

MARK = Mark("train.py:3", "float32", "0")


def test_a_file_has_ordinary_numbers_and_the_same_ones_are_marked_when_it_is_loaded() -> None:
    number = marked.marked(2.5, MARK)
    program: dict[str, Any] = {
        "best": number,
        "epoch": 3,
        "lr": 0.1,
        "log": [(1.0, number)],
        "o": OrderedDict(a=number),
    }
    written, unknown = saved.for_file(program, lambda value: marked.mark_of(value) is not None)
    assert all(type(one) is float for one in (written["best"], written["log"][0][1], written["o"]["a"]))
    assert type(written["o"]) is OrderedDict
    assert program["best"] is number
    assert unknown == {1: None, 4: None, 5: None}
    loaded = saved.from_file(written, unknown, lambda value, flags: marked.marked(value, MARK))
    found = [loaded["best"], loaded["lr"], loaded["log"][0][0], loaded["log"][0][1], loaded["o"]["a"]]
    assert [marked.mark_of(one) is MARK for one in found] == [True, False, False, True, True]


def test_what_has_no_such_number_is_written_as_it_is() -> None:
    program = {"lr": 0.1, "names": ["a"], "shape": (1, 2)}
    written, unknown = saved.for_file(program, lambda value: False)
    assert written is program
    assert unknown == {}


def test_the_file_says_which(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    path.write_bytes(b"")
    unknown = {1: None, 4: [True, False, False, True], 7: [False, True]}
    saved.note(str(path), unknown)
    assert saved.noted(str(path)) in (unknown, {})  # a file system may keep no attributes
    saved.note(str(path), {})
    assert saved.noted(str(path)) == {}


def test_an_array_counts_as_one_whether_it_is_known_or_not() -> None:
    np = pytest.importorskip("numpy")
    arrays.install(np)
    array = np.ones(2).view(marked.BY_BASE[np.ndarray])
    array.mark, array.flags_in = MARK, None
    written, unknown = saved.for_file(
        [array, 0.5, marked.marked(2.5, MARK)], lambda one: marked.mark_of(one) is not None
    )
    assert unknown == {1: None, 3: None}
    assert saved.from_file(written, unknown, lambda one, flags: "unknown") == ["unknown", 0.5, "unknown"]
