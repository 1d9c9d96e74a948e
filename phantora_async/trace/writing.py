"""Shared parts of the writers of both forms: a file that is always readable, and the context of spans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netsim.collectives import Plan
from phantora_async.ingest.costs import Costs
from phantora_async.trace.spans import Span
from phantora_async.virtual_time import Collective

CHUNK_NBYTES = 1 << 18


class StreamedFile:
    """A file that is written in chunks, each with the tail behind it that makes the file complete."""

    def __init__(self, path: Path, tail: bytes = b"") -> None:
        self._file = path.open("wb", buffering=0)
        self._tail = tail
        self._waiting: list[bytes] = []
        self._waiting_nbytes = 0
        self._end = 0
        """The end of the written bytes, without the tail."""

    def write(self, content: bytes) -> None:
        """Adds bytes. Raises OSError if a chunk cannot be written."""
        self._waiting.append(content)
        self._waiting_nbytes += len(content)
        if self._waiting_nbytes >= CHUNK_NBYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the chunk. Raises OSError; the file then ends with the last chunk that could be written."""
        chunk = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_nbytes = 0
        try:
            self._write_at_end(chunk + self._tail)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)  # which makes room for the tail
                self._write_at_end(self._tail)
            raise
        self._end += len(chunk)

    def _write_at_end(self, content: bytes) -> None:
        if self._file.seekable():
            self._file.seek(self._end)
        left = memoryview(content)
        while left:
            left = left[self._file.write(left) or 0 :]

    def close(self) -> None:
        """Writes the rest and closes the file. Raises OSError like ``flush``; the file is closed in any case."""
        try:
            if self._waiting:
                self.flush()
        finally:
            self._file.close()


@dataclass(frozen=True, slots=True)
class Context:
    """The objects that spans refer to."""

    costs: Costs
    plan: Callable[[Collective], Plan]
    pid: Callable[[int], int]
    """Returns a rank's process id, as its own processes see it."""
    links: Sequence[str]
    """The names of the cluster's links, by number."""
    traced: Set[int]
    """The ranks that are traced."""


class Writer(Protocol):
    def add(self, rank: int, span: Span) -> None:
        """Adds the span. Raises OSError if it cannot be written."""

    def close(self) -> None:
        """Writes the rest and closes the file. Raises OSError if that fails."""
