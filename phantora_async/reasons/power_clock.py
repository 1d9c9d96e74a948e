"""Computes how a rank's GPUs lower their clock under their power limit when GPU work or the host take other times than
in the run.

The hook library's model (emu/hook/costs/power.c) is applied to the rank's facts. The contents of a segment are known,
the order of its kernels is not, so they draw their mean power in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.records import DeviceKind, ScopeKind
from phantora_async.reasons.contents import Contents
from phantora_async.virtual_time.facts import ends_step
from profiles import Cost, Gpu
from profiles.models.clock import Clock

PORTION_NS = 1_000_000
"""The portion of a segment in ns after which the clock is computed anew."""


class Load(NamedTuple):
    """Sums over a segment's kernels, at the full clock."""

    solo_ns: float = 0.0
    contended_ns: float = 0.0
    energy: float = 0.0
    """The kernels' time multiplied by their power, in units of the power limit."""
    clocked: float = 0.0
    """The kernels' time multiplied by the share of it that depends on the clock."""
    clocked_energy: float = 0.0
    clocked_contended: float = 0.0


NOTHING = Load()
Price = Callable[[int], Cost | None]
"""The cost for a key; None for work that has none."""


class Loads:
    """The loads of segments by their contents."""

    def __init__(self, contents: Contents, price: Price) -> None:
        self._contents = contents
        self._price = price
        self._known: dict[int, Load] = {}

    def of(self, content: int) -> Load:
        known = self._known.get(content)
        if known is None:
            known = self._known[content] = self._sum(content)
        return known

    def _sum(self, content: int) -> Load:
        sums = [0.0] * len(NOTHING)
        for key, count in self._contents.of(content).items():
            cost = self._price(key)
            if cost is None:
                continue
            solo, contended, draw = count * cost.solo_ns, count * cost.contended_ns, cost.draw
            terms = (
                solo,
                contended,
                solo * draw.power,
                solo * draw.clocked,
                solo * draw.power * draw.clocked,
                contended * draw.clocked,
            )
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
        return Load(*sums)


class Busy(NamedTuple):
    """The times that a segment's kernels take at the clock that they find."""

    solo_ns: float
    contended_ns: float


@dataclass(slots=True)
class _Device:
    clock: Clock | None
    """The GPU's clock; None: it never falls."""
    free_ns: float = 0.0
    last_stream: int = 0

    def launched(self, segment: records.Segment, load: Load, now_ns: float, gaps_ns: float) -> Busy:
        if self.clock is None:
            return Busy(load.solo_ns, load.contended_ns)
        self._idle_until(now_ns)
        self.last_stream = segment.stream
        portions, stretch = max(ceil(load.solo_ns / PORTION_NS), 1), 0.0
        for _ in range(portions):
            self.clock.idle(gaps_ns / portions)
            sums = load.solo_ns, load.energy, load.clocked, load.clocked_energy
            self.clock.add_sums(*(one / portions for one in sums))
            stretch += self.clock.stretch / portions
        busy = Busy(
            load.solo_ns + load.clocked * (stretch - 1), load.contended_ns + load.clocked_contended * (stretch - 1)
        )
        self.free_ns += busy.solo_ns
        work = min(segment.tail_work_ns / segment.solo_ns, 1.0) * busy.solo_ns if segment.solo_ns else 0.0
        self._idle_until(now_ns + segment.tail_ns - segment.tail_work_ns + work)
        return busy

    def _idle_until(self, at_ns: float) -> None:
        if at_ns > self.free_ns and self.clock is not None:
            self.clock.idle(at_ns - self.free_ns)
            self.free_ns = at_ns


class PowerClock:
    """The clocks of one rank's GPUs."""

    def __init__(self, gpu: Gpu, loads: Loads, steps_before: int) -> None:
        """`steps_before`: the number of steps of the run before the facts. They are assumed to be like those of the
        facts.
        """
        self._gpu = gpu
        self._loads = loads
        self._steps_before = steps_before
        self._devices: dict[int, _Device] = {}
        self._device_of: dict[int, int] = {}
        """The device of each stream."""
        self._now_ns = 0.0

    def follow(self, facts: Sequence[Any], steps: int) -> list[Busy]:
        """The times of each segment, in order. `steps`: the number of the first steps of the facts that are like those
        before.
        """
        if self._gpu.power is not None and self._steps_before and steps:
            self._warm_up(facts[: _end_of_step(facts, steps)], self._steps_before / steps)
        return self._execute(facts)

    def _warm_up(self, facts: Sequence[Any], times: float) -> None:
        """Brings the clocks to the state as if the facts had been executed `times` times. What a clock remembers is
        multiplied by the same factor each time, and the same is added.
        """
        self._execute(facts)
        for device in self._devices.values():
            if device.clock is not None:
                device.clock.repeat(times)

    def _execute(self, facts: Sequence[Any]) -> list[Busy]:
        found = []
        for fact in facts:
            self._now_ns += fact.host_ns
            if fact.kind == records.SEGMENT:
                load = self._loads.of(fact.content)
                gaps_ns = self._gpu.achieved.launch_gap_ns * fact.launches
                found.append(self._device(fact.stream).launched(fact, load, self._now_ns, gaps_ns))
            elif fact.kind == records.STREAM_CREATE:
                self._device_of[fact.stream] = fact.device % DeviceKind.APART
            elif fact.kind == records.HOST_WAIT:
                self._waited(fact)
        return found

    def _device(self, stream: int) -> _Device:
        number = self._device_of.get(stream, 0)
        if number not in self._devices:
            self._devices[number] = _Device(Clock.of(self._gpu) if self._gpu.power is not None else None, self._now_ns)
        return self._devices[number]

    def _waited(self, wait: records.HostWait) -> None:
        """Lets the host wait until the GPU has done its work: the host's clock leaves waits out."""
        for device in self._devices.values():
            if wait.scope == ScopeKind.DEVICE or (wait.scope == ScopeKind.STREAM and wait.stream == device.last_stream):
                device.free_ns = min(device.free_ns, self._now_ns)


def _end_of_step(facts: Sequence[Any], steps: int) -> int:
    for place, fact in enumerate(facts, 1):
        steps -= ends_step(fact)
        if not steps:
            return place
    return len(facts)
