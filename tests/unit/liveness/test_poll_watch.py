"""When ranks that look and sleep for ever end the run, and which ranks the message names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phantora_async.liveness import poll_watch
from phantora_async.liveness.poll_watch import LIMIT_NS, PATIENCE_S, Polling, PollWatch
from phantora_async.liveness.sleep_detector import Seen, Thread

PIDS = {0: 100, 1: 101, 2: 102}
FIRST = Thread("python", main=True, sleeping=False, used_ns=0)


class Ranks:
    """Three ranks: rank 0 waits in a collective, rank 2 sleeps, rank 1 runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.timeline: Any = SimpleNamespace(now_ns=0)
        self.infos = {rank: SimpleNamespace(bye=None) for rank in PIDS}
        self.incomplete = {0: object()}
        self.asleep = {2}
        self.bystanders_work = False
        self.beside_ns = 0
        """The processor time of a thread beside rank 1's first one."""
        monkeypatch.setattr(poll_watch, "monotonic", lambda: self.now_s)
        facts: Any = SimpleNamespace(incomplete_collectives=lambda: self.incomplete, rank_info=self.infos)
        blocked: Any = SimpleNamespace(sleeps=lambda rank: rank in self.asleep)
        processes: Any = SimpleNamespace(look=self._threads)
        self.listener: object | None = None
        self.watch = PollWatch(
            self.timeline,
            facts,
            pids=PIDS,
            blocked_ranks=blocked,
            others_work=lambda: self.bystanders_work,
            listens=lambda: self.listener,
            processes=processes,
            given_s=None,
        )

    def _threads(self, pid: int) -> Seen:
        beside = Thread("uploads", main=False, sleeping=True, used_ns=self.beside_ns)
        return Seen({pid: FIRST, pid + 1000: beside}, 0, 0)

    def later(self, s: float, virtual_ns: int = 0, beside_ns: int = 0) -> Polling | None:
        """Passes so much time, and looks."""
        self.now_s += s
        self.timeline.now_ns += virtual_ns
        self.beside_ns += beside_ns
        return self.watch.look()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_the_rank_that_polls_is_named_and_those_that_wait(ranks: Ranks) -> None:
    assert ranks.later(PATIENCE_S, LIMIT_NS + 60_000_000_000) is None, "one look at threads says nothing"
    found = ranks.later(1)
    assert found == Polling((1,), (0, 2), LIMIT_NS + 60_000_000_000)
    assert str(found) == "rank 1 has only looked and slept for 31 minutes of virtual time, and ranks 0,2 wait"


@pytest.mark.parametrize(("real_s", "virtual_ns"), [(PATIENCE_S - 2, LIMIT_NS), (PATIENCE_S, LIMIT_NS - 1)])
def test_both_times_have_to_pass(ranks: Ranks, real_s: float, virtual_ns: int) -> None:
    ranks.later(real_s, virtual_ns)
    assert ranks.later(1) is None


def test_progress_of_any_rank_counts(ranks: Ranks) -> None:
    ranks.later(PATIENCE_S, LIMIT_NS)
    ranks.watch.heard()
    assert ranks.later(1) is None


def test_nobody_waits_or_nobody_polls(ranks: Ranks) -> None:
    ranks.incomplete, ranks.asleep = {}, set()
    ranks.later(PATIENCE_S, LIMIT_NS)
    assert ranks.later(1) is None
    ranks.asleep = set(PIDS)
    assert ranks.later(1) is None


def test_a_thread_or_a_process_that_works_may_bring_it(ranks: Ranks) -> None:
    ranks.later(PATIENCE_S, LIMIT_NS)
    assert ranks.later(1, beside_ns=900_000_000) is None
    ranks.bystanders_work = True
    assert ranks.later(1) is None
    ranks.bystanders_work = False
    assert ranks.later(1) is not None


def test_an_idle_server_polls_for_ever(ranks: Ranks) -> None:
    """It is one if no rank waits in a collective: a cluster's timeouts would end that."""
    ranks.listener = object()
    ranks.later(PATIENCE_S, LIMIT_NS)
    assert ranks.later(1) is not None
    ranks.incomplete = {}
    assert ranks.later(1) is None
    ranks.listener = None
    assert ranks.later(1) is not None
