"""Files are written completely or not at all, also if the disk fills meanwhile; here no file may be larger."""

from __future__ import annotations

import contextlib
import json
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.files import in_place_of, write_figure, write_whole
from phantora_async.bench import history
from phantora_async.errors import NotWritten
from phantora_async.recording import store
from phantora_async.replaying import table
from phantora_async.validation import tables

MOST_NBYTES = 1000
LONG = "x" * (4 * MOST_NBYTES)


@contextlib.contextmanager
def small_files(most_nbytes: int = MOST_NBYTES) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Figure:
    """A stand-in for matplotlib's figure."""

    def savefig(self, path: Path, dpi: int) -> None:
        assert path.suffix == ".png"
        path.write_text(LONG)


def copy(path: Path) -> None:
    with in_place_of(path) as partial:
        partial.write_text(LONG)


@pytest.mark.parametrize(
    "write", [lambda path: write_whole(path, LONG.encode()), lambda path: write_figure(path, Figure()), copy]
)
def test_what_was_there_stays(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "file.png"
    for before in (None, "before"):
        if before is not None:
            path.write_text(before)
        with small_files(), pytest.raises(OSError, match="File too large"):
            write(path)
        assert [(one, one.read_text()) for one in tmp_path.iterdir()] == ([] if before is None else [(path, before)])
    write(path)
    assert [(one, one.read_text()) for one in tmp_path.iterdir()] == [(path, LONG)]


def test_a_table_of_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.FORMS, ".json", lambda outcomes: LONG)
    with small_files(), pytest.raises(NotWritten, match=r"cannot write .*table\.json: File too large"):
        table.write(tmp_path / "table.json", [])
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_has_a_place_for_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- validate: jobs -->\nnone\n<!-- end -->\n")
    before = page.read_text()
    with small_files(), pytest.raises(NotWritten, match=r"cannot write .*page\.md: File too large"):
        tables.write_into(page, "jobs", LONG)
    assert page.read_text() == before


def test_a_recording(tmp_path: Path) -> None:
    writer = store.Writer(tmp_path / "recording")
    with small_files(1):
        with pytest.raises(OSError, match="File too large"):
            writer.put(random.Random(0).randbytes(1 << 16))
        writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_line_of_the_benchmarks_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append(path, {"one": 1})
    with small_files(), pytest.raises(NotWritten, match=r"cannot write .*history\.jsonl: File too large"):
        history.append(path, {"two": LONG})
    history.append(path, {"three": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"one": 1}, {"three": 3}]
