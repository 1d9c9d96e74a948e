"""Writes Perfetto's own format: one file for all ranks, with the network's links.

A file is a sequence of packets, each complete in itself, so what has been written can be read whatever ends the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from phantora_async.run_spec import RunSpec
from phantora_async.trace import names
from phantora_async.trace.chrome import describe_collective
from phantora_async.trace.link_use import CollectiveKey, LinkUse, key_of
from phantora_async.trace.spans import Call, Kernel, MemoryUse, Nccl, Op, Span, Step, StreamWait, Sync
from phantora_async.trace.writing import Context, StreamedFile
from phantora_async.virtual_time import Collective
from profiles import KERNEL, activity

_SEQUENCE = 1
_CLEARED, _NEEDS_STATE = 1, 2
"""The SequenceFlags: the names that follow are new; names sent before are needed."""
_MOST_HELD = 50_000
"""The most spans of a thread that wait for the outermost one around them."""
_MOST_THREADS = 10_000
"""The bound of the number of threads of a rank: threads of all ranks need different numbers."""
_OF_COLLECTIVE = 1 << 63
"""The bit that marks the number of an arrow between ranks."""


class PerfettoFile:
    """Implements ``Writer``. Raises OSError if the file cannot be written."""

    def __init__(self, path: Path, spec: RunSpec, context: Context) -> None:
        self._spec = spec
        self._context = context
        self._file = StreamedFile(path)
        self._tracks: dict[Any, int] = {}
        self._names: dict[str, int] = {}
        self._held: dict[int, list[tuple[int, int, str, str, dict[str, Any], tuple[int, ...]]]] = {}
        """The spans within one that has not ended, by track of a thread."""
        self._met: dict[CollectiveKey, tuple[int, set[int]]] = {}
        """The arrow of a collective that traced ranks will still take part in, and these ranks."""
        self._collectives = 0
        self._link_use = LinkUse(context, self._count_link)
        first = pb.TracePacket()
        first.trusted_packet_sequence_id = _SEQUENCE
        first.sequence_flags = _CLEARED
        first.trace_packet_defaults.timestamp_clock_id = 6  # BUILTIN_CLOCK_BOOTTIME
        self._write(first)

    def close(self) -> None:
        try:
            for track in self._held:
                self._release(track)
            self._link_use.close()
        finally:
            self._file.close()

    # ---- spans -----------------------------------------------------------------------------------------------------

    def add(self, rank: int, span: Span) -> None:
        match span:
            case Kernel():
                self._kernel(rank, span)
            case Nccl():
                self._nccl(rank, span)
            case Call():
                arguments = {"correlation": span.correlation, "External id": span.external}
                category = "cuda_driver" if names.is_driver(span.name) else "cuda_runtime"
                arrows = _launch_arrow(rank, span.correlation)
                self._on_thread(rank, span.thread, span, span.name, category, arguments, not span.external, arrows)
            case Op():
                around: dict[str, Any] = {"External id": span.external, "Input Dims": span.sizes}
                category = "cpu_op" if span.sizes else "user_annotation"
                self._on_thread(rank, span.thread, span, span.name, category, around, span.outermost)
            case Step():
                track = self._track(("steps", rank), self._process(rank), "steps")
                self._slice(track, span.start_ns, span.end_ns, f"ProfilerStep#{span.number}", "user_annotation", {})
            case Sync():
                pass  # StreamWait shows the wait itself, and a call how long the host waited
            case StreamWait():
                track = self._stream(rank, span.device, span.stream)
                name = f"waits for stream {span.awaited}"
                self._slice(track, span.start_ns, span.end_ns, name, "stream_wait", {})
            case MemoryUse():
                for what, nbytes in (("allocated", span.allocated), ("reserved", span.reserved)):
                    label = f"GPU {span.device} memory {what}"
                    track = self._counter((what, rank, span.device), self._process(rank), label, "bytes")
                    self._count(track, span.at_ns, nbytes)

    def _kernel(self, rank: int, span: Kernel) -> None:
        priced = self._context.costs.priced(span.key)
        what = activity(priced.signature)
        arguments: dict[str, Any] = {"correlation": span.correlation, "External id": span.external}
        if what.grid is not None:
            arguments |= {"grid": str(what.grid), "block": str(what.block), "shared memory": what.shared_nbytes}
        if what.kind == KERNEL:
            arguments |= {"signature": priced.signature, "bound": priced.cost.bound}
        else:
            arguments["bytes"] = what.nbytes
        track = self._stream(rank, span.device, span.stream)
        arrows = _launch_arrow(rank, span.correlation)
        self._slice(track, span.start_ns, span.end_ns, what.name, what.kind, arguments, arrows)

    def _nccl(self, rank: int, span: Nccl) -> None:
        arguments: dict[str, Any] = {"correlation": span.correlation, "External id": span.external}
        name = "ncclDevKernel_Generic"
        if span.moved:
            plan = self._context.plan(span.moved[0].collective)
            name = names.kernel_name(span.moved[0].collective, plan)
            arguments |= describe_collective(rank, span, plan)
        arrows = _launch_arrow(rank, span.correlation)
        for moved in span.moved:
            arrows += self._collective_arrow(rank, moved.collective)
        track = self._stream(rank, span.device, span.stream)
        self._slice(track, span.start_ns, span.end_ns, name, KERNEL, arguments, arrows)
        for moved in span.moved:
            self._link_use.add(moved)

    def _collective_arrow(self, rank: int, collective: Collective) -> tuple[int, ...]:
        """The arrow that joins the members' kernels in the order of their starts: the last one is the one the others
        waited for.
        """
        key = key_of(collective)
        known = self._met.pop(key, None)
        if known is None:
            ranks = set(collective.callers) & self._context.traced
            if len(ranks) < 2:
                return ()
            self._collectives += 1
            known = _OF_COLLECTIVE | self._collectives, ranks
        arrow, to_come = known
        to_come.discard(rank)
        if to_come:
            self._met[key] = known
        return (arrow,)

    # ---- threads: slices nest, so they are written from the outermost on ---------------------------------------------

    def _on_thread(
        self,
        rank: int,
        thread: int,
        span: Call | Op,
        name: str,
        category: str,
        arguments: Any,
        outermost: bool,
        arrows: tuple[int, ...] = (),
    ) -> None:
        track = self._thread(rank, thread)
        held = self._held.setdefault(track, [])
        held.append((span.start_ns, -span.end_ns, name, category, arguments, arrows))
        if outermost or len(held) >= _MOST_HELD:
            self._release(track)

    def _release(self, track: int) -> None:
        held = self._held[track]
        held.sort(key=lambda one: one[:2])
        open_until: list[int] = []
        for start_ns, minus_end_ns, name, category, arguments, arrows in held:
            while open_until and open_until[-1] <= start_ns:
                self._end(track, open_until.pop())
            self._begin(track, start_ns, name, category, arguments, arrows)
            open_until.append(-minus_end_ns)
        while open_until:
            self._end(track, open_until.pop())
        held.clear()

    # ---- packets ---------------------------------------------------------------------------------------------------

    def _slice(
        self,
        track: int,
        start_ns: int,
        end_ns: int,
        name: str,
        category: str,
        arguments: dict[str, Any],
        arrows: tuple[int, ...] = (),
    ) -> None:
        self._begin(track, start_ns, name, category, arguments, arrows)
        self._end(track, end_ns)

    def _begin(
        self, track: int, at_ns: int, name: str, category: str, arguments: dict[str, Any], arrows: tuple[int, ...] = ()
    ) -> None:
        packet = self._packet(at_ns)
        event = packet.track_event
        event.type = pb.TrackEvent.TYPE_SLICE_BEGIN
        event.track_uuid = track
        event.categories.append(category)
        event.flow_ids.extend(arrows)
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) + 1
            packet.interned_data.event_names.add(iid=number, name=name)
        event.name_iid = number
        for key, value in arguments.items():
            annotation = event.debug_annotations.add(name=key)
            if isinstance(value, int):
                annotation.int_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            else:
                annotation.string_value = str(value)
        self._write(packet)

    def _end(self, track: int, at_ns: int) -> None:
        packet = self._packet(at_ns)
        packet.track_event.type = pb.TrackEvent.TYPE_SLICE_END
        packet.track_event.track_uuid = track
        self._write(packet)

    def _count(self, track: int, at_ns: int, value: float) -> None:
        packet = self._packet(at_ns)
        packet.track_event.type = pb.TrackEvent.TYPE_COUNTER
        packet.track_event.track_uuid = track
        if isinstance(value, int):
            packet.track_event.counter_value = value
        else:
            packet.track_event.double_counter_value = value
        self._write(packet)

    def _count_link(self, link: int, at_ns: int, gbps: float) -> None:
        parent = self._track("network", 0, "network")
        track = self._counter(("link", link), parent, self._context.links[link], "Gbit/s")
        self._count(track, at_ns, gbps)

    def _packet(self, at_ns: int) -> Any:
        packet = pb.TracePacket(timestamp=at_ns, trusted_packet_sequence_id=_SEQUENCE)
        packet.sequence_flags = _NEEDS_STATE
        return packet

    def _write(self, packet: Any) -> None:
        self._file.write(pb.Trace(packet=[packet]).SerializeToString())

    # ---- tracks ----------------------------------------------------------------------------------------------------

    def _process(self, rank: int) -> int:
        known = self._tracks.get(rank)
        if known is not None:
            return known
        descriptor = self._descriptor(rank)
        descriptor.process.pid = rank + 1
        descriptor.process.process_name = f"rank {rank} (server {self._spec.server_of[rank]})"
        return self._describe(descriptor)

    def _thread(self, rank: int, thread: int) -> int:
        key = "thread", rank, thread
        known = self._tracks.get(key)
        if known is not None:
            return known
        process = self._process(rank)
        descriptor = self._descriptor(key)
        descriptor.parent_uuid = process
        place = thread - self._context.pid(rank)
        descriptor.thread.pid = rank + 1
        descriptor.thread.tid = (rank + 1) * _MOST_THREADS + place
        descriptor.thread.thread_name = "main" if not place else f"thread {place}"
        return self._describe(descriptor)

    def _stream(self, rank: int, device: int, stream: int) -> int:
        return self._track((rank, device, stream), self._process(rank), f"GPU {device} stream {stream}")

    def _track(self, key: Any, parent: int, name: str) -> int:
        known = self._tracks.get(key)
        if known is not None:
            return known
        descriptor = self._descriptor(key)
        if parent:
            descriptor.parent_uuid = parent
        descriptor.name = name
        return self._describe(descriptor)

    def _counter(self, key: Any, parent: int, name: str, unit: str) -> int:
        known = self._tracks.get(key)
        if known is not None:
            return known
        descriptor = self._descriptor(key)
        descriptor.parent_uuid = parent
        descriptor.name = name
        descriptor.counter.unit_name = unit
        return self._describe(descriptor)

    def _descriptor(self, key: Any) -> Any:
        self._tracks[key] = len(self._tracks) + 1
        return pb.TrackDescriptor(uuid=self._tracks[key])

    def _describe(self, descriptor: Any) -> int:
        self._write(pb.TracePacket(trusted_packet_sequence_id=_SEQUENCE, track_descriptor=descriptor))
        return int(descriptor.uuid)


def _launch_arrow(rank: int, correlation: int) -> tuple[int, ...]:
    """The arrow from an API call to what it launched."""
    return ((rank + 1) << 32 | correlation,) if correlation else ()
