"""All ranks start again after one has failed: exact instants."""

from __future__ import annotations

from emu.contract import records
from phantora_async.virtual_time import Stop, Timeline, events

from .scripted import FixedNetwork, Script, new_fact_builder, number, world_comm

TO_JOIN = 5
"""Records of a script up to its communicator."""


def pair(unique: bytes) -> list[Script]:
    """Returns two ranks of one communicator, whose ncclUniqueId no other has."""
    return [Script(rank, 2, world_comm(2, unique)).join_world(unique=unique) for rank in range(2)]


class Job:
    """Ranks whose processes end, and start again."""

    def __init__(self, world_size: int, ahead: bool = False) -> None:
        self.network = FixedNetwork()
        self.timeline = Timeline(world_size, self.network, 1024)
        self.fact_builder = new_fact_builder(world_size)
        self.ahead = ahead

    def feed(self, *scripts: Script) -> None:
        for part in (slice(TO_JOIN), slice(TO_JOIN, None)):
            for script in scripts:
                arrived, _ = records.decode_up(b"".join(script.records[part]))
                self.timeline.feed(script.rank, self.fact_builder.take(script.rank, arrived))

    def run(self) -> Stop:
        while (stop := self.timeline.run(1000, self.ahead)) is Stop.BUDGET:
            pass
        return stop

    def restart(self, first: int) -> int:
        ranks = range(len(self.timeline.hosts))
        at_ns = self.timeline.restart(first, ranks)
        self.fact_builder.restart(ranks, self.timeline.hosts[first].steps)
        return at_ns

    def clocks(self) -> dict[int, list[int]]:
        told: dict[int, list[int]] = {}
        for rank, answer in self.timeline.take_answers():
            told.setdefault(rank, []).append(number(answer))
        return told


def failing(ahead: bool) -> Job:
    """Rank 1 fails at 1000 ns and its launcher notices at 1100; rank 0 has sent a collective that rank 1 has not."""
    job = Job(2, ahead)
    a, b = pair(b"first")
    a.segment(100).step().all_reduce(500, after=10).step().segment(50, stream=3, after=5000).sync(stream=2)
    b.segment(100).step().advance(1000).advance(100)
    job.feed(a, b)
    job.run()
    return job


def test_ranks_start_again_when_the_failure_is_noticed() -> None:
    for ahead in (False, True):
        job = failing(ahead)
        assert job.restart(1) == 1100
        assert [host.clock_ns for host in job.timeline.hosts] == [1100, 1100]
        assert [host.steps for host in job.timeline.hosts] == [1, 1], "the second step has not ended"
        a, b = pair(b"again")
        a.all_reduce(500, after=7).sync(stream=2).clock()
        b.all_reduce(500, after=9).sync(stream=2).clock()
        job.feed(a.bye(), b.bye())
        assert job.run() is Stop.DRAINED
        assert job.timeline.all_finished()
        assert job.clocks() == {0: [1609], 1: [1609]}


class Heard:
    """Counts the ends of steps that a listener is told of."""

    def __init__(self) -> None:
        self.steps = 0

    def on(self, rank: int, event: events.Event) -> None:
        self.steps += isinstance(event, events.StepDone)


def test_a_step_is_told_once_though_its_instant_is_executed_again() -> None:
    """Rank 0 is answered at 100 ns while the simulation is ahead of rank 1; the restart takes that instant back."""
    job, heard = Job(2, ahead=True), Heard()
    job.timeline.listen(heard, (0, 1))
    a, b = Script(0, 2).step(after=100).clock(), Script(1, 2).advance(50)
    job.feed(a, b)
    job.run()
    b.records.clear()
    job.timeline.feed(1, job.fact_builder.take(1, records.decode_up(b.advance(50).records[0])[0]))
    job.run()
    assert job.clocks() == {0: [100]}
    assert job.restart(1) == 100
    assert heard.steps == 1
    assert len(job.timeline.snapshot().step_instants) == 1


def test_ranks_start_again_no_earlier_than_a_watchdog_ended_one() -> None:
    job = failing(False)
    assert job.timeline.restart(1, (0, 1), 600_000) == 600_000
    assert [host.clock_ns for host in job.timeline.hosts] == [600_000, 600_000]


def test_what_comes_later_than_the_restart_is_dropped() -> None:
    job = failing(False)
    job.restart(1)
    segments = [rank.shares.compute_ns for rank in job.timeline.snapshot().ranks]
    assert segments == [100, 100], "rank 0's last segment would start at 5010 ns"


def test_data_in_the_network_still_arrives() -> None:
    job = Job(2)
    a, b = pair(b"first")
    job.feed(a.all_reduce(500).advance(10_000), b.all_reduce(500).advance(100))
    job.run()
    assert job.restart(1) == 100
    a, b = pair(b"again")
    job.feed(a.all_reduce(50).sync(stream=2).clock().bye(), b.all_reduce(50).sync(stream=2).clock().bye())
    assert job.run() is Stop.DRAINED
    assert job.clocks() == {0: [150], 1: [150]}
    assert [at_ns for at_ns, _ in job.network.begun] == [0, 100]


def test_a_run_does_not_last_until_the_data_of_ended_processes_has_arrived() -> None:
    """It is in the network from 0 to 500 ns, and nobody waits for it any more."""
    for ahead in (False, True):
        job = Job(2, ahead)
        a, b = pair(b"first")
        job.feed(a.all_reduce(500).advance(10_000), b.all_reduce(500).advance(100))
        job.run()
        assert job.restart(1) == 100
        a, b = pair(b"again")
        job.feed(a.bye(after=7), b.bye(after=9))
        assert job.run() is Stop.DRAINED
        assert (job.timeline.now_ns, job.network.next_ns()) == (109, None)
        assert [rank.shares.idle_ns for rank in job.timeline.snapshot().ranks] == [2, 0], "after their ends"


def test_a_rank_that_waits_for_one_that_has_ended() -> None:
    """Its failure cannot be reached in virtual time: the ranks start where everything stopped."""
    job = Job(2)
    a, b = pair(b"first")
    job.feed(a.advance(70), b.all_reduce(500, after=30).sync(stream=2).advance(1000))
    job.run()
    assert job.restart(1) == 70


def test_a_second_restart_counts_on() -> None:
    job = failing(False)
    job.restart(1)
    a, b = pair(b"again")
    job.feed(a.segment(10).step().advance(300), b.segment(10).step().advance(200))
    job.run()
    assert job.restart(1) == 1300
    assert job.timeline.hosts[0].steps == 2
