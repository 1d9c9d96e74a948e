"""A study's file: what it says, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.errors import ExitCode, UsageError
from phantora_async.study.trials import trial as trial_module
from phantora_async.study.trials.study_file import check_options, read
from phantora_async.study.trials.trial import identifier, name_of

from .conftest import Runs

RUN: dict[str, Any] = {"script": "train.py", "world_size": 2}


def test_all_combinations_and_single_trials(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("""
        tokens_per_step = "1000 * batch * world_size"
        only = ["batch * world_size <= 8"]
        objectives = ["money"]
        [run]
        script = "train.py"
        arguments = ["--layers", "32"]
        max_memory = "76GiB"
        min_mfu = 0.4
        "--fused" = true
        [grid]
        world_size = [2, 4]
        "--batch" = [1, 2, 4]
        [[trial]]
        world_size = 2
        "--batch" = 3
        "--fused" = false
        "optim.lr=" = 0.1
        "$OMP_NUM_THREADS" = 8
    """)
    study = read(tmp_path / "study.toml")
    assert [one.name for one in study.trials] == [
        "world_size=2 batch=1",
        "world_size=2 batch=2",
        "world_size=2 batch=4",
        "world_size=4 batch=1",
        "world_size=4 batch=2",  # not 4 * 4
        "world_size=2 batch=3 fused=false optim.lr=0.1 OMP_NUM_THREADS=8",
    ]
    first, last = study.trials[0], study.trials[-1]
    assert list(first.options.arguments) == ["--layers", "32", "--fused", "--batch", "1"]
    assert (first.options.world_size, first.options.steps, first.tokens_per_step) == (2, 5, 2000.0)
    assert list(last.options.arguments) == ["--layers", "32", "--batch", "3", "optim.lr=0.1"]
    assert last.environment == {"OMP_NUM_THREADS": "8"}
    assert study.goal.limits.by_figure == {"memory": 76 * 2**30, "mfu": 0.4}
    assert study.goal.objectives == ("money",)
    assert first.options.max_memory is None, "a limit is judged afterwards: the run shall not fail"


def test_trials_that_are_the_same_are_one(runs: Runs) -> None:
    study = read({"run": RUN, "grid": {"--batch": [1, 1]}, "trial": [{"--batch": 1}]})
    assert len(study.trials) == 1


def test_what_a_program_is(runs: Runs) -> None:
    """Other prices, networks and hosts are replayed; another compute capability or another server is not."""

    def programs(**grid: list[Any]) -> int:
        return len({one.program for one in read({"run": RUN, "grid": grid}).trials})

    same = {"gpu": ["h100", "h200"], "host": ["modelled", "none"], "nccl": ["", "NCCL_ALGO=Ring"]}
    assert programs(**same, set_network=["", "server.nic_gbps=800"], fault=["", "host 0 at 0.5x"]) == 1
    assert programs(gpu=["h100", "a100-80g"]) == 2
    assert programs(cluster=["dgx-h100", "dgx-h200"]) == 1
    assert programs(world_size=[12], cluster=["dgx-h100", "p4d"]) == 2
    assert programs(steps=[5, 6]) == 2
    assert programs(**{"$X": ["a", "b"]}) == 2
    assert programs(host=["modelled", "measured"]) == 2, "measured times cannot be recorded"


def test_a_result_is_of_what_the_files_were(runs: Runs, tmp_path: Path) -> None:
    (before,) = read({"run": RUN, "trial": [{}]}).trials
    (tmp_path / "train.py").write_text("pass  # changed\n")
    (after,) = read({"run": RUN, "trial": [{}]}).trials
    assert before.key != after.key


@pytest.mark.parametrize(
    ("study", "fault"),
    [
        ({}, "run: missing"),
        ({"run": RUN}, "study: no trials"),
        ({"run": {}, "trial": [{}]}, "expected script"),
        ({"run": RUN, "grid": {"gpus": ["h100"]}}, "grid.gpus: unknown key; did you mean gpu?"),
        ({"run": RUN, "grid": {"gpu": "h100"}}, "grid.gpu: expected a list"),
        ({"run": RUN, "grid": {"gpu": []}}, "grid.gpu: expected a list of one value or more"),
        ({"run": RUN | {"min_mfu": "140%"}, "trial": [{}]}, "run.min_mfu: expected at most 100.0%, found '140%'"),
        ({"run": RUN | {"max_memory": "-1GiB"}, "trial": [{}]}, "run.max_memory: expected a value such as"),
        ({"run": RUN, "grid": {"--a": list(range(400)), "--b": list(range(400))}}, "more than 100,000 combinations"),
        ({"run": RUN, "grid": {"record": ["x"]}}, "grid.record: not for a sweep"),
        ({"run": RUN, "grid": {"max_memory": ["1GiB"]}}, "belongs to \\[run\\]"),
        ({"run": RUN, "grid": {"world_size": ["two"]}}, "grid.world_size: expected a whole number"),
        ({"run": RUN | {"max_memory": "much"}, "trial": [{}]}, "run.max_memory: expected a value such as"),
        ({"run": RUN, "trial": [{}], "only": ["batch > 1"]}, "only: 'batch > 1': unknown name 'batch'"),
        ({"run": RUN, "trial": [{}], "only": ["world_size > 2"]}, "study: `only` holds for none of 1 trials"),
        ({"run": RUN, "trial": [{}], "tokens_per_step": "1 / 0"}, "tokens_per_step: '1 / 0'"),
        ({"run": RUN, "trial": [{}], "tokens_per_step": -5}, "expected a number above 0"),
        ({"run": RUN, "trial": [{}], "objectives": []}, "objectives: is empty: nothing would be compared"),
        ({"run": RUN, "trial": [{}], "objectives": ["speed"]}, "unknown objective \"speed\"|unknown objective 'speed'"),
        ({"run": RUN, "trial": [{"--a": {"b": 1}}]}, "expected a text, a number"),
        ({"run": RUN, "trial": [{"nccl": 3}]}, "nccl: expected texts"),
        ({"run": RUN | {"arguments": "x y"}, "trial": [{}]}, "arguments: expected a list of texts"),
        ({"run": RUN, "trial": [{}], "pruning": True}, "pruning: unknown key"),
    ],
)
def test_studies_that_are_wrong(runs: Runs, study: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read(study)


def test_no_trial_starts_if_one_cannot(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.toml").write_text('[run]\nscript = "train.py"\n[grid]\ngpu = ["h100", "h300"]\n')
    assert cli.run(["sweep", "study.toml"]) == ExitCode.USAGE
    assert "h300" in capsys.readouterr().err
    assert runs.asked == []


def test_names() -> None:
    assert identifier("--micro-batch.size=") == "micro_batch_size"
    assert name_of({"--a": True, "gpu": "h100", "nccl": ["A=1", "B=2"]}) == "a=true gpu=h100 A=1 B=2"
    assert name_of({"nccl": ""}) == "as it is"


def test_the_example_can_start() -> None:
    study = read(Path(__file__).parents[3] / "examples" / "sweep.toml")
    assert len(study.trials) > 4
    check_options(study, "study")


@pytest.mark.parametrize("name", ["own_version", "torch_version"])
def test_another_version_makes_another_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What an earlier PyTorch or an earlier model gave is not known of this one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    study = {"run": RUN, "trial": [{}]}
    before = read(study).trials[0]
    first = before.key, before.program
    monkeypatch.setattr(trial_module, name, lambda *_: "another")
    after = read(study).trials[0]
    assert after.key != first[0]
    assert after.program != first[1], "its recording is not replayed either"


def test_an_edit_of_a_module_that_the_script_imports_makes_another_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import model\n")
    (tmp_path / "model.py").write_text("def make():\n    from layers import block\n")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("")
    (tmp_path / "layers" / "block.py").write_text("WIDTH = 1\n")
    (tmp_path / "other.py").write_text("WIDTH = 1\n")

    def keys() -> tuple[str, str]:
        (trial,) = read({"run": RUN, "trial": [{}]}).trials
        return trial.key, trial.program

    first = keys()
    (tmp_path / "other.py").write_text("WIDTH = 2\n")
    assert keys() == first, "nobody imports it"
    (tmp_path / "layers" / "block.py").write_text("WIDTH = 2\n")
    edited = keys()
    assert edited[0] != first[0]
    assert edited[1] != first[1], "its recording is not replayed either"
    (tmp_path / "layers" / "block.py").write_text("WIDTH = 1\n")
    assert keys() == first
