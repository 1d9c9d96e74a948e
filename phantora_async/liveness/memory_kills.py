"""Finds out whether the kernel has ended processes for lack of memory. It sends SIGKILL, and only its counters show
why.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from phantora_async.wording import signal_in_words

_UNLIMITED = 1 << 60


class MemoryKills:
    """Counts the kernel's kills for lack of memory since this object was made."""

    def __init__(
        self,
        of_process: Path = Path("/proc/self/cgroup"),
        groups: Path = Path("/sys/fs/cgroup"),
        machine: Path = Path("/proc/vmstat"),
    ) -> None:
        self._machine = machine
        self._group = _group(of_process, groups)
        self._before = self._counts()

    def signal_in_words(self, number: int) -> str:
        """Names the signal that has ended a process of the run, with lack of memory as the reason if that is likely."""
        words = signal_in_words(number)
        if number != signal.SIGKILL:
            return words
        in_group, in_machine = (now > before for now, before in zip(self._counts(), self._before, strict=True))
        if in_group:
            limit = _limit(self._group)
            share = f", whose limit is {limit / 1e9:.1f} GB" if limit else ""
            return f"{words}: the kernel has run out of memory for this control group{share}"
        if in_machine:
            return f"{words}: the kernel has ended processes because this machine ran out of memory"
        return words

    def _counts(self) -> tuple[int, int]:
        """The number of kills in this process's control group, and on the machine."""
        group = sum(_count(self._group / name) for name in ("memory.events", "memory.oom_control"))
        return group, _count(self._machine)


def _group(of_process: Path, groups: Path) -> Path:
    """The folder of the control group that limits memory, of version 1 or 2."""
    with contextlib.suppress(OSError):
        for line in of_process.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return _existing(groups / "memory", path)
            if not controllers and (_existing(groups, path) / "memory.events").is_file():
                return _existing(groups, path)
    return groups


def _existing(root: Path, path: str) -> Path:
    """The group's folder. In a container the path may be the host's; then the group is the root that is mounted
    there.
    """
    below = root / path.lstrip("/")
    return below if below.is_dir() else root


def _count(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _limit(group: Path) -> int:
    """The group's limit in bytes; 0 if none is known."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limit = int((group / name).read_text())
            return limit if limit < _UNLIMITED else 0
    return 0
