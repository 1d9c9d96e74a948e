"""The terminal of a run: the script's output as it appears, and its status below it (in a log: now and then)."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

POLL_S = 0.05
CHUNK_NBYTES = 1 << 16


LOGGED_EVERY_S = 30.0


class Terminal:
    """Output goes to stdout, the status to stderr: one line kept below it on a terminal, else one every half minute."""

    def __init__(self, *, status: bool) -> None:
        self._shows_status = status and sys.stderr.isatty()
        self._logs_status = status and not self._shows_status
        self._logged_s = time.monotonic()
        self._status = ""

    @property
    def live(self) -> bool:
        """Somebody looks at the status as it changes."""
        return self._shows_status

    def status(self, text: str) -> None:
        """What is to be seen now."""
        if self._logs_status and time.monotonic() - self._logged_s >= LOGGED_EVERY_S:
            self._logged_s = time.monotonic()
            print(text, file=sys.stderr, flush=True)
        if self._shows_status and text != self._status:
            self._erase()
            self._status = text
            self._draw()

    def output(self, data: bytes) -> None:
        """Whole lines of the script's output."""
        self._erase()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        self._draw()

    def message(self, text: str) -> None:
        """A line of ours, on stderr."""
        self._erase()
        print(text, file=sys.stderr, flush=True)
        self._draw()

    def notice(self, text: str) -> None:
        """What the status line shows, where there is none."""
        if not self._shows_status:
            self.message(text)

    def close(self) -> None:
        self._erase()
        self._shows_status = self._logs_status = False

    def _erase(self) -> None:
        if self._shows_status and self._status:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def _draw(self) -> None:
        if self._shows_status and self._status:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(self._status[:width])
            sys.stderr.flush()


class LogTail:
    """What a rank writes to its log, line by line. A file, not a pipe: a rank never blocks on us, nor misses us."""

    def __init__(self, path: Path, terminal: Terminal, prefix: str) -> None:
        self._path = path
        self._terminal = terminal
        self._prefix = prefix.encode()
        self._descriptor = -1
        self._partial = b""

    def read(self, *, last: bool = False) -> None:
        """Shows the complete lines that are new; with `last`, also one that never ended."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
        while data := os.read(self._descriptor, CHUNK_NBYTES):
            complete, newline, self._partial = (self._partial + data).rpartition(b"\n")
            self._show(complete + newline)
        if last:
            if self._partial:
                self._show(self._partial + b"\n")
                self._partial = b""
            os.close(self._descriptor)

    def _show(self, lines: bytes) -> None:
        if lines:
            self._terminal.output(b"".join(self._prefix + line for line in lines.splitlines(keepends=True)))


async def follow(tails: list[LogTail]) -> None:
    """Until cancelled; then everything that is left."""
    try:
        while True:
            for tail in tails:
                tail.read()
            await asyncio.sleep(POLL_S)
    finally:
        for tail in tails:
            tail.read(last=True)


def last_lines(path: Path, count: int = 15, limit_nbytes: int = 1 << 16) -> list[str]:
    """The end of a log, without what is too far up to matter."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit_nbytes))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []
