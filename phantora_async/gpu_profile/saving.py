"""Writes tables of measured times: their names, and a table that grows while it is measured."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path

from phantora_async.errors import NotWritten, UsageError
from profiles import Measured, ProfileError, Table, load_table, save_table
from profiles.signature import parse
from profiles.timings.keys import key_of

EVERY_S = 5.0


def check_output(path: Path) -> None:
    """Raises UsageError for a file that a table cannot be written to."""
    if not path.name.endswith((".times", ".times.gz")) or not path.absolute().parent.is_dir():
        raise UsageError(
            f"--output {path}: expected a file in an existing folder whose name ends in .times or .times.gz"
        )


class GrowingTable:
    """A table that is saved every few seconds, and continued where it was interrupted."""

    def __init__(self, path: Path, origin: dict[str, str], command: str) -> None:
        """Continues the file, if there is one. Raises UsageError for one that is no table, and for an output that
        cannot be one."""
        check_output(path)
        self.path = path
        try:
            self.table = load_table(path) if path.exists() else Table()
        except ProfileError as error:
            raise UsageError(str(error), "name another file with --output") from None
        self._origin = origin | {"date": date.today().isoformat(), "command": command}
        self._number = -1
        self._saved_at = time.monotonic()

    def add(self, times: Iterable[Measured]) -> None:
        for measured in times:
            if self._number < 0:
                self.table.origins.append(self._origin)
                self._number = len(self.table.origins) - 1
            self.table.times[key_of(parse(measured.signature))] = replace(measured, origin=self._number)
        if time.monotonic() - self._saved_at > EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes the table. Raises NotWritten."""
        try:
            save_table(self.path, self.table)
        except OSError as error:
            raise NotWritten(f"{self.path}: {error.strerror}") from None
        self._saved_at = time.monotonic()
