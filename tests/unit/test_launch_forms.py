"""Other launchers given to `run`: the right command is named. torchrun's options are accepted or explained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from emu.contract import isolation
from emu.start.advice import advice
from emu.start.launching import why_not
from phantora_async.commands.run import with_ports
from phantora_async.config import resolve
from phantora_async.errors import UsageError
from phantora_async.options import RunOptions


@pytest.mark.parametrize(
    ("script", "arguments", "module", "hint"),
    [
        (
            "torchrun",
            ["--nproc-per-node", "2", "train.py"],
            False,
            "phantora-async run -n 2 --launcher -- torchrun --nproc-per-node 2 train.py",
        ),
        (
            "/opt/env/bin/accelerate",
            ["launch", "t.py"],
            False,
            "phantora-async run -n 2 --launcher -- /opt/env/bin/accelerate launch t.py",
        ),
        (
            "torch.distributed.run",
            ["t.py"],
            True,
            "phantora-async run -n 2 --launcher -- python -m torch.distributed.run t.py",
        ),
        (
            "python",
            ["-m", "torch.distributed.launch", "t.py"],
            False,
            "phantora-async run -n 2 --launcher -- python -m torch.distributed.launch t.py",
        ),
        ("python3", ["-u", "t.py", "--lr", "1"], False, "phantora-async run -n 2 t.py --lr 1"),
        ("mpirun", ["-np", "4", "python", "t.py"], False, "phantora-async run -n 2 t.py"),
        ("srun", ["-N2", "./job.sh"], False, "phantora-async run -n 2 train.py"),
        ("env", ["A=1", "trains"], False, "phantora-async run -n 2 --launcher -- env A=1 trains"),
    ],
)
def test_the_right_command_is_named(script: str, arguments: list[str], module: bool, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        resolve(RunOptions(script, arguments, world_size=2, module=module))
    assert hint in raised.value.hint


def test_a_script_may_have_a_launcher_s_name(tmp_path: Path) -> None:
    (tmp_path / "deepspeed").mkdir()
    (tmp_path / "deepspeed" / "__main__.py").write_text("")
    options = RunOptions(tmp_path / "deepspeed", world_size=2, run_dir=tmp_path / "run")
    assert resolve(options).script == str(tmp_path / "deepspeed")


def test_options_of_torchrun_without_effect_become_remarks() -> None:
    given = ["--standalone", "--rdzv_backend=c10d", "--nproc_per_node", "gpu", "--master_port", "29500", "-n", "2"]
    *kept, remark, script, argument = with_ports([*given, "--max-restarts=0", "--tee", "3", "train.py", "--tee"])
    assert (script, argument) == ("train.py", "--tee")
    assert [*kept][:2] == ["-n", "2"]
    assert "--standalone, --rdzv-backend, --master-port of torchrun: no effect" in kept[2]
    assert "--tee of torchrun: no effect" in remark
    assert len(kept) == 3


@pytest.mark.parametrize(
    "words", [["--no-python", "x"], ["--nnodes", "1:4", "x"], ["--nnodes=1:4", "x"], ["--rdzv-id"]]
)
def test_options_of_torchrun_that_ask_for_something_else_are_explained(words: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        with_ports(words)
    assert raised.value.hint


def test_a_launcher_of_another_environment_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        for program in ("python", "torchrun"):
            (tmp_path / name / program).write_text(f"#!{tmp_path / name}/python\n")
            (tmp_path / name / program).chmod(0o700)
    options = RunOptions(
        tmp_path / "other" / "torchrun",
        ["t.py"],
        launcher=True,
        python=tmp_path / "one" / "python",
        world_size=2,
        run_dir=tmp_path / "run",
    )
    with pytest.raises(UsageError) as raised:
        resolve(options)
    assert f"{tmp_path}/one/torchrun" in raised.value.hint
    assert f"--python {tmp_path}/other/python" in raised.value.hint
    resolve(dataclasses.replace(options, script=tmp_path / "one" / "torchrun"))


def test_a_script_that_spawns_its_ranks_under_n_is_told_of_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = type("ProcessRaisedException", (Exception,), {})("-- Process 1 terminated with the following error:")
    monkeypatch.setenv("RANK", "0")
    assert "--launcher -- python" in advice(failed)
    monkeypatch.delenv("RANK")
    assert not advice(failed)


@pytest.mark.parametrize(
    "text", ["[Errno -3] Temporary failure in name resolution", "Couldn't reach 'imdb' on the Hub"]
)
def test_a_script_that_downloads_is_told_of_the_network(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = RuntimeError("no data")
    failed.__cause__ = OSError(text)
    for network, told in (("private", True), ("host", False)):
        hosts = tmp_path / network
        hosts.write_text(isolation.hosts_file(2, network))
        monkeypatch.setattr("emu.start.advice.HOSTS", hosts)
        assert ("--network host" in advice(failed)) is told
    assert not advice(RuntimeError("no data"))


def test_a_launcher_that_is_not_installed_is_named_with_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PHANTORA_PYTHON", "/x/bin/python")
    missing = FileNotFoundError(2, "No such file or directory")
    assert why_not("torchrun", missing).startswith("it is neither beside /x/bin/python (--python names another one)")
    assert why_not("./launch.sh", missing) == "No such file or directory"
    assert why_not("torchrun", PermissionError(13, "Permission denied")) == "Permission denied"
