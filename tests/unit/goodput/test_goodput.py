"""Goodput: published optima, a case by hand, and closed form and simulation, which do not know each other."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.cli import Parser
from phantora_async.commands import goodput
from phantora_async.errors import UsageError
from phantora_async.goodput.closed_form import Costs, best_interval, cycle_s, daly, shares, young
from phantora_async.goodput.inputs import job_of
from phantora_async.goodput.rates import LLAMA3, rates_of
from phantora_async.goodput.simulation import simulate, turns

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(("mean_s", "best_min"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)])
def test_the_best_interval_is_the_published_one(mean_s: float, best_min: float) -> None:
    """J. T. Daly 2006, figures 3 to 5: dumps of 5 minutes, restarts of 10."""
    costs = Costs(5 * MINUTE, 0, 10 * MINUTE)
    assert best_interval(costs, mean_s) / MINUTE == pytest.approx(best_min, rel=0.01)
    assert daly(costs, mean_s) / MINUTE == pytest.approx(best_min, rel=0.01)


def test_youngs_estimate() -> None:
    assert young(Costs(50, 0, 0), 10_000) == 1000


def test_no_other_interval_is_better() -> None:
    costs, mean_s = Costs(30, 0, 300), 3 * HOUR
    best_s = best_interval(costs, mean_s)
    best = shares(best_s, costs, mean_s).useful
    assert all(shares(best_s * factor, costs, mean_s).useful < best for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2))


def test_a_cycle_by_hand() -> None:
    """Work of a mean time between failures, and no costs: M (e - 1), of which M is work."""
    costs = Costs(0, 0, 0)
    assert cycle_s(HOUR, costs, HOUR) == pytest.approx(HOUR * (exp(1) - 1))
    found = shares(HOUR, costs, HOUR)
    assert found.useful == pytest.approx(1 / (exp(1) - 1))
    assert (found.checkpoints, found.restarts) == (0, 0)


def test_restarts_that_fail_again_by_hand() -> None:
    """Restarts take the part of all time in which one has begun less than R ago without a failure since: 1 - exp(-R /
    M).
    """
    found = shares(600, Costs(60, 0, HOUR), HOUR)
    assert found.restarts == pytest.approx(1 - exp(-1))
    assert found.useful + found.checkpoints + found.lost_work + found.restarts == pytest.approx(1)


@pytest.mark.parametrize(
    ("costs", "interval_s", "gpus"),
    [
        (Costs(60, 0, 300), 1800, 16_384),
        (Costs(5, 600, 900), 1200, 16_384),
        (Costs(120, 0, 1800), 3600, 131_072),
        (Costs(10, 0, 60), 600, 512),
    ],
)
def test_simulation_and_closed_form_agree(costs: Costs, interval_s: float, gpus: int) -> None:
    rates = rates_of(gpus, gpus // 8, {})
    found = simulate(interval_s, costs, rates, 20 * DAY, 60, seed=3)
    assert found.agrees(shares(interval_s, costs, rates.mean_s).useful)
    assert 0 < found.error < 0.01
    assert found.low < found.high
    failures = sum(found.failures.values())
    assert failures == pytest.approx(20 * DAY / rates.mean_s, rel=0.1)


def test_a_wrong_closed_form_would_be_noticed() -> None:
    rates = rates_of(16_384, 2048, {})
    found = simulate(1800, Costs(60, 0, 300), rates, 20 * DAY, 60, seed=3)
    forgets_restarts = shares(1800, Costs(60, 0, 0), rates.mean_s).useful
    assert not found.agrees(forgets_restarts)


def test_a_seed_repeats() -> None:
    rates = rates_of(1024, 128, {})
    first, again, other = (simulate(1800, Costs(60, 0, 300), rates, DAY, 5, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_published_rates() -> None:
    assert sum(LLAMA3.values()) == 419
    rates = rates_of(16_384, 2048, {})
    assert rates.mean_s / HOUR == pytest.approx(54 * 24 / 419)
    assert rates.per_s["gpu"] / rates.total == pytest.approx(262 / 419)


def test_given_rates_take_the_place_of_published_ones() -> None:
    rates = rates_of(8, 1, {"gpu": 80 * HOUR, "node": 100 * HOUR, "network": 1e12, "software": 1e12})
    assert rates.mean_s / HOUR == pytest.approx(1 / (8 / 80 + 1 / 100), rel=1e-4)
    assert rates.source == "gpu, network, node, software as given"
    assert rates_of(8, 1, {"gpu": HOUR}).source.startswith("gpu as given; others: 419 interruptions")


# ---- the command ---------------------------------------------------------------------------------------------------


def report(**changes: Any) -> dict[str, Any]:
    """Returns a report with a restart at 5 s; the step that it interrupts ends 3.5 s later."""
    step = {"median_ns": 10**9, "from_ns": 10**9, "each_ns": [10**9, 10**9, 55 * 10**8, 10**9]}
    simulated = {
        "world_size": 16,
        "servers": [8, 8],
        "step": step,
        "work": {"mfu": 0.4},
        "logged": [{"rate": "tokens/s", "value": 1000.0, "rank": 0, "text": "", "window": "steps"}],
        "restarts": [{"rank": 3, "exit_code": 1, "at_ns": 5 * 10**9}],
    }
    return {"simulated": simulated | changes}


def test_a_report_tells_gpus_speed_and_restarts() -> None:
    job = job_of(report())
    assert (job.gpus, job.nodes, job.step_s, job.tokens_per_s, job.mfu) == (16, 2, 1.0, 1000.0, 0.4)
    assert job.restart_s == pytest.approx(8.5 - 3 - 2), "it was noticed up to 2 s after the last step"
    assert job_of(report(restarts=[])).restart_s is None


def command(*words: str) -> int:
    parser = Parser()
    goodput.add_arguments(parser)
    return goodput.run(parser.parse_args(words))


COSTS = ("--checkpoint-stall", "60s", "--restart", "5m", "--runs", "20")


def test_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--nodes", "2048", "--checkpoint-every", "30m", *COSTS) == 0
    text = capsys.readouterr().out
    assert "16,384 GPUs on 2,048 nodes, 30 d: a failure every 3.09 h (419 interruptions in 54 days" in text
    assert "goodput   86.55%" in text
    assert "Young: 19.3 min, Daly:" in text
    assert command("--nodes", "2048", "--checkpoint-every", "30m", "--json", *COSTS) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["goodput"] == pytest.approx(0.8655, abs=1e-4)
    assert told["goodput"] + sum(told["lost"].values()) == pytest.approx(1)
    by_cause = sum(one["lost_share"] for one in told["causes"].values())
    assert by_cause == pytest.approx(told["lost"]["lost_work"] + told["lost"]["restarts"])
    assert told["simulated"]["agrees"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "how many GPUs"),
        (("--gpus", "8", "--restart", "5m"), "--checkpoint-stall is missing"),
        (("--gpus", "8", "--checkpoint-stall", "5s"), "--restart is missing, and the report has no restart"),
        (("--gpus", "8", "--checkpoint-stall", "5"), "--checkpoint-stall 5: expected a time"),
        (("--gpus", "0", *COSTS), "--gpus 0: expected 1 to"),
        (("--gpus", "8", "--checkpoint-write", "1s", *COSTS), "shorter than --checkpoint-stall"),
        (("--gpus", "8", "--checkpoint-every", "2m", "--checkpoint-write", "9m", *COSTS), "is not durable before"),
        (("--gpus", "8", *COSTS, "--runs", "1"), "--runs 1: expected 2"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        command(*words)
    assert said in caught.value.message


def test_a_missing_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing"):
        command(str(tmp_path / "nothing.json"), *COSTS)


def test_failures_and_checkpoints_are_counted_beforehand() -> None:
    """Without costs a cycle is about an interval: ten days with a failure an hour and a checkpoint a minute."""
    rates = rates_of(1, 1, {"gpu": HOUR})
    counted = turns(MINUTE, Costs(0, 0, 0), rates, DAY, 10)
    cycle = cycle_s(MINUTE, Costs(0, 0, 0), rates.mean_s)
    assert counted == pytest.approx(10 * ((DAY + cycle) / rates.mean_s + DAY / cycle + 1))
    assert counted == pytest.approx(10 * DAY / MINUTE, rel=0.03)


@pytest.mark.parametrize("options", [["--checkpoint-every", "2d"], ["--mtbf-gpu", "1s", "--checkpoint-every", "100d"]])
def test_an_answer_comes_at_once_at_any_rate(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """16,384 GPUs that keep next to nothing, as each interval is longer than the time between failures."""
    assert cli.run(["goodput", "--gpus", "16384", "--checkpoint-stall", "30s", "--restart", "5m", *options]) == 0
    shown = capsys.readouterr().out
    assert "goodput    0.00%" in shown
    assert "not simulated: 300 times 30 d have too many failures or checkpoints to follow" in shown
