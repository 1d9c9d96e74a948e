"""Keeps the outcomes of variants of a recording in a file, with which a later command goes on.

The file has a line of JSON for each variant, written as soon as its outcome is known. The key says of which recording,
on which machine, with which answers allowed: a file may have lines of other recordings, which stay. A process that was
killed may have left a part of a line, which is cut off.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from formats.files import MOST_DATA_NBYTES, read_bytes
from phantora_async.errors import NotWritten, UsageError
from phantora_async.recording import Recording
from phantora_async.replaying.differences import Allowed
from phantora_async.replaying.machine import spec_of
from phantora_async.replaying.variants import Outcome, Variant
from phantora_async.version import VERSION
from phantora_async.wording import short

FIGURES = {"step_ns": int, "virtual_ns": int, "other_states": int, "left": str}
ANOTHER = "name another file: --results FILE"


def key_of(recording: Recording, variant: Variant, allowed: Allowed) -> str:
    """A key that is equal for variants with the same outcome. Raises UsageError for an invalid machine."""
    spec = spec_of(recording, variant.changes, Path(os.devnull))
    tables = [_digest(read_bytes(one.file, MOST_DATA_NBYTES)) for one in spec.kernel_times]
    machine = (
        spec.cluster,
        spec.gpu,
        spec.host,
        spec.host_mode,
        spec.nccl,
        spec.share_timelines,
        list(map(str, spec.faults)),
        tables,
    )
    played = (
        (variant.changes.slow, variant.changes.network, variant.changes.width),
        sorted(allowed),
        VERSION,
    )
    return _digest(repr((recording.digest, machine, played)).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


class KeptOutcomes:
    """The file of outcomes. ``with`` locks it for this process alone. Raises UsageError for a file that is something
    else.
    """

    def __init__(self, path: Path, recording: Recording, variants: Sequence[Variant], allowed: Allowed) -> None:
        self._path = path
        self._variants = variants
        self._keys = [key_of(recording, variant, allowed) for variant in variants]
        self._file: IO[bytes] | None = None
        self.known: dict[int, Outcome] = {}
        """The outcomes of variants that need not be played, by the variant's number."""

    def __enter__(self) -> KeptOutcomes:
        try:
            self._file = open(self._path, "a+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read(self._file)
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                why = "another replay is using it" if isinstance(error, BlockingIOError) else error.strerror or error
                raise UsageError(f"{short(self._path)}: {why}", ANOTHER) from None
            raise
        return self

    def _read(self, file: IO[bytes]) -> None:
        content = read_bytes(self._path, MOST_DATA_NBYTES)
        whole = content.rfind(b"\n") + 1
        if len(content) - whole and content[whole:][:1] != b"{":
            raise UsageError(f"{short(self._path)} has no results of variants", ANOTHER)
        found = {}
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                row = json.loads(line)
                figures = {name: row[name] for name in FIGURES}
                if any(type(figures[name]) is not kind for name, kind in FIGURES.items()):
                    raise TypeError
                found[str(row["key"])] = figures
            except (ValueError, TypeError, KeyError, RecursionError):
                raise UsageError(f"{short(self._path)}: line {number} is no result of a variant", ANOTHER) from None
        file.truncate(whole)
        for number, (key, variant) in enumerate(zip(self._keys, self._variants, strict=True)):
            if key in found:
                self.known[number] = Outcome(variant, **found[key])

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, number: int, outcome: Outcome) -> None:
        """Appends an outcome. Raises NotWritten."""
        assert self._file is not None, "outcomes are added within `with`"
        row: dict[str, Any] = {"key": self._keys[number], "variant": outcome.variant.name}
        row |= {name: getattr(outcome, name) for name in FIGURES}
        line = json.dumps(row).encode() + b"\n"
        try:
            written = self._file.write(line)
        except OSError as error:
            raise NotWritten(f"cannot write {short(self._path)}: {error.strerror}") from None
        if written != len(line):
            raise NotWritten(f"cannot write {short(self._path)}: {os.strerror(errno.ENOSPC)}")
