"""Measures signatures while a run prices them, and keeps the times for the next run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from phantora_async.errors import EnvironmentUnusable
from phantora_async.gpu_profile.bench import Bench, is_late
from phantora_async.gpu_profile.signatures import NotMeasured, SignatureBench
from profiles import ProfileError, Table, TimesOn, load_table, merged, save_table
from profiles.signature import parse
from profiles.timings.keys import key_of
from profiles.titles import title

SAVED_EVERY_S = 5.0
TOLD_AFTER_S = 20.0
"""The user is told when measuring has taken so long, then twice as long, and so on."""


class OnDemand:
    """Measures signatures when a run needs them. `times` grows by what `measure` has measured."""

    def __init__(self, bench: Bench, folder: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        """`folder` has a file of times for each kind of GPU; `tell` shows the user a line. Raises EnvironmentUnusable
        for an undescribed GPU, and for a folder that cannot be used.
        """
        self._signatures = SignatureBench(bench)
        about = self._signatures.about
        gpu = self._signatures.gpu
        if gpu is None:
            raise EnvironmentUnusable(f"there is no description of this machine's GPU, {about['gpu']}")
        self.file = folder / f"{about['gpu'].replace('/', '-')}.times"
        origin = about | {"date": date.today().isoformat(), "command": "phantora-async run --measure"}
        self._new = Table([origin])
        self._saved_at = time.monotonic()
        self._tell = tell
        self._tell_at_s = TOLD_AFTER_S
        self._took_s = 0.0
        self._not_measured = 0
        self._told: set[str] = set()
        """The reasons why pieces of work were given up."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                known = self._on_disk()
        except OSError as error:
            raise EnvironmentUnusable(f"{self.file}: {error.strerror}") from None
        self.times = TimesOn(Table([*known.origins, origin], known.times), gpu)

    def measure(self, signature: str) -> bool:
        """Measures the signature. Returns true if that was possible; then its time is in `times`."""
        began_s = time.monotonic()
        ((_, found),) = self._signatures.measure([signature])
        self._took_s += time.monotonic() - began_s
        self._not_measured += isinstance(found, NotMeasured)
        if isinstance(found, NotMeasured) and is_late(found.reason) and found.reason not in self._told:
            self._told.add(found.reason)
            self._tell(f"--measure: {title(signature)}: {found.reason}: it is estimated, and so are others like it")
        if self._took_s > self._tell_at_s:
            self._tell_at_s *= 2
            self._tell(
                f"--measure: {len(self._new.times)} kernels measured in {self._took_s:.0f} s, {self._not_measured} "
                f"cannot be and are estimated; the last one: {title(signature)}"
            )
        if isinstance(found, NotMeasured):
            return False
        key, table = key_of(parse(signature)), self.times.table
        table.times[key] = replace(found, origin=len(table.origins) - 1)
        self._new.times[key] = found
        if time.monotonic() - self._saved_at > SAVED_EVERY_S:
            self.save()
        return True

    def save(self) -> None:
        """Adds what is new to what the file has by now: other runs may have written to it. Without room on the disk the
        times are lost.
        """
        self._saved_at = time.monotonic()
        if self._new.times:
            with contextlib.suppress(OSError), self._locked():
                save_table(self.file, merged([self._on_disk(), self._new]))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _on_disk(self) -> Table:
        """A file of another version, or one that was damaged, counts as empty."""
        try:
            return load_table(self.file) if self.file.exists() else Table()
        except ProfileError:
            return Table()
