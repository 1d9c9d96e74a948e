"""The GPU's clock under its power limit. The tools that follow a trace follow it as the hook does."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import pytest

from emu.contract import records
from phantora_async.replaying.clock import PowerClock
from profiles import load_gpu
from profiles.models.clock import Clock

H200 = load_gpu("h200")
POWER = dict(line.split("=") for line in H200.device_file_lines() if line.startswith("power_"))
PRODUCT_NS, COPY_NS, GAP_NS = 1_000_000, 2_000_000, 10_000
COSTS = {"product": (PRODUCT_NS, PRODUCT_NS, 1350, 1000), "copy": (COPY_NS, COPY_NS, 500, 0)}


def durations(running: Any, kernels: list[str], waits_after: int = -1, rests_ns: int = 0, **device: Any) -> list[int]:
    """Each kernel's, without the gap after it. After one of them the host waits, and does nothing for some time."""

    def program(rank: Any) -> None:
        addresses = {name: rank.kernel(name) for name in COSTS}
        event = rank.event()
        for number, name in enumerate(kernels):
            rank.launch(addresses[name])
            rank.c.cudaEventRecord(event, None)  # ends the segment
            if number == waits_after:
                rank.c.cudaDeviceSynchronize()
                rank.c.phantora_advance_ns(ctypes.c_uint64(rests_ns))

    def cost(signature: str) -> tuple[int, ...]:
        return next(costs for name, costs in COSTS.items() if name in signature)

    told = running(program, cost=cost, launch_gap_ns=GAP_NS, **(POWER | device))
    assert told.of(records.SEGMENT), "nothing was launched"
    return [record.solo_ns - GAP_NS for record in told.of(records.SEGMENT)]


def test_products_back_to_back_lower_the_clock_after_a_while(running):
    found = durations(running, ["product"] * 200)
    assert found[:20] == [PRODUCT_NS] * 20
    assert found == sorted(found)
    assert found[-1] / PRODUCT_NS == pytest.approx(1.16, abs=0.01)


@pytest.mark.parametrize("kernels", [["copy"], ["product", "copy"]])
def test_kernels_below_the_limit_run_at_the_full_clock(kernels, running):
    assert set(durations(running, kernels * 100)) == {COSTS[name][0] for name in kernels}


def test_a_rest_brings_the_clock_back(running):
    found = durations(running, ["product"] * 110, waits_after=99, rests_ns=200_000_000)
    assert found[99] > 1.1 * PRODUCT_NS
    assert found[100] == PRODUCT_NS


def test_a_gpu_without_a_description_of_its_power_keeps_its_clock(running):
    assert set(durations(running, ["product"] * 100, power_window_ns=0)) == {PRODUCT_NS}


def test_what_the_clock_adds_is_counted(running):
    def program(rank: Any) -> None:
        kernel = rank.kernel("product")
        for _ in range(200):
            rank.launch(kernel)

    told = running(program, cost=lambda _: COSTS["product"], launch_gap_ns=0, **POWER)
    (counts,) = told.of(records.LAUNCH_COUNTS)
    ((_, launches, slowed_ns, _),) = records.LaunchCount.decode_all(counts.payload, 0, counts.entries)
    assert slowed_ns == sum(record.solo_ns for record in told.of(records.SEGMENT)) - launches * PRODUCT_NS > 0


def test_the_tools_follow_the_clock_as_the_hook_does(running):
    kernels = (["product"] * 40 + ["copy"] * 5) * 4
    clock, expected = Clock.of(H200), []
    for name in kernels:
        solo_ns, _, power, clocked = COSTS[name]
        clock.idle(GAP_NS)
        clock.add(solo_ns, power / 1000, clocked / 1000)
        expected.append(solo_ns * (1 + clocked / 1000 * (clock.stretch - 1)))
    assert durations(running, kernels) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_replays_have_the_same_clock_to_the_nanosecond(running, seed):
    """Launch by launch, with waits of the host between them."""
    chosen = random.Random(seed)
    kernels = [chosen.choice(("product", "product", "copy")) for _ in range(300)]
    now_ns, waits_after, rests_ns = 0, chosen.randrange(100, 200), chosen.randrange(50_000_000)
    clock, expected = PowerClock(H200), []
    for number, name in enumerate(kernels):
        solo_ns, _, power, clocked = COSTS[name]
        longer = clock.launch(1, solo_ns, power, clocked, now_ns, GAP_NS)
        expected.append(solo_ns + int(float(solo_ns) * (longer - 1)))
        if number == waits_after:
            clock.host_waited(0, now_ns)
            now_ns += rests_ns
    assert durations(running, kernels, waits_after, rests_ns) == expected
