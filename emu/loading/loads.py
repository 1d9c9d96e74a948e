"""What a rank's data loaders have loaded so far, and what that took."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from ..interpreter.hook_library import Hook

MOST_SAMPLES = 4096


@dataclass(slots=True)
class Load:
    """Of all iterators of one loader, or of loaders that are alike."""

    dataset: str
    workers: int
    prefetch: int
    batches: int = 0
    """Those that the program has taken."""
    costs: list[tuple[int, int]] = field(default_factory=list)
    """Measured ones: CPU time and sleeps, in nanoseconds."""
    waits: int = 0
    waited_ns: int = 0
    """In virtual time."""

    def note(self, cpu_ns: int, slept_ns: int) -> None:
        if len(self.costs) < MOST_SAMPLES:
            self.costs.append((cpu_ns, slept_ns))


class Loads:
    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._loads: dict[tuple[Any, ...], Load] = {}

    def of(self, iterator: Any) -> Load:
        """The load that an iterator of torch's belongs to."""
        workers, prefetch = iterator._num_workers, getattr(iterator, "_prefetch_factor", None) or 0
        dataset = type(iterator._dataset).__name__
        return self._loads.setdefault((dataset, workers, prefetch), Load(dataset, workers, prefetch))

    def report(self) -> None:
        """Before BYE. The last one counts."""
        for number, load in enumerate(self._loads.values()):
            cpu_ns = [one for one, _ in load.costs]
            latency_ns = [one for _, one in load.costs]
            self._hook.loader(
                number,
                load.workers,
                load.prefetch,
                load.waits,
                load.batches,
                len(load.costs),
                round(statistics.median(cpu_ns)) if cpu_ns else 0,
                round(statistics.median(latency_ns)) if latency_ns else 0,
                load.waited_ns,
                load.dataset.encode(errors="replace"),
            )
