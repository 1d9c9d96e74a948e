"""Takes the times of signatures from a torch.profiler trace (record_shapes=True) of a real GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from profiles.descriptions.gpu import Gpu
from profiles.models.dispatch import estimate
from profiles.signature import Library, Signature, parse
from profiles.timings.clock import Clocked, follow
from profiles.timings.keys import key_of
from profiles.timings.table import Measured
from profiles.timings.trace import TracedWork

SHARED = 0.02
"""The largest share of a duration that may have been beside work of other streams that is not NCCL's."""
ALONE = 0.02
"""The largest share of a duration beside NCCL with which it counts as alone."""
BESIDE = 0.95
"""The least share of a duration beside NCCL with which it counts as beside NCCL."""


@dataclass(slots=True)
class _Durations:
    """The durations of one signature, in ns at the full clock."""

    signature: str
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    """Durations partly beside NCCL, without the time that this takes as the model says."""


def times_of(gpu: Gpu, works: Sequence[TracedWork], clocked: Sequence[Clocked] | None = None) -> list[Measured]:
    """The times of signatures. From each duration the time that the power limit added to it is subtracted first, as the
    model of the clock says, or `clocked`, one for each piece of work.
    """
    found: dict[str, _Durations] = {}
    places: dict[str, tuple[Signature, str]] = {}
    for work, clock in zip(works, follow(gpu, works) if clocked is None else clocked, strict=True):
        if work.signature not in places:
            what = parse(work.signature)
            places[work.signature] = what, key_of(what)
        what, key = places[work.signature]
        if isinstance(what, Library) or work.for_us <= 0 or work.shared > SHARED:
            continue
        durations = found.setdefault(key, _Durations(work.signature))
        took_ns = work.for_us * 1e3 / clock.longer + gpu.achieved.launch_gap_ns * (work.kernels - 1)
        if work.overlap <= ALONE:
            durations.alone.append(took_ns)
            continue
        if work.overlap >= BESIDE:
            durations.beside.append(took_ns)
        modelled = estimate(gpu, what)
        slower = max(modelled.contended_ns / modelled.solo_ns, 1.0) - 1
        durations.between.append(took_ns / (1 + work.overlap * slower))
    return [_measured(durations) for durations in found.values()]


def _measured(durations: _Durations) -> Measured:
    # Executions of one signature may differ in work: the last chunk of a foreach call is not full. With means the sum
    # of a step is right.
    alone = durations.alone or durations.between
    solo_ns = max(1, round(fmean(alone)))
    contended_ns = max(solo_ns, round(fmean(durations.beside))) if durations.beside and durations.alone else None
    return Measured(durations.signature, solo_ns, contended_ns, len(alone), 0)
