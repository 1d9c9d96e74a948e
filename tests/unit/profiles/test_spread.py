"""GPUs of one kind draw different powers for the same work. The one that draws most decides how long a job takes."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from phantora_async.spending.energy import Launched, kernel_watts
from profiles import CostModel, Gpu, load_gpu
from profiles.models.clock import Clock
from profiles.timings.shipped import same_times

PRODUCT = "gemm;cublasGemmEx;t;n;8192;8192;8192;1;bf16;bf16;bf16;f32;default;;"


def h200(spread: float) -> Gpu:
    gpu = load_gpu("h200")
    assert gpu.power is not None
    return replace(gpu, power=replace(gpu.power, spread=spread))


def stretch_of(gpu: Gpu, product: str = PRODUCT) -> float:
    """Returns by how much products are stretched when they have run for long."""
    cost, clock = CostModel(gpu).cost(product), Clock.of(gpu)
    for _ in range(1000):
        clock.add(cost.solo_ns, cost.draw.power, cost.draw.clocked)
    return clock.stretch


def test_products_of_f16_lower_the_clock_further_than_those_of_bf16() -> None:
    """1459 and 1375 MHz: laboratory/notes/power-h200.md."""
    of_f16 = stretch_of(load_gpu("h200"), PRODUCT.replace("bf16", "f16"))
    assert of_f16 / stretch_of(load_gpu("h200")) == pytest.approx(1459 / 1375, rel=0.01)


@pytest.mark.parametrize(("gpus", "more"), [(1, 0.0), (2, 0.0564), (4, 0.1029), (8, 0.1424), (1024, 0.3234)])
def test_the_clock_of_a_job_is_that_of_the_gpu_that_draws_most(gpus: int, more: float) -> None:
    """With products alone, power falls with the square of the clock."""
    assert stretch_of(h200(0.1)) > 1.1
    assert stretch_of(h200(0.1).one_of(gpus)) == pytest.approx(stretch_of(h200(0.1)) * sqrt(1 + more), rel=1e-3)


def test_gpus_that_are_alike_have_one_clock() -> None:
    gpu = h200(0.0)
    assert gpu.one_of(8) is gpu
    without = load_gpu("a100-80g")
    assert without.one_of(8) is without


def test_what_it_draws_when_it_waits_grows_as_well() -> None:
    assert (h200(0.1).idle_thousandths, h200(0.1).one_of(8).idle_thousandths) == (186, 212)


def test_times_measured_on_one_gpu_are_those_of_each() -> None:
    """They are times at the full clock."""
    assert same_times(h200(0.1), h200(0.1).one_of(8))
    assert not same_times(h200(0.1), h200(0.2).one_of(8))


def test_energy_is_that_of_the_mean_gpu() -> None:
    """At the full clock: all GPUs together draw so many times the mean."""
    alone, hungry = h200(0.1), h200(0.1).one_of(8)
    watts = [kernel_watts(gpu, [Launched(CostModel(gpu).cost(PRODUCT), 1, 0)]) for gpu in (alone, hungry)]
    assert watts[1] == pytest.approx(watts[0])
