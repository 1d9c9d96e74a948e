"""Asks ranks for their Python stacks and reads what they write."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from emu.contract import stack_request
from phantora_async.ingest.call_sites import Line, Site, in_packages, innermost

MOST_NBYTES = 16 << 20
"""The most bytes that are kept of a rank's stacks: a thousand threads need 10 MiB."""
_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


class Stacks:
    """Stacks of the ranks of one run: ``ask``, wait until ``complete``, then ``where`` and ``keep``."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the folder in which ranks write their files, see ``emu.contract.stack_request``."""
        self._folder = folder
        self._asked: dict[int, int] = {}
        """The size of each asked rank's file when last looked at."""

    def ask(self, rank: int, pid: int) -> None:
        """Asks for the rank's stacks now, which replace older ones. A rank that has no file here, as one of another
        machine, cannot be asked.
        """
        with contextlib.suppress(OSError):  # it has just ended
            os.truncate(self._path(rank), 0)
            os.kill(pid, stack_request.SIGNAL)
            self._asked[rank] = 0

    def forget(self) -> None:
        """Discards the former requests."""
        self._asked.clear()

    def complete(self) -> bool:
        """Returns true if every rank that was asked has written its stacks, and nothing more since the last call."""
        done = True
        for rank, before in self._asked.items():
            size = self._size(rank)
            done = done and size == before > 0
            self._asked[rank] = size
        return done

    def where(self, rank: int) -> Site | None:
        """The site at which its main thread was when it answered; None if it did not answer, or was not in Python
        code.
        """
        lines = self.lines(rank)
        return innermost(lines) if lines else None

    def lines(self, rank: int) -> list[Line]:
        """The stack of its main thread, innermost line first; empty if ``where`` returns None."""
        if rank not in self._asked:
            return []
        return main_thread(self._written(rank).decode(errors="replace"))

    def beside(self, rank: int) -> list[Site]:
        """The lines of the user's program at which its other threads were."""
        if rank not in self._asked:
            return []
        sites = (innermost(lines) for lines in threads(self._written(rank).decode(errors="replace"))[1:])
        return list(dict.fromkeys(site for site in sites if site is not None and not in_packages(site.line)))

    def keep(self, run_dir: Path) -> dict[int, Path]:
        """Copies the written stacks into the run directory. Returns the files by rank."""
        kept = {}
        for rank in self._asked:
            with contextlib.suppress(OSError):
                if written := self._written(rank):
                    file = run_dir / f"rank{rank}.stack"
                    file.write_bytes(written)
                    kept[rank] = file
        return kept

    def _written(self, rank: int) -> bytes:
        """The beginning of the file: the rank's script could make it as large as it likes."""
        try:
            with self._path(rank).open("rb") as file:
                return file.read(MOST_NBYTES)
        except OSError:
            return b""

    def _path(self, rank: int) -> Path:
        return Path(stack_request.path_of(str(self._folder), rank))

    def _size(self, rank: int) -> int:
        try:
            return self._path(rank).stat().st_size
        except OSError:
            return -1


def main_thread(text: str) -> list[Line]:
    """Lines of the main thread, innermost first, from what faulthandler wrote."""
    found = threads(text)
    return found[0] if found else []


def threads(text: str) -> list[list[Line]]:
    """Lines of all threads, each with the innermost first, from what faulthandler wrote. The main one comes first:
    faulthandler calls it the current one.
    """
    found: list[list[Line]] = []
    current = -1
    for line in text.splitlines():
        if "most recent call first" in line:
            if line.startswith("Current thread"):
                current = len(found)
            found.append([])
        elif found and (match := _LINE.match(line)):
            found[-1].append(Line(match[1], int(match[2]), match[3]))
    if found:
        found.insert(0, found.pop(current))
    return found


def crash_site(log: Path, limit_nbytes: int = 1 << 16) -> Site | None:
    """The site at which the rank was when a fault such as SIGSEGV ended it, if its log ends with that."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit_nbytes))
            _, fault, stack = file.read().decode(errors="replace").rpartition("Fatal Python error")
    except OSError:
        return None
    return innermost(main_thread(stack)) if fault else None


def known(found: Iterable[int], these: Stacks) -> dict[int, Site]:
    """The sites at which ranks were when they answered, for those that did."""
    sites = ((rank, these.where(rank)) for rank in found)
    return {rank: site for rank, site in sites if site is not None}
