"""Profiles where a run's processor time goes: the functions of the coordinator, by cProfile, and of rank 0, by
sampling.

Rank 0 is asked for its Python stacks, as a rank is that others wait for, while its main thread runs or wants to run.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from formats.files import write_whole
from phantora_async.ingest.call_sites import Line
from phantora_async.liveness.rank_stacks import Stacks

EVERY_S = 0.02
MOST_FUNCTIONS = 50
FILE = "profile.json"


class SimulatorProfile:
    """Profiles a run: ``start``, run ``sample`` beside the session, then ``write``."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile(time.process_time)
        self._samples = 0
        self._self: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()

    def start(self) -> None:
        self._profile.enable()

    async def sample(self, folder: Path, pid_of: Callable[[int], int | None]) -> None:
        """Samples until cancelled. `folder`: the folder in which ranks write their stacks; `pid_of`: the process of a
        connected rank.
        """
        stacks = Stacks(folder)
        while True:
            await asyncio.sleep(EVERY_S)
            self._take(stacks.lines(0))
            stacks.forget()
            pid = pid_of(0)
            if pid is not None and _runs(pid):
                stacks.ask(0, pid)

    def _take(self, lines: list[Line]) -> None:
        if not lines:
            return
        self._samples += 1
        names = [f"{line.function} ({_short(line.file)})" for line in lines]
        self._self[names[0]] += 1
        self._inside.update(set(names))

    def write(self, run_dir: Path) -> None:
        self._profile.disable()
        stats: Any = pstats.Stats(self._profile)
        spent = [
            {"function": f"{name} ({_short(file)})", "self_s": tt, "total_s": ct, "calls": calls}
            for (file, _, name), (_, calls, tt, ct, _) in stats.stats.items()
            if calls
        ]
        spent.sort(key=lambda one: -float(one["self_s"]))
        functions = sorted(self._inside, key=lambda name: (-self._self[name], -self._inside[name]))
        rank = [
            {"function": name, "self": self._self[name], "inside": self._inside[name]}
            for name in functions[:MOST_FUNCTIONS]
        ]
        document = {
            "coordinator": spent[:MOST_FUNCTIONS],
            "rank": {"rank": 0, "samples": self._samples, "functions": rank},
        }
        write_whole(run_dir / FILE, (json.dumps(document, indent=1) + "\n").encode())


def _runs(pid: int) -> bool:
    """Returns true if the main thread runs, or waits for a processor."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "R"


def _short(file: str) -> str:
    """The end of a path: the package and the module."""
    return file.rpartition("site-packages/")[2] if "site-packages/" in file else "/".join(file.split("/")[-2:])
