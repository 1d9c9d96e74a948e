"""Prices the rows of a recording as another GPU or host would have made them.

The hook library folds launches into segments as they come, with durations and host times that it knows then. The same
is done here again, from the recorded history: which launches came in which order, and what the host did in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import DeviceKind, HistoryKind, ScopeKind
from phantora_async.ingest.costs import Priced as PricedSignature
from phantora_async.recording.history import Dictionary, HostWork
from phantora_async.recording.recording import Recording, Stream
from phantora_async.recording.rows import FURTHER_STEPS, HOST_TIME, WITH_ROW
from phantora_async.replaying.clock import PowerClock
from profiles import CALL_KINDS, FINE_KINDS, WORK_KINDS, Cost, Gpu, HostModel, device_file_value

KINDS = (*CALL_KINDS, *WORK_KINDS)
_PICOSECONDS = frozenset(number for number, kind in enumerate(KINDS) if kind in FINE_KINDS)
_HOST_WORK = 2
"""The index of the host's work among the fields of COUNTERS."""


class Price(NamedTuple):
    """A cost as the hook library has it."""

    solo_ns: int
    contended_ns: int
    power: int
    clocked: int


def price_of(cost: Cost) -> Price:
    return Price(cost.solo_ns, cost.contended_ns, round(1000 * cost.draw.power), round(1000 * cost.draw.clocked))


