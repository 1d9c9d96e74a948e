"""The end of a run when --steps has been reached, and what the report then says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phantora_async.coordinator.early_end import EarlyEnd
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import HostState, Stop
from profiles import load_cluster, load_gpu, load_host

SPEC = RunSpec(
    socket=Path("s"),
    cost_table=Path("c"),
    run_dir=Path("r"),
    servers=(8,),
    gpu=load_gpu("h200"),
    cluster=load_cluster("dgx-h200"),
    host=load_host("xeon-h200"),
    host_mode="none",
)
NEVER = 1 << 62


def host(rank: int, steps: int, state: HostState, clock_ns: int = 0) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, steps=steps, state=state, clock_ns=clock_ns)


def timeline_of(*own: Any, hosts: Sequence[Any] = (), now_ns: int = 0, results: Any = None) -> Any:
    """A timeline of the hosts `own`, which `hosts`, if given, share."""

    def hosts_in(state: HostState) -> list[Any]:
        return [host for host in own if host.state == state]

    return SimpleNamespace(
        hosts=hosts or own, own_hosts=own, hosts_in=hosts_in, now_ns=now_ns, limit_ns=NEVER, results=results
    )


def early_end(*hosts: SimpleNamespace, now_ns: int = 0, steps: int = 3) -> EarlyEnd:
    timeline = timeline_of(*hosts, now_ns=now_ns)
    return EarlyEnd(replace(SPEC, steps=steps), timeline)


HELD = host(0, 3, HostState.HELD, clock_ns=100)


@pytest.mark.parametrize(
    ("other", "now_ns", "stop", "reached"),
    [
        (host(1, 3, HostState.HELD), 0, Stop.DRAINED, True),
        (host(1, 2, HostState.RUNNING), 500, Stop.STARVED, False),  # its third step is still to come
        (host(1, 2, HostState.WAITS_STREAM), 500, Stop.DRAINED, True),  # it waits for a rank that is held
        (host(1, 0, HostState.RUNNING), 99, Stop.STARVED, False),  # it may have a step yet
        (host(1, 0, HostState.RUNNING), 101, Stop.BUDGET, True),
        (host(1, 0, HostState.FINISHED), 500, Stop.BUDGET, False),  # work of the held rank's GPU goes on
    ],
)
def test_reached(other: SimpleNamespace, now_ns: int, stop: Stop, reached: bool) -> None:
    assert early_end(HELD, other, now_ns=now_ns).reached(stop) is reached


def test_not_without_the_option() -> None:
    assert not early_end(host(0, 3, HostState.RUNNING), steps=0).reached(Stop.DRAINED)


def test_what_the_report_says() -> None:
    hosts = (HELD, host(1, 2, HostState.WAITS_STREAM), host(2, 0, HostState.RUNNING))
    assert early_end(*hosts).document() == {
        "option": "--steps 3",
        "text": "stopped by --steps 3; the script did not end; rank 1 had done fewer steps and waited for the others; "
        "rank 2 has no optimizer steps",
    }


def test_steps_that_were_never_found() -> None:
    assert "no optimizer steps were found" in early_end(host(0, 0, HostState.FINISHED)).missed()
    assert early_end(host(0, 2, HostState.FINISHED)).missed() == ""
    assert early_end(host(0, 0, HostState.FINISHED), steps=0).missed() == ""


def with_steps(*each_ms: int, steps: int, most_ms: int) -> EarlyEnd:
    """Makes a run's end. `each_ms`: times of step 2 and the steps after it, as far as they have ended."""
    ends_ns = [sum(each_ms[:number]) * 1_000_000 for number in range(len(each_ms) + 1)]
    results = SimpleNamespace(step_instants=[SimpleNamespace(device_ns=at_ns) for at_ns in ends_ns])
    timeline = timeline_of(results=results)
    return EarlyEnd(replace(SPEC, steps=steps, most_step_ns=most_ms * 1_000_000), timeline)


@pytest.mark.parametrize(
    ("each_ms", "reached"),
    [
        ((99, 99, 11, 12), False),  # steps 2 and 3 do not count; two of the five that do are slow
        ((1, 1, 11, 12, 13), True),
        ((1, 1, 11, 9, 12, 13), True),
        ((1, 1, 10, 10, 10, 10), False),
        ((1, 1, 11, 9, 9, 12, 13), False),  # the last step has ended: so does the run
    ],
)
def test_more_than_half_of_the_steps_that_count_are_too_slow(each_ms: tuple[int, ...], reached: bool) -> None:
    """Five of the eight steps count, so three slow ones decide."""
    assert with_steps(*each_ms, steps=8, most_ms=10).reached(Stop.BUDGET) is reached


def test_what_the_report_says_of_steps_that_are_too_slow() -> None:
    """The report says that of the steps that decided, whatever has been simulated after them."""
    for later in ((), (14,)):
        told = with_steps(1, 1, 12, 9, 11, 13, *later, steps=8, most_ms=10).document()
        assert told["over_budget"] == {"figure": "step", "rank": 0, "step": 7, "at_least_ns": 11_000_000}
        assert told["text"] == (
            "stopped after step 7 by --max-step-time: 3 of the 5 steps that would count took 11.00 ms at least, of "
            "10.00 ms; figures of time are incomplete"
        )


def test_a_look_at_ranks_that_share_a_timeline_is_one() -> None:
    looks = []

    class Watched:
        rank, steps, clock_ns = 0, 3, 100

        @property
        def state(self) -> HostState:
            looks[-1] += 1
            return HostState.HELD

    for replicas in (1, 1000):
        looks.append(0)
        watched = Watched()
        timeline = timeline_of(watched, hosts=(watched,) * replicas)
        assert EarlyEnd(replace(SPEC, steps=3), timeline).reached(Stop.DRAINED)
    assert looks[0] == looks[1]
