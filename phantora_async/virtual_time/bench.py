"""How fast virtual time is alone: ``python -m phantora_async.virtual_time.bench [ranks ...]``.

Scripted ranks train: each step has a hundred pairs of segments and collectives on two streams with events between, as a
sharded model's layers have, some 400 records a step. Measured are decoding, taking in and executing. The network is a
stand-in with fixed durations unless ``--network`` is given, which takes netsim and a cluster of 8 GPUs a server.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path

import netsim
from emu import records
from emu.records import NcclKind, ScopeKind
from phantora_async.costs import Costs, CostTable
from phantora_async.fabric import NetsimFabric
from phantora_async.intake import Intake
from phantora_async.virtual_time import Fabric, Meeting, Revised, Stop, Timeline
from profiles import CostModel, load_cluster, load_gpu

LAYERS = 98
RANKS = (64, 256, 1024)


class FixedFabric:
    """Every meeting takes a nanosecond for a hundred bytes."""

    def __init__(self) -> None:
        self._due: list[tuple[int, Meeting]] = []

    def begin(self, key: Meeting, meeting: Meeting, at_ns: int) -> Revised:
        heappush(self._due, (at_ns + max(meeting.nbytes // 100, 1), key))
        return ()

    def retract(self, key: Meeting) -> Revised:
        self._due = [(at_ns, other) for at_ns, other in self._due if other is not key]
        heapify(self._due)
        return ()

    def next_ns(self) -> int | None:
        return self._due[0][0] if self._due else None

    def complete(self, at_ns: int) -> list[Meeting]:
        done = []
        while self._due and self._due[0][0] <= at_ns:
            done.append(heappop(self._due)[1])
        return done

    def commit(self, at_ns: int) -> None:
        return


@dataclass(frozen=True, slots=True)
class Measured:
    ranks: int
    records: int
    decode_s: float
    intake_s: float
    run_s: float
    virtual_ns: int

    def line(self) -> str:
        total_s = self.decode_s + self.intake_s + self.run_s
        parts = f"decode {self.decode_s:.2f} s, intake {self.intake_s:.2f} s, execute {self.run_s:.2f} s"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return (
            f"{self.ranks:5d} ranks: {self.records / total_s:9,.0f} records/s ({parts}), "
            f"{self.virtual_ns / 1e6:.1f} ms simulated, {peak:.0f} MB"
        )


def start_of(rank: int, world_size: int) -> bytes:
    unique = b"bench".ljust(128, b"\0")
    return b"".join(
        (
            records.Hello.encode(0, records.VERSION, rank, world_size, rank // 8, rank % 8, 1),
            records.StreamCreate.encode(0, 1, rank % 8, 0, 0),
            records.StreamCreate.encode(0, 2, rank % 8, 0, 0),
            records.CommInit.encode(0, 1, world_size, rank, rank % 8, 0, payload=unique),
        )
    )


def step_of(rank: int, step: int, comm: int) -> bytes:
    """One step's records; every rank's host is a little different."""
    parts = []
    for layer in range(LAYERS):
        number = step * LAYERS + layer
        op = records.NcclOp.encode(comm, number, NcclKind.ALL_GATHER, 9, 0, 0, 10_000_000, 0, 0, 1.0)
        parts.append(records.NcclLaunch.encode(8_000 + rank, 2, 1, payload=op))
        drop = number - 4 if number > 4 else 0
        parts.append(records.EventRecord.encode(500, 2, 0, number + 1, drop))
        parts.append(records.StreamWait.encode(500, 1, 0, number + 1))
        parts.append(records.Segment.encode(2_000, 1, 9, 250_000, 360_000, 250_000))
    parts.append(records.HostWait.encode(1_000, ScopeKind.DEVICE, rank % 8, 0))
    return b"".join(parts)


def measure(world_size: int, steps: int, fabric: Fabric) -> Measured:
    """Feeds the ranks a step at a time, each rank's in one piece, and runs virtual time in turns."""
    count = 0
    decode_s = intake_s = run_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        table = CostTable(Path(folder) / "costs", 1024)
        intake = Intake(world_size, Costs(CostModel(load_gpu("h200")), table))
        timeline = Timeline(world_size, fabric, 1024)
        for rank in range(world_size):
            arrived, _ = records.decode_up(start_of(rank, world_size))
            timeline.feed(rank, intake.take(rank, arrived))
        comm = next(iter(intake.communicators.by_id))
        for step in range(steps):
            for rank in range(world_size):
                encoded = step_of(rank, step, comm)
                started = time.perf_counter()
                arrived, _ = records.decode_up(encoded)
                decoded = time.perf_counter()
                timeline.feed(rank, intake.take(rank, arrived))
                decode_s += decoded - started
                intake_s += time.perf_counter() - decoded
                count += len(arrived)
            started = time.perf_counter()
            while timeline.run(2_000) is Stop.BUDGET:
                pass
            run_s += time.perf_counter() - started
        table.close()
    return Measured(world_size, count, decode_s, intake_s, run_s, timeline.now_ns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for every size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--network", action="store_true", help="simulate the network too")
    given = parser.parse_args(arguments)
    cluster = load_cluster("dgx-h200")
    for world_size in given.ranks:
        fabric: Fabric = FixedFabric()
        if given.network:
            servers = [8] * (world_size // 8)
            topology = netsim.build(cluster.network, servers=len(servers))
            fabric = NetsimFabric(topology, netsim.collectives.load_params(cluster.nccl), servers)
        print(measure(world_size, given.steps, fabric).line(), flush=True)


if __name__ == "__main__":
    main()
