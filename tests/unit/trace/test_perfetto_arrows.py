"""Arrows of Perfetto's form: which slices they join, from the earliest on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.contract.records import NcclKind
from phantora_async.trace.spans import Call, Kernel, Moved, Nccl, Op, Span
from phantora_async.virtual_time import Collective, Comm

pytest.importorskip("perfetto")


def arrows(path: Path, spans: list[tuple[int, Span]], traced: set[int]) -> list[list[tuple[str, int]]]:
    """Returns for each arrow (process or stream, instant) of the slices that it joins. An arrow of one slice only is
    none.
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    from phantora_async.trace.perfetto import PerfettoFile

    priced = SimpleNamespace(signature="gemm", cost=SimpleNamespace(bound="compute"))
    plan = SimpleNamespace(algorithm="ring", protocol="simple", channels=1, use=(), links=())
    context: Any = SimpleNamespace(
        costs=SimpleNamespace(priced=lambda key: priced),
        plan=lambda collective: plan,
        pid=lambda rank: 100,
        links=(),
        traced=traced,
    )
    spec: Any = SimpleNamespace(server_of=[0, 0, 0])
    file = PerfettoFile(path, spec, context)
    for rank, span in spans:
        file.add(rank, span)
    file.close()

    trace = pb.Trace.FromString(path.read_bytes())
    tracks: dict[int, str] = {}
    joined: dict[int, list[tuple[int, str]]] = {}
    for packet in trace.packet:
        described, event = packet.track_descriptor, packet.track_event
        if described.uuid:
            above = tracks.get(described.parent_uuid, "")
            name = described.process.process_name or described.thread.thread_name or described.name
            tracks[described.uuid] = f"{above}: {name}" if above else name.partition(" (")[0]
        for flow in event.flow_ids:
            assert event.type == pb.TrackEvent.TYPE_SLICE_BEGIN
            joined.setdefault(flow, []).append((packet.timestamp, tracks[event.track_uuid]))
    return sorted([(track, at_ns) for at_ns, track in sorted(one)] for one in joined.values() if len(one) > 1)


def kernel(start_ns: int, correlation: int) -> Kernel:
    return Kernel(0, 7, start_ns, start_ns + 5, 1, correlation, 0)


def test_from_an_api_call_to_what_it_launched(tmp_path: Path) -> None:
    """Also if the call is told after its kernel, within an op; the same number on another rank is another call."""
    spans: list[tuple[int, Span]] = [
        (0, kernel(30, 1)),
        (0, Call(100, 10, 20, "cudaLaunchKernel", 1, 1)),
        (0, Op(100, 5, 25, "aten::mm", "[[1]]", 1, True)),
        (1, Call(100, 11, 20, "cudaLaunchKernel", 1, 0)),
        (1, kernel(31, 1)),
        (1, Call(100, 40, 42, "cudaMalloc", 2, 0)),
        (1, kernel(50, 0)),
    ]
    assert arrows(tmp_path / "t.pftrace", spans, {0, 1}) == [
        [("rank 0: main", 10), ("rank 0: GPU 0 stream 7", 30)],
        [("rank 1: main", 11), ("rank 1: GPU 0 stream 7", 31)],
    ]


def test_from_a_graph_s_launch_to_all_its_kernels(tmp_path: Path) -> None:
    spans: list[tuple[int, Span]] = [
        (0, Call(100, 10, 20, "cudaGraphLaunch", 3, 0)),
        (0, kernel(30, 3)),
        (0, kernel(40, 3)),
    ]
    stream = "rank 0: GPU 0 stream 7"
    assert arrows(tmp_path / "t.pftrace", spans, {0}) == [[("rank 0: main", 10), (stream, 30), (stream, 40)]]


def nccl(collective: Collective, start_ns: int) -> Nccl:
    return Nccl(0, 9, start_ns, 200, (Moved(collective, 200, 200, 1),), 0, 0)


def test_between_the_traced_members_of_a_collective(tmp_path: Path) -> None:
    comm = Comm(5, (0, 1, 2), (0, 1, 2), {0: 0, 1: 1, 2: 2}, "world")
    first, second = (Collective(comm, seq, NcclKind.ALL_REDUCE, 7, 0, 8, 0, (0, 1, 2)) for seq in (1, 2))
    spans: list[tuple[int, Span]] = [
        (0, nccl(first, 100)),
        (1, nccl(first, 60)),
        (1, nccl(second, 130)),
        (0, nccl(second, 120)),
    ]
    assert arrows(tmp_path / "t.pftrace", spans, {0, 1}) == [
        [("rank 0: GPU 0 stream 9", 120), ("rank 1: GPU 0 stream 9", 130)],
        [("rank 1: GPU 0 stream 9", 60), ("rank 0: GPU 0 stream 9", 100)],
    ]
    assert arrows(tmp_path / "alone.pftrace", spans[:1], {0}) == []
