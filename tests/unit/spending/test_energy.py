"""Watts of kernels and of what is between them, beside what a power meter showed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from phantora_async.spending.energy import Launched, energy_document, kernel_watts
from profiles import Cost, Source, load_gpu
from profiles.models.clock import Clock
from profiles.models.power import Draw

H200 = load_gpu("h200")
PRODUCT = Draw(945 / 700, 1.0)
ADD = Draw(0.62 * 945 / 700, 0.0)
PRODUCT_NS, ADD_NS = 1_400_000, 367_000
"""At the full clock, as measured: laboratory/notes/power-h200.md."""


def launched(ns: int, draw: Draw, times: int, slowed_ns: int = 0) -> Launched:
    return Launched(Cost(ns, ns, 0.0, Source.MEASURED, draw=draw), times, slowed_ns)


def rank(compute_ns: float = 0, transfer_ns: float = 0, host_bound_ns: float = 0) -> dict[str, float]:
    return {
        "compute_ns": compute_ns,
        "transfer_ns": transfer_ns,
        "peers_ns": 0,
        "host_bound_ns": host_bound_ns,
        "idle_ns": 0,
    }


def watts_of(works: Sequence[tuple[int, Draw, int]], idle_ms: float) -> float:
    """Returns the mean of a GPU that repeats these kernels, so often each, and then waits. The clock is followed for 2
    s.
    """
    clock, gap_ns = Clock.of(H200), H200.achieved.launch_gap_ns
    now_ns, busy_ns, waited_ns = 0.0, 0.0, 0.0
    times, slowed = [0] * len(works), [0.0] * len(works)
    while now_ns < 2e9:
        for number, (ns, draw, count) in enumerate(works):
            for _ in range(count):
                clock.idle(gap_ns)
                clock.add(ns, draw.power, draw.clocked)
                longer_ns = ns * draw.clocked * (clock.stretch - 1)
                times[number] += 1
                slowed[number] += longer_ns
                busy_ns += gap_ns + ns + longer_ns
        clock.idle(idle_ms * 1e6)
        waited_ns += idle_ms * 1e6
        now_ns = busy_ns + waited_ns
    found = [launched(ns, draw, times[at], round(slowed[at])) for at, (ns, draw, _) in enumerate(works)]
    document = energy_document(H200, [rank(busy_ns, host_bound_ns=waited_ns)], [found], None)
    assert document is not None
    return float(document["gpu_w"])


@pytest.mark.parametrize(
    ("works", "idle_ms", "measured_w"),
    [
        ([(PRODUCT_NS, PRODUCT, 1)], 0, 690),
        ([(PRODUCT_NS, PRODUCT, 2), (ADD_NS, ADD, 2)], 0, 696),
        ([(PRODUCT_NS, PRODUCT, 1), (ADD_NS, ADD, 6)], 0, 695),
        ([(PRODUCT_NS, PRODUCT, 10)], 5, 660),
        ([(PRODUCT_NS, PRODUCT, 10)], 20, 484),
        ([(PRODUCT_NS, PRODUCT, 100)], 100, 517),
    ],
)
def test_watts_are_those_of_a_real_h200(
    works: Sequence[tuple[int, Draw, int]], idle_ms: float, measured_w: float
) -> None:
    """laboratory/notes/power-h200.md: kernels in turn, and pauses of the host. At most 6 % off."""
    assert watts_of(works, idle_ms) == pytest.approx(measured_w, rel=0.06)


def test_a_lower_clock_takes_longer_and_less_energy() -> None:
    """A product that takes 1.25 times as long draws 1 / 1.25 of its energy: 0.64 of its power."""
    full = kernel_watts(H200, [launched(10**9, PRODUCT, 1)])
    slow = kernel_watts(H200, [launched(10**9, PRODUCT, 1, 250_000_000)])
    assert full == pytest.approx(945, rel=1e-3)
    assert slow == pytest.approx(0.64 * 945, rel=1e-3)


def test_a_step_has_the_energy_of_all_gpus() -> None:
    """One GPU communicates all the time, the other one waits for its host: 300 W and 130 W, for 2 s a step."""
    ranks = [rank(transfer_ns=4_000_000_000), rank(host_bound_ns=4_000_000_000)]
    found = energy_document(H200, ranks, [[], []], 2_000_000_000)
    assert found is not None
    assert (found["gpu_w"], found["step_j"]) == (215.0, 860.0)
    assert (found["computing_j"], found["communicating_j"], found["waiting_j"]) == (0.0, 1200.0, 520.0)


def test_what_is_not_described_is_not_known() -> None:
    assert energy_document(load_gpu("a100-80g"), [rank(10**9)], [[]], 10**9) is None
    assert energy_document(H200, [rank()], [[]], 10**9) is None
