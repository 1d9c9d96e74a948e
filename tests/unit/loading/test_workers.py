"""When batches are loaded, in cases computed by hand."""

from __future__ import annotations

from fractions import Fraction

from emu.loading.workers import Cost, Workers


class Loop:
    """A training loop over one loader: takes a batch as soon as it is loaded, computes, takes the next."""

    def __init__(self, cpus: Fraction, workers: int, prefetch: int, cost: Cost) -> None:
        self.pool, self.workers, self.cost, self.now_ns, self.asked = Workers(cpus), workers, cost, 0, 0
        for _ in range(workers * prefetch):
            self._ask()

    def _ask(self) -> None:
        self.pool.ask("loader", self.asked % self.workers, self.asked, self.now_ns)
        self.pool.learn("loader", self.asked, self.cost)
        self.asked += 1

    def begins(self, batches: int, step_ns: int) -> list[int]:
        """Returns when the steps begin."""
        found = []
        for number in range(batches):
            self.now_ns = max(self.now_ns, self.pool.ready_ns("loader", number))
            self._ask()
            found.append(self.now_ns)
            self.now_ns += step_ns
        return found


def test_a_queue_that_is_full_empties_and_then_the_workers_rate_binds() -> None:
    """Two workers of 10 ms load a batch every 5 ms. Steps of 1 ms wait from the start on."""
    loop = Loop(Fraction(8), workers=2, prefetch=2, cost=Cost(10))
    assert loop.begins(6, step_ns=1) == [10, 11, 20, 21, 30, 31]


def test_what_was_loaded_during_a_long_step_is_there_at_once() -> None:
    loop = Loop(Fraction(8), workers=1, prefetch=3, cost=Cost(10))
    first = loop.begins(
        1, step_ns=100
    )  # while it computes, two more of the three asked for, and the fourth, are loaded
    assert first == [10]
    found = [loop.now_ns]
    for number in range(1, 6):
        loop.now_ns = max(loop.now_ns, loop.pool.ready_ns("loader", number))
        loop._ask()
        found.append(loop.now_ns)
    assert found == [110, 110, 110, 110, 120, 130]


def test_slow_steps_never_wait() -> None:
    loop = Loop(Fraction(8), workers=2, prefetch=2, cost=Cost(10))
    assert loop.begins(5, step_ns=6) == [10, 16, 22, 28, 34]


def test_workers_share_too_few_cpus() -> None:
    """Four workers on two CPUs: each goes on at half its speed."""
    loop = Loop(Fraction(2), workers=4, prefetch=1, cost=Cost(10))
    assert loop.begins(4, step_ns=0) == [20, 20, 20, 20]


def test_a_worker_that_waits_leaves_its_cpu_to_others() -> None:
    """10 ms of CPU time and 20 ms of waiting: the CPU of two workers is theirs for 20 ms."""
    loop = Loop(Fraction(1), workers=2, prefetch=1, cost=Cost(10, 20))
    assert loop.begins(4, step_ns=0) == [40, 40, 80, 80]


def test_a_cost_that_becomes_known_while_the_batch_is_loaded_counts() -> None:
    pool = Workers(Fraction(4))
    for number in range(2):
        pool.ask("loader", number, number, 0)
    pool.learn("loader", 0, Cost(10))
    assert pool.ready_ns("loader", 0) == 10  # the other batch counts as 10, too, until it is known
    pool = Workers(Fraction(4))
    for number in range(3):
        pool.ask("loader", number, number, 0)
    pool.learn("loader", 0, Cost(10))
    pool.learn("loader", 1, Cost(20))
    assert pool.ready_ns("loader", 0) == 10
    pool.learn("loader", 2, Cost(30))
    assert (pool.ready_ns("loader", 1), pool.ready_ns("loader", 2)) == (20, 30)


def test_an_iterator_that_is_forgotten_uses_no_cpus() -> None:
    pool = Workers(Fraction(1))
    pool.ask("old", 0, 0, 0)
    pool.learn("old", 0, Cost(1000))
    pool.forget("old")
    pool.ask("new", 0, 0, 0)
    pool.learn("new", 0, Cost(10))
    assert pool.ready_ns("new", 0) == 10
    assert pool.ready_ns("new", 7) == 0


def test_a_late_batch_holds_its_worker() -> None:
    pool = Workers(Fraction(8))
    for number in range(3):
        pool.ask("loader", 0, number, 0, late_ns=50 if number == 1 else 0)
        pool.learn("loader", number, Cost(10))
    assert [pool.ready_ns("loader", number) for number in range(3)] == [10, 70, 80]
