"""Measures how fast virtual time is alone: ``python -m tests.bench.virtual_time [ranks ...]``.

Scripted ranks train: each step has a hundred pairs of segments and collectives on two streams with events between, as a
sharded model's layers have, some 400 records a step, which arrive in small portions, any rank's next. Measured are
decoding, taking in and executing, for each policy of going ahead. The network is a stand-in with fixed durations unless
``--network`` is given, which takes netsim and a cluster of 8 GPUs a server.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random

import netsim
from emu.contract import records
from emu.contract.records import NcclKind, ScopeKind
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.virtual_time import POLICIES, Collective, NetworkModel, Revised, SpeculationPolicy, Stop, Timeline
from profiles import CostModel, load_cluster, load_gpu

LAYERS = 98
RANKS = (64, 256, 1024)
BUDGET = 2_000
"""The events that virtual time executes at once, as in the coordinator."""
READ_RECORDS = 100
"""Records that come in one read of a rank's socket."""
RUN_RECORDS = 1_000
"""Records after which virtual time runs."""
LOOK_RECORDS = 50_000
"""Records between two updates of the status line: what a busy coordinator takes in within half a second."""


class FixedNetwork:
    """A network in which every collective takes a nanosecond for a hundred bytes."""

    def __init__(self) -> None:
        self._due: list[tuple[int, Collective]] = []

    def begin(self, collective: Collective, at_ns: int, beside_compute: bool) -> Sequence[Revised]:
        heappush(self._due, (at_ns + max(collective.nbytes // 100, 1), collective))
        return ()

    def retract(self, collective: Collective) -> Sequence[Revised]:
        self._due = [(at_ns, other) for at_ns, other in self._due if other is not collective]
        heapify(self._due)
        return ()

    def next_ns(self) -> int | None:
        return self._due[0][0] if self._due else None

    def complete(self, at_ns: int) -> list[Collective]:
        done = []
        while self._due and self._due[0][0] <= at_ns:
            done.append(heappop(self._due)[1])
        return done

    def commit(self, at_ns: int) -> None:
        return

    def shortest_ns(self, collective: Collective) -> int:
        return max(collective.nbytes // 100, 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """All times are processor time of one core."""

    policy: str
    ranks: int
    records: int
    decode_s: float
    intake_s: float
    run_s: float
    virtual_ns: int
    events: int
    taken_back: int
    rollbacks: int
    kept: int
    peak_mb: float

    def line(self) -> str:
        total_s = self.decode_s + self.intake_s + self.run_s
        parts = f"decode {self.decode_s:.2f} s, intake {self.intake_s:.2f} s, execute {self.run_s:.2f} s"
        return (
            f"{self.ranks:5d} ranks, {self.policy:<9}: {self.records / total_s:9,.0f} records/s ({parts}), "
            f"{self.rollbacks:,} rollbacks, {self.taken_back / self.events:.1%} of {self.events:,} events redone, "
            f"at most {self.kept:,} checkpoints, {self.peak_mb:.0f} MB, {self.virtual_ns / 1e6:.1f} ms simulated"
        )


def start_of(rank: int, world_size: int) -> bytes:
    unique = b"bench".ljust(128, b"\0")
    return b"".join(
        (
            records.Hello.encode(0, records.VERSION, rank, world_size, rank // 8, rank % 8, 1, 0, 0),
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
        parts.append(records.Segment.encode(2_000, 1, 9, 250_000, 360_000, 250_000, 0, 0))
    parts.append(records.HostWait.encode(1_000, ScopeKind.DEVICE, rank % 8, 0))
    return b"".join(parts)


def portions_of(world_size: int, step: int, comm: int, chance: Random) -> Iterator[tuple[int, bytes]]:
    """Yields (rank, encoded records): a step of all ranks in the order of arrival, a socket's read at a time.

    Ranks are at different places of the step: the next to say something is any of those that have something to say.
    """
    left = [(rank, memoryview(step_of(rank, step, comm))) for rank in range(world_size)]
    while left:
        place = chance.randrange(len(left))
        rank, encoded = left[place]
        cut = 0
        for _ in range(READ_RECORDS):
            if cut < len(encoded):
                cut += int.from_bytes(encoded[cut + 4 : cut + 8], "little")
        yield rank, bytes(encoded[:cut])
        if cut < len(encoded):
            left[place] = rank, encoded[cut:]
        else:
            left[place] = left[-1]
            left.pop()


def make_network(world_size: int, network: bool) -> NetworkModel:
    if not network:
        return FixedNetwork()
    cluster = load_cluster("dgx-h200")
    servers = [8] * (world_size // 8)
    topology = netsim.build(cluster.network, servers=len(servers))
    return NetsimNetworkModel(topology, netsim.collectives.load_params(cluster.nccl), servers)


def measure(world_size: int, steps: int, network: bool, policy_name: str) -> Measured:
    """Feeds the ranks' records as they arrive, and runs virtual time and looks ahead after so many of them."""
    count = 0
    decode_s = intake_s = run_s = 0.0
    chance = Random(1)
    gc.set_threshold(200_000, 100, 100)  # as the coordinator does
    with tempfile.TemporaryDirectory() as folder:
        table = CostTable(Path(folder) / "costs", 1024)
        fact_builder = FactBuilder(world_size, Costs(CostModel(load_gpu("h200")), table))
        timeline = Timeline(world_size, make_network(world_size, network), 1024)
        policy = SpeculationPolicy(timeline, policy_name)
        for rank in range(world_size):
            arrived, _ = records.decode_up(start_of(rank, world_size))
            timeline.feed(rank, fact_builder.take(rank, arrived))
        comm = next(iter(fact_builder.communicators.by_id))
        run_at = look_at = 0
        for step in range(steps):
            for rank, encoded in portions_of(world_size, step, comm, chance):
                started = time.process_time()
                arrived, _ = records.decode_up(encoded)
                decoded = time.process_time()
                timeline.feed(rank, fact_builder.take(rank, arrived))
                taken = time.process_time()
                count += len(arrived)
                if count >= run_at:
                    run_at = count + RUN_RECORDS
                    while policy.run(BUDGET) is Stop.BUDGET:
                        pass
                    if count >= look_at:
                        look_at = count + LOOK_RECORDS
                        policy.look_ahead()
                        policy.look_ahead()  # time stands still: the case in which a look costs something
                decode_s += decoded - started
                intake_s += taken - decoded
                run_s += time.process_time() - taken
        started = time.process_time()
        while policy.run(BUDGET) is Stop.BUDGET:
            pass
        run_s += time.process_time() - started
    history, peak = timeline.history, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(
        *(policy_name, world_size, count, decode_s, intake_s, run_s, timeline.now_ns, timeline.events),
        *(history.events, history.rollbacks, history.most_kept, peak),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for every size and policy, each measured in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--network", action="store_true", help="simulate the network too")
    parser.add_argument("--policy", choices=POLICIES, help="one alone (default: all)")
    given = parser.parse_args(arguments)
    spawn = multiprocessing.get_context("spawn")
    for world_size in given.ranks:
        for name in [given.policy] if given.policy else POLICIES:
            with ProcessPoolExecutor(1, mp_context=spawn) as process:
                print(process.submit(measure, world_size, given.steps, given.network, name).result().line(), flush=True)


if __name__ == "__main__":
    main()
