"""Files that are no recording, or not what was written, are refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.contract import records
from phantora_async.recording import Recording, load
from phantora_async.recording.rows import ROW
from phantora_async.recording.store import Damaged, Reader, Writer
from tests.unit.virtual_time.scripted import FixedNetwork, Script

from .recordings import record


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("recording")
    record([Script(rank, 2).segment(100).sync().clock().bye() for rank in range(2)], folder, FixedNetwork(), 8)
    return (folder / "recording").read_bytes()


def read_all(folder: Path) -> None:
    recording = load(folder)
    for rank in range(recording.world_size):
        recording.stream(rank)
        recording.side(rank)
        recording.answers(rank)
        recording.history(rank)
    assert recording.dictionary.works == {}


def test_equal_ranks_are_stored_once(recorded: bytes, tmp_path: Path) -> None:
    (tmp_path / "recording").write_bytes(recorded)
    recording = load(tmp_path)
    assert recording.stream(0) is recording.stream(1)
    assert recording.answers(1).clocks.tolist() == [100]


def test_every_damaged_byte_is_found(recorded: bytes, tmp_path: Path) -> None:
    for place in range(0, len(recorded), 7):
        damaged = bytearray(recorded)
        damaged[place] ^= 0x5A
        (tmp_path / "recording").write_bytes(damaged)
        with pytest.raises(Damaged):
            read_all(tmp_path)


def test_warnings_are_of_ranks_that_there_are(tmp_path: Path) -> None:
    def recording_of(warned: list[int]) -> Recording:
        folder = tmp_path / str(warned)
        folder.mkdir()
        record([Script(rank, 2).bye() for rank in range(2)], folder, FixedNetwork(), 8, warned=warned)
        return load(folder)

    assert recording_of([1, 0, 1]).warnings == [("a warning", (0,), 1), ("a warning", (1,), 2)]
    for rank in (-1, 2):
        with pytest.raises(Damaged, match="a warning that no rank of it gave"):
            recording_of([0, rank])


@pytest.mark.parametrize("left", [0, 10, 40, -1])
def test_a_file_that_is_cut_off(recorded: bytes, tmp_path: Path, left: int) -> None:
    (tmp_path / "recording").write_bytes(recorded[:left])
    with pytest.raises(Damaged):
        load(tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="No such file"):
        load(tmp_path)


def test_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phantora_async.recording.store.FORMAT", 99)
    Writer(tmp_path / "recording").close({})
    monkeypatch.undo()
    with pytest.raises(Damaged, match="format 99"):
        load(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "recording")
    with pytest.raises(Damaged):
        load(tmp_path)


def test_a_recording_that_this_machine_has_no_room_for(
    recorded: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recording").write_bytes(recorded)
    monkeypatch.setattr("phantora_async.recording.store.HEADER_GROWS", 1 << 40)
    with pytest.raises(Damaged, match="memory"):
        load(tmp_path)


def forged(
    recorded: bytes, tmp_path: Path, header: dict[str, Any], change: Callable[[np.ndarray[Any, Any]], object] | None
) -> Path:
    """Returns the recording with other parts of its header, and other rows, as a recorder would have written it."""
    (tmp_path / "recording").write_bytes(recorded)
    reader = Reader(tmp_path / "recording")
    chunks = {chunk for rank in reader.header["ranks"] for chunk in rank["chunks"]}
    made = {key: value for key, value in reader.header.items() if key not in ("pieces", "format")} | header
    writer = Writer(tmp_path / "recording")
    for number in range(len(reader.header["pieces"])):
        content, width = reader.piece(number), reader.header["pieces"][number][3]
        if number in chunks and change is not None:
            rows = np.frombuffer(content, ROW).copy()
            change(rows)
            content = rows.tobytes()
        assert writer.put(content, width) == number
    writer.close(made)
    return tmp_path


def change_kind(rows: np.ndarray[Any, Any]) -> None:
    rows["kind"][0] = 1001  # a row that only the engine's input has


def change_time(rows: np.ndarray[Any, Any]) -> None:
    rows["host_ns"][0] = 1 << 63


def change_launches(rows: np.ndarray[Any, Any]) -> None:
    rows["values"][rows["kind"] == records.SEGMENT, 0] = 1 << 40


def change_question(rows: np.ndarray[Any, Any]) -> None:
    rows["kind"][0] = records.QUERY
    rows["values"][0, 2] = 1 << 63


@pytest.mark.parametrize(
    ("header", "change", "message"),
    [
        ({"creations": [["x", [0, 7]]]}, None, "no rank"),
        ({"creations": [["x", []]]}, None, "no members"),
        ({"ranks": []}, None, "not the ranks that have timelines"),
        ({"kernels": [[[0, 99, 0, 0, 1, 0, 0, 0]]]}, None, "unknown operation"),
        ({"kernels": [[[0, 1, 0, 0, 1 << 60, 0, 0, 0]]]}, None, "elements"),
        ({"comms": [[1, [0, 7], [0, 1], "x"]]}, None, "no rank"),
        ({"comms": [[1, [0, 1], [0, 1 << 40], "x"]]}, None, "not a GPU"),
        ({"waits": [[0, 0, -5, -1, 0]]}, None, "impossible time"),
        ({}, change_kind, "unknown kind"),
        ({}, change_time, "host_ns"),
        ({}, change_launches, "launches"),
        ({}, change_question, "must have been complete"),
    ],
)
def test_numbers_that_no_recorder_writes(
    recorded: bytes,
    tmp_path: Path,
    header: dict[str, Any],
    change: Callable[[np.ndarray[Any, Any]], object] | None,
    message: str,
) -> None:
    folder = forged(recorded, tmp_path, header, change)
    with pytest.raises(Damaged, match=message):
        load(folder).stream(0)
