"""The terminal of a run: the script's output as it is written, and the status of the run below it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

from phantora_async.wording import printable

POLL_S = 0.05
CHUNK_NBYTES = 1 << 16
LONG_LINE_NBYTES = 1 << 20
"""A longer line is shown in parts."""
LOGGED_EVERY_S = 30.0


class Terminal:
    """The terminal. Output goes to stdout, the status to stderr: on a terminal a line below the output, else a line
    every 30 s.
    """

    def __init__(self, *, status: bool) -> None:
        self._shows_status = status and sys.stderr.isatty()
        self._logs_status = status and not self._shows_status
        self._logged_s = time.monotonic()
        self._status = ""

    @property
    def live(self) -> bool:
        """True if the status is shown as it changes."""
        return self._shows_status

    def status_due(self) -> bool:
        """Returns true if a status would be shown now."""
        logs = self._logs_status and time.monotonic() - self._logged_s >= LOGGED_EVERY_S
        return self._shows_status or logs

    def status(self, text: str) -> None:
        """Shows this status in place of the previous one."""
        if self._logs_status and time.monotonic() - self._logged_s >= LOGGED_EVERY_S:
            self._logged_s = time.monotonic()
            print(printable(text), file=sys.stderr, flush=True)
        text = printable(text).replace("\n", " ")
        if self._shows_status and text != self._status:
            self._erase()
            self._status = text
            self._draw()

    def output(self, data: bytes) -> None:
        """Writes whole lines of the script's output."""
        self._erase()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        self._draw()

    def remark(self, text: str) -> None:
        """A line about the run, always shown."""
        self._erase()
        print(printable(f"phantora-async: {text}"), file=sys.stderr, flush=True)
        self._draw()

    def notice(self, text: str) -> None:
        """A line about what a status line would show; printed only if there is none."""
        if not self._shows_status:
            print(printable(text), file=sys.stderr, flush=True)

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
    """Copies a rank's log to the terminal, line by line. It is a file, so the rank never blocks on this process."""

    def __init__(self, path: Path, terminal: Terminal, prefix: str) -> None:
        self._path = path
        self._terminal = terminal
        self._prefix = prefix.encode()
        self._descriptor = -1
        self._partial: list[bytes] = []
        """The beginning of a line, in pieces: joining them at each read would take quadratic time."""
        self._partial_nbytes = 0
        self._in_line = False
        """The beginning of a line has been shown."""

    def read(self, *, last: bool = False) -> None:
        """Shows complete new lines; with `last`, also a line that has no end."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
        while data := os.read(self._descriptor, CHUNK_NBYTES):
            complete, newline, rest = data.rpartition(b"\n")
            if newline:
                self._show(b"".join([*self._partial, complete, newline]))
                self._partial, self._partial_nbytes = [], 0
            self._partial.append(rest)
            self._partial_nbytes += len(rest)
            if self._partial_nbytes > LONG_LINE_NBYTES:
                self._show_partial()
        if last:
            if self._partial_nbytes or self._in_line:
                self._partial.append(b"\n")
                self._show_partial()
            os.close(self._descriptor)

    def _show_partial(self) -> None:
        self._show(b"".join(self._partial))
        self._partial, self._partial_nbytes = [], 0

    def _show(self, text: bytes) -> None:
        if text:
            lines = [self._prefix + line for line in text.split(b"\n")]
            if self._in_line:
                lines[0] = lines[0].removeprefix(self._prefix)
            if text.endswith(b"\n"):
                lines[-1] = b""
            self._terminal.output(b"\n".join(lines))
            self._in_line = not text.endswith(b"\n")


async def follow(tails: list[LogTail]) -> None:
    """Shows the logs as they grow, until cancelled; then everything that is left."""
    try:
        while True:
            for tail in tails:
                tail.read()
            await asyncio.sleep(POLL_S)
    finally:
        for tail in tails:
            tail.read(last=True)


def last_lines(path: Path, count: int = 20, limit_nbytes: int = 1 << 16) -> list[str]:
    """The last lines of a log: `count` of them at most, from its last `limit_nbytes`. Python's message about a fatal
    signal, with the frames below the script's, has 18.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit_nbytes))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []
