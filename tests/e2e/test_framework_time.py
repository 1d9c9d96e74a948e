"""Figures of speed that frameworks print are simulated speed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ..frameworks.assets import write_tokenizer
from .conftest import Finished, Run, needs

pytestmark = pytest.mark.torch


def results_of(done: Finished) -> dict[str, Any]:
    """Returns what the script prints as one line of JSON."""
    assert done.exit_code == 0, done.output
    return dict(json.loads(next(line for line in done.output.splitlines() if line.startswith('{"'))))


def median_s(done: Finished) -> float:
    return float(done.simulated["step"]["median_ns"]) / 1e9


def test_tqdm(run: Run) -> None:
    needs("tqdm")
    done = run("frameworks/tqdm_rate.py", n=1)
    results = results_of(done)
    assert results["rate"] == pytest.approx(results["clock"], rel=0.002)
    assert results["average"] == pytest.approx(results["clock"], rel=0.002)
    assert results["clock"] == pytest.approx(1 / median_s(done), rel=0.002)
    printed = [float(rate) for rate in re.findall(r"([0-9.]+)it/s", done.output)]
    assert printed[-1] == pytest.approx(results["clock"], rel=0.002)


def test_hugging_face_trainer(run: Run, tmp_path: Path) -> None:
    needs("transformers")
    needs("accelerate")
    done = run("frameworks/hf_trainer.py", str(tmp_path), n=2)
    results = results_of(done)
    metrics, clock = results["metrics"], results["clock"]
    assert metrics["train_runtime"] == pytest.approx(clock["train"], rel=0.005)
    assert metrics["train_steps_per_second"] == pytest.approx(results["steps"] / clock["train"], rel=0.005)
    assert metrics["train_samples_per_second"] == pytest.approx(results["samples"] / clock["train"], rel=0.005)
    assert clock["step"] == pytest.approx(median_s(done), rel=0.005)


def test_lightning(run: Run, tmp_path: Path) -> None:
    needs("lightning")
    done = run("frameworks/lightning_fit.py", str(tmp_path), n=2)
    results = results_of(done)
    assert results["timer"] == pytest.approx(results["train"], rel=0.002)
    for rate in ("batches_per_sec", "samples_per_sec"):
        assert results[rate] == pytest.approx(results["clock"], rel=0.002)
        assert results[rate] == pytest.approx(1 / median_s(done), rel=0.002)


def test_deepspeed_throughput(run: Run) -> None:
    """Its timer leaves out what DeepSpeed does before and after a step."""
    needs("deepspeed")
    results = results_of(run("frameworks/deepspeed_engine.py", n=2))
    assert results["samples"] == pytest.approx(results["clock"], rel=0.01)


def test_deepspeed_breakdown(run: Run) -> None:
    """Its timers leave out what DeepSpeed does before and after each phase: Python that takes host time, too."""
    needs("deepspeed")
    done = run("frameworks/deepspeed_engine.py", "--breakdown", n=2)
    results = results_of(done)
    line = [line for line in done.output.splitlines() if "| fwd: " in line][-1]
    for phase in ("fwd", "bwd", "step"):
        found = re.search(rf"\b{phase}: ([0-9.]+)", line)
        assert found is not None, line
        assert 0.85 * results[phase] < float(found[1]) <= results[phase], (phase, line, results)


def test_megatron_timers(run: Run) -> None:
    needs("megatron")
    done = run("frameworks/megatron_timers.py", n=2)
    results = results_of(done)
    assert results["timers"] == pytest.approx(results["clock"], rel=0.005)
    assert results["timers"][-1] == pytest.approx(median_s(done), rel=0.005)


def test_torchtitan(run: Run, tmp_path: Path) -> None:
    needs("torchtitan.trainer")  # torchtitan 0.3, whose flags these are
    needs("datasets")
    assets = tmp_path / "tests" / "assets"  # where its debug configuration looks
    write_tokenizer(assets / "tokenizer")
    (assets / "c4_test").mkdir()
    (assets / "c4_test" / "data.json").write_text((json.dumps({"text": "a b c d " * 2000}) + "\n") * 40)
    script = "torchtitan.train"
    arguments = ("--module", "llama3", "--config", "llama3_debugmodel", "--training.steps", "8")
    done = run(script, *arguments, n=2, options=("-m",))
    assert done.exit_code == 0, done.output
    tokens_per_s = [float(tps.replace(",", "")) for tps in re.findall(r"tps: ([0-9,.]+)", done.output)]
    assert len(tokens_per_s) == 8, done.output
    assert tokens_per_s[-1] == pytest.approx(8 * 2048 / median_s(done), rel=0.005)