class Host:
    """Computes how long work takes on a host."""

    def __init__(self, model: HostModel, mode: str) -> None:
        self._costs = [device_file_value(kind, model.price_ns(kind)) for kind in KINDS]
        self._modelled = mode == "modelled"

    def modelled_ns(self, work: HostWork) -> int:
        if not self._modelled:
            return 0
        return sum(units * self._costs[kind] // (1000 if kind in _PICOSECONDS else 1) for kind, units in work.counts)


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a machine that decide how long launches and the host's work take."""

    gpu: Gpu
    host: HostModel
    host_mode: str
    costs: Mapping[int, PricedSignature]
    slow: Mapping[int, float] = field(default_factory=dict)
    """The share of its speed that the GPU reaches, by rank."""


class Priced(NamedTuple):
    stream: Stream
    slowed_ns: list[dict[int, int]]
    """The ns that the power limit added, by key, for each LAUNCH_COUNTS in order."""


class _Segment:
    __slots__ = ("contended_ns", "first_ns", "queued", "solo_ns", "tail_ns", "tail_work_ns")

    def __init__(self, first_ns: int) -> None:
        self.first_ns = first_ns
        self.solo_ns = self.contended_ns = self.tail_ns = self.tail_work_ns = self.queued = 0

    def fold(self, now_ns: int, solo_ns: int, contended_ns: int) -> None:
        """Adds a launch; see SEGMENT in records.def."""
        after_ns = now_ns - self.first_ns
        if after_ns > self.tail_ns:
            self.tail_ns = after_ns
            self.tail_work_ns = 0
        self.tail_ns += solo_ns
        self.tail_work_ns += solo_ns
        self.solo_ns += solo_ns
        self.contended_ns += contended_ns


class Pricing:
    """Prices the streams of one recording for one machine."""

    def __init__(self, recording: Recording, machine: Machine) -> None:
        setup = recording.setup
        self._recording = recording
        self._machine = machine
        self._dictionary: Dictionary = recording.dictionary
        self._recorded_prices = {key: price_of(one.cost) for key, one in recording.costs.items()}
        self._all_prices = {key: price_of(one.cost) for key, one in machine.costs.items()}
        same_host = (setup.host, setup.host_mode) == (machine.host, machine.host_mode)
        self._host = None if same_host else Host(machine.host, machine.host_mode)
        self._works: dict[int, tuple[int, int]] = {}
        self._streams: dict[tuple[int, float], Priced] = {}

    def priced(self, rank: int) -> Priced:
        """The rank's stream with new prices. Raises Damaged if the history does not fit the rows."""
        stream = self._recording.stream(rank)
        share = self._machine.slow.get(rank, 1.0)
        found = self._streams.get((id(stream), share))
        if found is None:
            try:
                found = _Folding(self, stream, self._prices(share), share).priced(self._recording.history(rank))
            except (KeyError, IndexError) as error:
                raise self._recording.damaged(f"the history of rank {rank} is not complete: {error}") from None
            self._streams[id(stream), share] = found
        return found

    def _prices(self, share: float) -> Mapping[int, Price]:
        if share == 1:
            return self._all_prices
        return {
            key: price._replace(solo_ns=round(price.solo_ns / share), contended_ns=round(price.contended_ns / share))
            for key, price in self._all_prices.items()
        }

    def work_ns(self, number: int) -> tuple[int, int]:
        """The ns of a piece of the host's work, as recorded and now."""
        found = self._works.get(number)
        if found is None:
            work = self._dictionary.works[number]
            then_ns = work.modelled_ns + work.rest_ns
            now_ns = then_ns if self._host is None else self._host.modelled_ns(work) + work.rest_ns
            found = self._works[number] = then_ns, now_ns
        return found

    @property
    def machine(self) -> Machine:
        return self._machine

    @property
    def recorded_prices(self) -> Mapping[int, Price]:
        return self._recorded_prices

    def launches(self, number: int) -> Sequence[records.HistoryLaunch]:
        return self._dictionary.lists[number]

    def damaged(self, what: str) -> Exception:
        return self._recording.damaged(what)


class _Folding:
    """Folds one stream of rows again."""

    def __init__(self, pricing: Pricing, stream: Stream, prices: Mapping[int, Price], share: float) -> None:
        self._pricing = pricing
        self._prices = prices
        self._stream = stream
        self._rows = stream.rows.copy()
        self._kinds = stream.rows["kind"].tolist()
        self._host_ns: list[int] = stream.rows["host_ns"].tolist()
        self._row = 0
        self._then_ns = self._now_ns = 0
        """The host's clock, as recorded and now."""
        self._then_last_ns = self._last_ns = 0
        """The instants of the latest record, as recorded and now."""
        self._copied_ns = 0
        """The additional time of copies that the host itself makes, which is in no clock yet."""
        self._clocks: dict[int, PowerClock] = {}
        self._device_of: dict[int, int] = {}
        # A slow GPU takes longer between kernels, too, as one that a fault slows does.
        achieved = pricing.machine.gpu.achieved
        self._gaps_ns = tuple(round(gap_ns / share) for gap_ns in (achieved.graph_gap_ns, achieved.launch_gap_ns))
        self._slowed_ns: dict[int, int] = {}
        self._told: list[dict[int, int]] = []
        self._host_work: list[int] = []

    def priced(self, history: NDArray[np.void]) -> Priced:
        columns = (history[name].tolist() for name in ("launches", "work", "kind"))
        if self._kinds and self._kinds[0] == HOST_TIME:  # before HELLO, which has no entry
            self._row = 1
            self._then_ns = self._then_last_ns = self._now_ns = self._last_ns = self._host_ns[0]
        for launches, work, kind in zip(*columns, strict=True):
            if kind == records.SEGMENT:
                self._segments(launches)
            else:
                self._advance(work)
                self._record(kind)
        rows = self._rows
        rows["host_ns"] = np.array(self._host_ns, np.uint64)
        counters = [
            (*fields[:_HOST_WORK], host_work_ns, *fields[_HOST_WORK + 1 :])
            for fields, host_work_ns in zip(self._stream.counters, self._host_work, strict=False)
        ]
        counters += self._stream.counters[len(counters) :]
        return Priced(Stream(rows, counters), self._told)

    def _advance(self, work: int) -> None:
        then_ns, now_ns = self._pricing.work_ns(work)
        self._then_ns += then_ns
        self._now_ns = max(self._now_ns + now_ns + self._copied_ns, self._last_ns)
        self._copied_ns = 0

    def _segments(self, number: int) -> None:
        """Folds a list of launches, whose segments end with it."""
        machine, then, now = self._pricing.machine, self._pricing.recorded_prices, self._prices
        gaps = self._gaps_ns
        begun: dict[int, tuple[int, _Segment]] = {}
        for launch in self._pricing.launches(number):
            key, stream, what = launch.key, launch.stream, launch.what
            self._advance(launch.work)
            if what == HistoryKind.HOST_COPY:
                self._copied_ns = now[key].solo_ns - then[key].solo_ns
                continue
            known = begun.get(stream)
            if known is None:
                known = begun[stream] = self._then_ns, _Segment(self._now_ns)
            segment = known[1]
            if not key:
                function_ns = machine.host.host_function_ns
                segment.fold(self._now_ns, function_ns, function_ns)
                continue
            price, gap_ns = now[key], gaps[what]
            solo_ns = price.solo_ns
            more = self._clock(stream).launch(stream, solo_ns, price.power, price.clocked, self._now_ns, gap_ns) - 1
            slowed_ns = int(float(solo_ns) * more)
            self._slowed_ns[key] = self._slowed_ns.get(key, 0) + slowed_ns
            contended_ns = price.contended_ns + int(float(price.contended_ns) * more)
            segment.fold(self._now_ns, solo_ns + slowed_ns + gap_ns, contended_ns + gap_ns)
        for stream, (then_first_ns, segment) in begun.items():
            self._end(stream, then_first_ns, segment)

    def _end(self, stream: int, then_first_ns: int, segment: _Segment) -> None:
        row = self._take(records.SEGMENT, then_first_ns, segment.first_ns)
        if self._rows["stream"][row] != stream:
            raise self._pricing.damaged("its history does not fit its rows")
        contended_ns = segment.contended_ns if self._rows["values"][row, 2] else 0  # 0: copies, on every GPU
        self._rows["values"][row, 1:5] = segment.solo_ns, contended_ns, segment.tail_ns, segment.tail_work_ns

    def _take(self, kind: int, then_ns: int, now_ns: int) -> int:
        """Takes the next row, that of a record with these instants."""
        row = self._row
        if self._kinds[row] != kind or self._host_ns[row] != then_ns - self._then_last_ns:
            raise self._pricing.damaged(f"its history does not fit its rows ({records.NAMES[kind]}, row {row})")
        self._host_ns[row] = max(now_ns - self._last_ns, 0)
        self._then_last_ns, self._last_ns = then_ns, max(now_ns, self._last_ns)
        self._row = row + 1
        return row

    def _clock(self, stream: int) -> PowerClock:
        device = self._device_of.get(stream, 0)
        found = self._clocks.get(device)
        if found is None:
            found = self._clocks[device] = PowerClock(self._pricing.machine.gpu)
        return found

    def _record(self, kind: int) -> None:
        if kind == records.LAUNCH_COUNTS:
            self._told.append(self._slowed_ns)
            self._slowed_ns = {}
        if kind not in WITH_ROW:
            if self._then_ns != self._then_last_ns:
                self._take(HOST_TIME, self._then_ns, self._now_ns)
            elif self._now_ns != self._last_ns:
                self._now_ns = self._last_ns  # work that took no time then: there is no row for it
            return
        row = self._take(kind, self._then_ns, self._now_ns)
        if kind == records.CONNECT:
            for _ in range(int(self._rows["values"][row, FURTHER_STEPS])):
                self._take(kind, self._then_ns, self._now_ns)
        elif kind == records.COUNTERS:
            self._host_work.append(self._now_ns)
        elif kind == records.STREAM_CREATE:
            device = int(self._rows["values"][row, 0]) % DeviceKind.APART
            self._device_of[int(self._rows["stream"][row])] = device
        elif kind == records.HOST_WAIT:
            scope, stream = self._rows["values"][row, 0], int(self._rows["stream"][row])
            if scope == ScopeKind.STREAM:
                self._clock(stream).host_waited(stream, self._now_ns)
            elif scope == ScopeKind.DEVICE and stream in self._clocks:
                self._clocks[stream].host_waited(0, self._now_ns)
