"""Money of steps, tokens and jobs; prices from files; what `report` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.errors import ExitCode
from phantora_async.spending.asked import of_step
from phantora_async.spending.bill import Question, bill
from phantora_async.spending.job import Job, job_of
from phantora_async.spending.text import lines, number
from profiles import Price, ProfileError, gpu_names, load_prices

PRICE = Price(2.0, 3.0, "$", "a page", "2026-01")
JOB = Job("h100", 8, 0.45, 2000.0, 32_768.0, "as given")


def test_money_is_gpu_hours_by_the_price() -> None:
    """8 GPUs for 0.45 s are a thousandth of a GPU hour; 10,000 steps take 1.25 hours and 2,000 J each."""
    told = bill(JOB, PRICE, Question(train_steps=10_000))
    assert told["step"]["money"] == pytest.approx([0.002, 0.003])
    assert told["job"]["hours"] == pytest.approx(1.25)
    assert told["job"]["money"] == pytest.approx([20.0, 30.0])
    assert told["job"]["kwh"] == pytest.approx(2000 * 10_000 / 3.6e6)
    assert told["million_tokens"]["money"][0] == pytest.approx(0.002 * 1e6 / 32_768)


def test_a_job_of_tokens_has_the_steps_that_these_need_and_lost_time_is_paid() -> None:
    told = bill(JOB, PRICE, Question(tokens=32_768e4, goodput=0.8))
    assert told["job"]["steps"] == pytest.approx(10_000)
    assert told["job"]["hours"] == pytest.approx(1.25 / 0.8)
    assert told["job"]["money"] == pytest.approx([25.0, 37.5])


def test_what_is_not_known_is_none() -> None:
    told = bill(Job("mine", 8, 0.45, None, None), None)
    assert (told["step"]["money"], told["step"]["kwh"], told["million_tokens"], told["job"]) == (None,) * 4
    assert lines(told) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (8.6774e-6, "0.00000868"), (3.5, "3.5"), (15_612.0, "15,600"), (1.2e-12, "1.2e-12"), (2e15, "2e+15")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


# ---- prices ----------------------------------------------------------------------------------------------------------


def test_listed_prices_are_of_known_gpus_and_name_their_source() -> None:
    prices = load_prices()
    assert set(prices) <= set(gpu_names())
    assert prices["h100"] == Price(2.49, 3.99, "$", "pricegpu.pages.dev/blog/h100-vs-a100-cloud-price", "early 2026")
    assert all(one.source and one.date for one in prices.values())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "currency: missing"),
        (
            'currency = "$"\n[h100]\nlow = 3\nhigh = 2\nsource = "me"\ndate = "now"\n',
            ":3: h100.low: 3 is more than high",
        ),
        ('currency = "$"\n[h100]\nlow = 3\n', "h100.high: missing"),
        ('currency = "$"\n[h100]\nlow = 1\nhigh = 2\nsource = "me"\ndate = "now"\nx = 1\n', ":7: h100.x: unknown key"),
        ('currency = "$"\nh100 = 3\n', ":2: h100: expected a table"),
    ],
)
def test_prices_that_are_wrong(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=fault):
        load_prices(path)


# ---- reports ---------------------------------------------------------------------------------------------------------


def report(**changed: Any) -> dict[str, Any]:
    """Returns the part that is asked for money and energy."""
    simulated = {
        "world_size": 8,
        "gpu": "h100",
        "step": {"median_ns": 450_000_000, "source": "optimizer markers on rank 0"},
        "energy": {"gpu_w": 555.6, "step_j": 2000.0},
        "logged": [],
    }
    return {"simulated": simulated | changed}


@pytest.mark.parametrize(
    ("text", "of_all"),
    [("72,818 tokens/s", 32_768.1), ("tps: 9,102", 32_767.2), ("train_tokens_per_second_per_gpu=9102", 32_767.2)],
)
def test_tokens_are_those_that_the_script_logged(text: str, of_all: float) -> None:
    value = 72_818.0 if "72" in text else 9102.0
    found = job_of(report(logged=[{"rate": "MFU"}, {"rate": "tokens/s", "value": value, "text": text}]))
    assert found is not None
    assert found.tokens_per_step == pytest.approx(of_all)
    assert found.tokens_from == f"the script's log: {text}"


def test_a_run_without_steps_has_no_price() -> None:
    assert job_of(report(step={"median_ns": 10, "source": "the whole run: no steps"})) is None
    assert of_step(report(gpu_use={"unused_ranks": list(range(8))})) is None


def test_report_answers_for_a_whole_job(run_report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", str(run_report)]) == 0
    assert "1,000 steps cost $" in capsys.readouterr().out
    mine = tmp_path / "mine.toml"
    mine.write_text('currency = "EUR "\n[h200]\nlow = 2\nhigh = 2\nsource = "our contract"\ndate = "2026-11"\n')
    asked = ["--tokens", "1B", "--tokens-per-step", "1M", "--goodput", "50%", "--prices", str(mine)]
    assert cli.run(["report", str(run_report), *asked]) == 0
    shown = capsys.readouterr().out
    assert "price: EUR 2 an hour for one h200 (our contract, 2026-11)" in shown
    assert "the job: 1,000 steps, 1,000,000,000 tokens" in shown
    assert "at a goodput of 50.0%" in shown
    assert cli.run(["report", str(run_report), *asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["job"]["money"] == pytest.approx([2 * told["job"]["gpu_hours"]] * 2)
    assert told["job"]["hours"] == pytest.approx(told["step_s"] * 1000 / 0.5 / 3600)


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (["--tokens", "15T"], "it is not known how many a step has"),
        (["--tokens", "many", "--tokens-per-step", "1"], "--tokens many: expected a number"),
        (["--tokens", "1T", "--train-steps", "3"], "exclude each other"),
        (["--train-steps", "0"], "--train-steps 0: expected 1 to"),
        (["--goodput", "0.9"], "--goodput is of a whole job"),
        (["--train-steps", "9", "--goodput", "120%"], "--goodput 120%: expected a share"),
        (["--prices", "cheap"], "unknown price 'cheap'; known ones: listed"),
    ],
)
def test_questions_that_are_wrong(
    run_report: Path, capsys: pytest.CaptureFixture[str], asked: list[str], fault: str
) -> None:
    assert cli.run(["report", str(run_report), *asked]) == ExitCode.USAGE
    assert fault in capsys.readouterr().err


# ---- what `goodput` prints -------------------------------------------------------------------------------------------

FAILING = ["--checkpoint-stall", "60s", "--restart", "5m", "--runs", "20"]


def test_goodput_tells_money_with_the_time_that_is_lost(run_report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step_s = json.loads(run_report.read_text())["simulated"]["step"]["median_ns"] / 1e9
    asked = ["goodput", str(run_report), "--train-steps", "1000000", *FAILING]
    assert cli.run([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["spent"]["job"]["goodput"] == told["goodput"] < 1
    assert told["spent"]["job"]["hours"] == pytest.approx(step_s * 1e6 / 3600 / told["goodput"])
    assert cli.run(asked) == 0
    shown = capsys.readouterr().out
    assert "the job: 1,000,000 steps" in shown
    assert "at a goodput of 99." in shown


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (["--gpus", "32", "--train-steps", "9"], "on as many GPUs as it has"),
        (["--prices", "listed"], "are for a whole job"),
    ],
)
def test_money_that_goodput_cannot_tell(
    run_report: Path, capsys: pytest.CaptureFixture[str], more: list[str], fault: str
) -> None:
    assert cli.run(["goodput", str(run_report), *more, *FAILING]) == ExitCode.USAGE
    assert fault in capsys.readouterr().err
