"""`run --ui [PORT]`: the port may be left out, and is taken before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from phantora_async import cli
from phantora_async.commands.run import with_ports

pytest.importorskip("aiohttp")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--ui", "train.py"], ["--ui=0", "train.py"]),
        (["--ui", "8080", "train.py"], ["--ui=8080", "train.py"]),
        (["--ui=8080", "train.py"], ["--ui=8080", "train.py"]),
        (["-n", "4", "--ui", "-m", "train"], ["-n", "4", "--ui=0", "-m", "train"]),
        (["--ui"], ["--ui=0"]),
        (["train.py", "--ui", "3"], ["train.py", "--ui", "3"]),  # the script's own
        (["--value", "--ui", "train.py"], ["--value", "--ui", "train.py"]),
        (["--launcher", "--", "torchrun", "--ui"], ["--launcher", "--", "torchrun", "--ui"]),
    ],
)
def test_the_port_may_be_left_out(given: list[str], expected: list[str]) -> None:
    assert with_ports(given) == expected


def test_a_port_in_use_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run_dir = tmp_path / "run"
        assert cli.run(["run", "--ui", str(port), "--run-dir", str(run_dir), str(tmp_path / "train.py")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --ui {port}: another program uses this port\nhint: choose another port")
    assert not run_dir.exists()


def test_an_impossible_port_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()
    assert cli.run(["run", "--ui", "99999", "--run-dir", str(tmp_path / "run"), str(tmp_path / "train.py")]) == 2
    assert "expected a port from 0 to 65535" in capsys.readouterr().err
