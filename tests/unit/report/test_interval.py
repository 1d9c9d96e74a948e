"""The range around a step time."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import pytest

from phantora_async.report.interval import (
    CALIBRATION,
    OF_THE_SLOWEST,
    SPREAD,
    TOGETHER,
    StepParts,
    interval,
    kernel_error,
    step_parts,
)
from profiles import Spread, largest_of, load_host

HOST = replace(load_host("xeon-h200"), spread=Spread(fast=0.8, slow=1.5, error=0.0, ranks=0.1))
GPU_BOUND = StepParts(step_ns=100e6, gpu_ns=99e6, host_ns=40e6, exposed_ns=0.0, hidden_ns=0.0)
HOST_BOUND = StepParts(step_ns=100e6, gpu_ns=50e6, host_ns=98e6, exposed_ns=0.0, hidden_ns=0.0)


def rank(**more: Any) -> dict[str, Any]:
    none = dict.fromkeys(("transfer_ns", "peers_ns", "host_bound_ns", "communication_ns", "host_work_ns"), 0)
    return {"window": "steps", "window_ns": 1000} | none | more


def test_a_gpu_bound_step_is_as_uncertain_as_its_kernels() -> None:
    """4 % for the kernels' models, 2 % for this GPU among those of its kind, 1 % from run to run; and what such ranges
    were found to leave out."""
    found = interval(GPU_BOUND, 0.04, HOST)
    assert found.bound == "gpu"
    half = 7.53 * CALIBRATION["gpu"]
    assert (found.low_ns / 1e6, found.high_ns / 1e6) == (
        pytest.approx(100 - half, abs=0.1),
        pytest.approx(100 + half, abs=0.1),
    )
    assert found.scale == CALIBRATION["gpu"]


def test_a_host_bound_step_takes_the_spread_of_hosts() -> None:
    found = interval(HOST_BOUND, 0.04, HOST)
    assert found.bound == "host"
    assert found.low_ns == pytest.approx(100e6 - CALIBRATION["host"] * 20e6, rel=0.01)
    assert found.high_ns == pytest.approx(100e6 + CALIBRATION["host"] * 50e6, rel=0.01)


def test_a_gpu_bound_step_may_be_host_bound_on_a_slow_host() -> None:
    found = interval(replace(GPU_BOUND, host_ns=80e6), 0.04, HOST)
    assert found.bound == "both"
    assert found.high_ns == pytest.approx(100e6 + CALIBRATION["both"] * 21.5e6)
    assert found.low_ns == pytest.approx(100e6 - CALIBRATION["both"] * 7.53e6, rel=1e-3)
    assert found.scale == CALIBRATION["both"]


def test_a_host_that_is_nearly_as_long_as_the_gpu_may_decide() -> None:
    bounds = [interval(replace(GPU_BOUND, host_ns=share * 99e6 / 1.5), 0.04, HOST).bound for share in (0.74, 0.76)]
    assert bounds == ["gpu", "both"]


def test_several_ranks_wait_for_the_slowest() -> None:
    """Its mean is in the step; how far it is from that in both ends; of more than eight, the upper end has the rest."""
    alone, four, many = (interval(HOST_BOUND, 0.04, HOST.one_of(n), n) for n in (1, 4, 256))
    own = 1.645 * OF_THE_SLOWEST * 0.1
    assert (alone.host_fast, alone.host_slow) == pytest.approx((0.8, 1.5))
    assert (four.host_fast, four.host_slow) == pytest.approx(
        (1 - (0.2**2 + own**2) ** 0.5, 1 + (0.5**2 + own**2) ** 0.5)
    )
    assert many.host_fast == four.host_fast
    assert many.host_slow == pytest.approx(four.host_slow + 0.1 * (largest_of(256) - 1.424) / 1.1424)
    assert four.host_high_ns == pytest.approx(98e6 * four.host_slow)
    assert (alone.host_slowest, four.host_slowest, many.host_slowest) == pytest.approx((1.0, 1.1029, 1.1424))


def test_ranks_whose_host_is_measured_differ_by_themselves() -> None:
    """The step has the slowest of all: nothing is beyond it at the upper end. `--host measured` stands for no slowest
    one (`among` 1)."""
    few, many = (interval(HOST_BOUND, 0.04, HOST, n) for n in (2, 256))
    assert many.host_slow == few.host_slow == pytest.approx(1 + (0.5**2 + (1.645 * OF_THE_SLOWEST * 0.1) ** 2) ** 0.5)
    assert many.host_slowest == 1.0


@pytest.mark.parametrize(("n", "expected"), [(1, 0.0), (2, 0.564), (4, 1.029), (8, 1.424), (64, 2.37)])
def test_the_largest_of_several_normal_values(n: int, expected: float) -> None:
    assert largest_of(n) == pytest.approx(expected, abs=0.05)


def test_a_fast_host_leaves_fewer_waits_of_a_gpu_that_decides_most_of_the_step() -> None:
    """At 0.8 of 80 ms of work the host may be ahead all the time: none of the 10 ms of waits remain. At 1.5 the step is
    the host's."""
    mixed = StepParts(step_ns=100e6, gpu_ns=90e6, host_ns=80e6, exposed_ns=0.0, hidden_ns=0.0)
    found = interval(mixed, 0.0, HOST)
    assert found.low_ns == pytest.approx(100e6 - CALIBRATION["both"] * 10e6, rel=0.02)
    assert found.high_ns == pytest.approx(100e6 + CALIBRATION["both"] * 35e6)


