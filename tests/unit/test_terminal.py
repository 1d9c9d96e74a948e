"""A log on the terminal: whole lines as they come, however long they are and however they are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phantora_async import terminal
from phantora_async.terminal import LogTail, Terminal


class Shown(Terminal):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        super().__init__(status=False)
        self.parts: list[bytes] = []

    def output(self, data: bytes) -> None:
        self.parts.append(data)


def test_a_line_is_shown_when_it_is_complete(tmp_path: Path) -> None:
    log, shown = tmp_path / "rank0.log", Shown()
    tail = LogTail(log, shown, "[rank 0] ")
    tail.read()  # there is no log yet
    with log.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        tail.read()
        assert shown.parts == [b"[rank 0] one\n"]
        file.write(b"o\n\nthree")
        tail.read()
        tail.read(last=True)
    assert b"".join(shown.parts) == b"[rank 0] one\n[rank 0] two\n[rank 0] \n[rank 0] three\n"


def test_a_very_long_line_is_shown_in_parts_and_read_once(tmp_path: Path) -> None:
    log, shown = tmp_path / "rank0.log", Shown()
    text = b"x" * (5 * terminal.LONG_LINE_NBYTES) + b"\nend\n"
    log.write_bytes(text)
    LogTail(log, shown, "").read(last=True)
    assert b"".join(shown.parts) == text
    assert max(map(len, shown.parts)) < 2 * terminal.LONG_LINE_NBYTES


@given(
    pieces=st.lists(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r"])).map(b"".join), max_size=6),
    limit=st.integers(1, 4),
)
def test_every_line_has_its_prefix_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int
) -> None:
    log, shown = tmp_path_factory.mktemp("log") / "rank0.log", Shown()
    tail = LogTail(log, shown, ">")
    with log.open("ab", buffering=0) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "LONG_LINE_NBYTES", limit)
        for piece in pieces:
            file.write(piece)
            tail.read()
        tail.read(last=True)
    text = b"".join(pieces)
    lines = text.split(b"\n") if not text.endswith(b"\n") else text.split(b"\n")[:-1]
    expected = b"".join(b">" + line + b"\n" for line in lines) if text else b""
    assert b"".join(shown.parts) == expected
