"""Computes the energy that GPUs draw in the steps that count.

While a GPU computes, it draws what its kernels do in the mean (profiles.models.power), at the clock that they ran at.
While it only communicates it draws `nccl_w`, and else `idle_w`. A kernel's power falls with the square of the clock,
and its time grows (emu/hook/costs/power.c): stretched s times, the part of it that follows the clock takes 1 / s of its
energy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from phantora_async.figures import TIME_ACCOUNTS, Doing
from profiles import Cost, Gpu

Document = dict[str, Any]


class Launched(NamedTuple):
    """One cost signature on one rank."""

    cost: Cost
    launches: int
    slowed_ns: int
    """The ns by which all of them took longer than at the full clock."""


@dataclass(slots=True)
class _Sums:
    """The sums of joules, by activity of the GPUs, and of their time."""

    computing: float = 0.0
    communicating: float = 0.0
    waiting: float = 0.0
    gpu_s: float = 0.0

    def document(self) -> Document:
        return {"computing_j": self.computing, "communicating_j": self.communicating, "waiting_j": self.waiting}


def energy_document(
    gpu: Gpu, ranks: Sequence[Mapping[str, Any]], launched: Sequence[Iterable[Launched]], step_ns: int | None
) -> Document | None:
    """The energy as JSON; None for a GPU whose power is not described, and if nothing has run. `ranks`: as the report
    has them, `launched`: the launches of each; several may share an object. `step_ns`: None if there are no steps.
    """
    if gpu.power is None:
        return None
    sums = _Sums()
    watts_of = {at: kernel_watts(gpu, works) for at, works in {id(works): works for works in launched}.items()}
    seconds_of: dict[tuple[float, ...], tuple[float, ...]] = {}
    """The seconds by activity, and of all, of ranks with these times: thousands of ranks have the same."""
    for rank, works in zip(ranks, launched, strict=True):
        times = tuple([account.time_of(rank) for account in TIME_ACCOUNTS])
        if (known := seconds_of.get(times)) is None:
            known = seconds_of[times] = (*(_seconds(rank, one) for one in Doing), _seconds(rank, *Doing))
        computing_s, communicating_s, waiting_s, gpu_s = known
        sums.computing += watts_of[id(works)] * computing_s
        sums.communicating += gpu.power.nccl_w * communicating_s
        sums.waiting += gpu.power.idle_w * waiting_s
        sums.gpu_s += gpu_s
    if not sums.gpu_s:
        return None
    parts = sums.document()
    watts = sum(parts.values()) / sums.gpu_s
    step_j = None if step_ns is None else watts * len(ranks) * step_ns / 1e9
    return {"gpu_w": watts, "limit_w": gpu.power_limit_w, "step_j": step_j} | parts


def kernel_watts(gpu: Gpu, works: Iterable[Launched]) -> float:
    """The mean power in watts over kernels and the gaps between them."""
    assert gpu.power is not None, "asked of GPUs whose power is described"
    energy = ns = 0.0
    for cost, launches, slowed_ns in works:
        full_ns = cost.solo_ns * launches
        stretch = 1 + slowed_ns / (cost.draw.clocked * full_ns) if cost.draw.clocked else 1.0
        less = 1 - cost.draw.clocked * (1 - 1 / stretch)
        gaps_ns = gpu.achieved.launch_gap_ns * launches
        drawn_w = cost.draw.power / gpu.power.hunger * gpu.power_limit_w
        energy += full_ns * drawn_w * less + gaps_ns * gpu.power.idle_w
        ns += full_ns + slowed_ns + gaps_ns
    return energy / ns if ns else float(gpu.power.idle_w)


def _seconds(rank: Mapping[str, Any], *doing: Doing) -> float:
    return sum(float(account.time_of(rank)) for account in TIME_ACCOUNTS if account.doing in doing) / 1e9