def test_a_host_that_costs_nothing_adds_nothing() -> None:
    found = interval(replace(GPU_BOUND, host_ns=0.0), 0.0, None)
    half = 3.68e6 * CALIBRATION["gpu"]
    assert (found.low_ns, found.high_ns) == (
        pytest.approx(100e6 - half, rel=1e-3),
        pytest.approx(100e6 + half, rel=1e-3),
    )


def test_communication_beside_computation_widens_the_range() -> None:
    hidden = interval(replace(GPU_BOUND, hidden_ns=50e6), 0.0, HOST)
    exposed = interval(replace(GPU_BOUND, exposed_ns=50e6), 0.0, HOST)
    assert hidden.high_ns > exposed.high_ns > interval(GPU_BOUND, 0.0, HOST).high_ns


def test_signatures_of_one_model_are_nearly_independent() -> None:
    one = [{"share": 1.0, "error": 0.1, "model": "gemm"}]
    alike = [{"share": 0.5, "error": 0.1, "model": "gemm"}] * 2
    unlike = [alike[0], alike[0] | {"model": "sdpa"}]
    assert kernel_error(one) == pytest.approx(0.1 * SPREAD)
    assert kernel_error(alike) == pytest.approx(0.1 * SPREAD * sqrt((1 + TOGETHER) / 2))
    assert kernel_error(unlike) == pytest.approx(0.1 * SPREAD * sqrt(1 / 2))
    assert kernel_error([]) == 0.0


def test_what_is_not_known_of_a_gpu_is_in_all_of_its_kernels() -> None:
    twice_as_far_off = [{"share": 0.01, "error": 0.2, "model": "gemm"}] * 100
    assert kernel_error(twice_as_far_off, 2.0) == pytest.approx(0.1 * SPREAD * sqrt(3 + TOGETHER), rel=0.01)


def test_parts_are_means_over_ranks_scaled_to_a_step() -> None:
    ranks = [
        rank(host_bound_ns=200, host_work_ns=900, transfer_ns=100, communication_ns=300),
        rank(host_work_ns=500, peers_ns=100, communication_ns=100),
    ]
    assert step_parts(500, ranks) == StepParts(500, 450.0, 350.0, 50.0, 50.0)
    assert step_parts(500, [rank(window="run")]) is None
