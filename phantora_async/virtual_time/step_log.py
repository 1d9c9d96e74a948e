"""Where training steps end, as the optimizer's markers say, and what each rank's devices did in between."""

from __future__ import annotations

from phantora_async.virtual_time.entities import StepEnd

WARM_UP = 2
"""StepLog that are left out of figures if more follow: the first two intervals between markers."""


class StepLog:
    """Keeps what the report needs, however many steps: rank 0's instants, each rank's first and last marks."""

    __slots__ = ("first", "instants", "last")

    def __init__(self) -> None:
        self.instants: list[tuple[int, int]] = []
        """Rank 0's (device_ns, host_ns) of each step's end."""
        self.first: dict[int, list[StepEnd]] = {}
        """The first WARM_UP + 1 marks of every rank."""
        self.last: dict[int, StepEnd] = {}

    @staticmethod
    def measure(step: StepEnd, now_ns: int) -> None:
        """All work enqueued before the mark is done: at this instant, with these shares."""
        host = step.host
        step.device_ns = now_ns
        totals = [0] * 6
        for device in host.used:
            device.account(now_ns)
            totals = [total + share for total, share in zip(totals, device.shares(), strict=True)]
        step.shares = tuple(totals)

    def keep(self, step: StepEnd) -> None:
        """It will not be taken back."""
        host = step.host
        if host.rank == 0:
            self.instants.append((step.device_ns, step.host_ns))
        first = self.first.setdefault(host.rank, [])
        if len(first) <= WARM_UP:
            first.append(step)
        self.last[host.rank] = step

    def measured(self, rank: int) -> tuple[StepEnd, StepEnd] | None:
        """The marks between which a rank's figures count; None if it has no whole step."""
        first, last = self.first.get(rank), self.last.get(rank)
        if not first or last is None or last.index == first[0].index:
            return None
        return first[min(WARM_UP, last.index - first[0].index - 1, len(first) - 1)], last
