"""The workers of a rank's data loaders in virtual time.

Each worker loads the batches that it is asked for one after the other: first it needs a CPU for as long as the batch
costs, then it waits for what takes no CPU. The rank's workers share its part of the server's CPUs: while more of them
need one than there are, each goes on at the same share of its speed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction

Batch = tuple[Hashable, int]
"""A batch: a loader's iterator, and the batch's number in it."""


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_ns: int
    latency_ns: int = 0
    """Time in which the worker needs no CPU."""


@dataclass(slots=True)
class _Task:
    batch: Batch
    asked_ns: int
    late_ns: int = 0
    """The ns by which the batch comes later than its cost says."""
    cost: Cost | None = None
    """The batch's cost; None: nobody knows it yet."""


@dataclass(slots=True)
class _Worker:
    tasks: deque[_Task] = field(default_factory=deque)
    """The batches to load. The first one is loaded now, if it has begun."""
    begun: bool = False
    left_ns: Fraction = Fraction()
    """The CPU time that the first batch still needs, in ns."""
    until_ns: Fraction | None = None
    """The instant until which the first batch waits, as it needs no CPU any more; None: it needs a CPU."""


class Workers:
    """The workers of one rank. Instants are nanoseconds of virtual time; calls come in their order."""

    def __init__(self, cpus: Fraction) -> None:
        self._cpus = cpus
        self._now = Fraction()
        self._workers: dict[tuple[Hashable, int], _Worker] = {}
        self._ready: dict[Batch, int] = {}
        self._mean = Cost(0)
        self._known = 0

    def ask(self, iterator: Hashable, worker: int, number: int, at_ns: int, late_ns: int = 0) -> None:
        """Lets the worker load the batch from this instant on, when it has loaded those before. For `late_ns` more than
        the batch's cost says it waits without a CPU.
        """
        tasks = self._workers.setdefault((iterator, worker), _Worker()).tasks
        tasks.append(_Task((iterator, number), at_ns, late_ns))

    def learn(self, iterator: Hashable, number: int, cost: Cost) -> None:
        """Takes note of a batch's cost. Until it is known, a batch is taken to cost what batches have cost in the
        mean.
        """
        self._known += 1
        cpu_ns = self._mean.cpu_ns + (cost.cpu_ns - self._mean.cpu_ns) // self._known
        latency_ns = self._mean.latency_ns + (cost.latency_ns - self._mean.latency_ns) // self._known
        self._mean = Cost(cpu_ns, latency_ns)
        for worker in self._workers.values():
            for task in worker.tasks:
                if task.batch == (iterator, number):
                    if worker.begun and task is worker.tasks[0] and worker.until_ns is None and task.cost is not None:
                        worker.left_ns = max(Fraction(), worker.left_ns + cost.cpu_ns - task.cost.cpu_ns)
                    task.cost = cost

    def ready_ns(self, iterator: Hashable, number: int) -> int:
        """Returns the instant at which the batch is loaded; 0 if nobody has asked for it."""
        batch = (iterator, number)
        while batch not in self._ready:
            if not any(task.batch == batch for worker in self._workers.values() for task in worker.tasks):
                return 0
            self._go_on()
        return self._ready.pop(batch)

    def forget(self, iterator: Hashable) -> None:
        """Forgets an iterator that has ended: its workers have ended, too."""
        for key in [key for key in self._workers if key[0] == iterator]:
            del self._workers[key]
        for batch in [batch for batch in self._ready if batch[0] == iterator]:
            del self._ready[batch]

    def _go_on(self) -> None:
        """Goes on to the next instant at which a worker begins, has used its CPU time or is done."""
        for worker in self._workers.values():
            if not worker.begun and worker.tasks and worker.tasks[0].asked_ns <= self._now:
                task = worker.tasks[0]
                task.cost = task.cost or self._mean
                worker.begun, worker.left_ns = True, Fraction(task.cost.cpu_ns)
        loading = [one for one in self._workers.values() if one.begun and one.until_ns is None]
        speed = min(Fraction(1), self._cpus / len(loading)) if loading else Fraction(1)
        next_ns = min(
            [
                *(self._now + worker.left_ns / speed for worker in loading),
                *(worker.until_ns for worker in self._workers.values() if worker.until_ns is not None),
                *(
                    Fraction(worker.tasks[0].asked_ns)
                    for worker in self._workers.values()
                    if worker.tasks and not worker.begun
                ),
            ]
        )
        for worker in loading:
            worker.left_ns -= (next_ns - self._now) * speed
        self._now = next_ns
        for worker in self._workers.values():
            self._end_parts(worker)

    def _end_parts(self, worker: _Worker) -> None:
        if not worker.begun:
            return
        task = worker.tasks[0]
        if worker.until_ns is None and worker.left_ns == 0:
            worker.until_ns = self._now + (task.cost.latency_ns if task.cost else 0) + task.late_ns
        if worker.until_ns is not None and worker.until_ns <= self._now:
            worker.tasks.popleft()
            worker.begun, worker.until_ns = False, None
            self._ready[task.batch] = math.ceil(self._now)
