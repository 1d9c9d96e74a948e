"""`phantora-async profile --host`: options, and the file that it writes; the measurement itself is another test's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import profiles
from phantora_async import cli, host_profile, local_gpus
from phantora_async.errors import EnvironmentUnusable
from phantora_async.host_profile import MeasuredMachine, Measurement, measurement
from phantora_async.host_profile.measurement import _of_mean_rank, _steadiness, by_run

KNOWN = profiles.load_host("xeon-h200")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Measures a machine with two GPUs where everything takes twice what it takes on the known host. Returns the GPUs
    asked for.
    """
    asked: list[int] = []

    def measure(
        python: Path,
        gpus: int,
        rounds: int,
        like: profiles.HostModel,
        say: Callable[[str], None],
        programs: Sequence[str] = (),
    ) -> Measurement:
        asked.append(gpus)
        kinds = (*profiles.CALL_KINDS, *profiles.WORK_KINDS)
        counts = {kind: {kind: 1e6 / max(1.0, KNOWN.cost_ns[kind]), "op": 10.0} for kind in kinds}
        work = {
            name: 2 * sum(KNOWN.cost_ns[kind] * n for kind, n in units.items() if kind in profiles.WORK_KINDS)
            for name, units in counts.items()
        }
        real = {name: 2 * sum(KNOWN.cost_ns[kind] * n for kind, n in units.items()) for name, units in counts.items()}
        machine = MeasuredMachine("Xeon", 64, "6.1", "3.12.3", "2.11.0", "NVIDIA H200" if gpus else "", gpus)
        if programs:
            chosen = zip(programs, ("launch", "op"), strict=True)
            counts = {program: counts[kind] | {"launch": 40.0} for program, kind in chosen}
            real = {
                name: 2 * sum(KNOWN.cost_ns[kind] * n for kind, n in units.items()) for name, units in counts.items()
            }
        return Measurement(machine, counts, real if gpus else None, work, 0.95, 1.2, {"p9": "RuntimeError: no"})

    monkeypatch.setattr(local_gpus, "names", lambda python: ["NVIDIA H200"] * 2)
    monkeypatch.setattr(host_profile, "measure", measure)
    return asked


def test_the_file_is_a_host_with_its_provenance(
    measured: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert cli.run(["profile", "--host", "--output", str(path)]) == 0
    host = profiles.load_host(path)
    assert measured == [2]
    assert host.cost_ns["launch"] == pytest.approx(2 * KNOWN.cost_ns["launch"], rel=0.1)
    assert host.cost_ns["op"] == pytest.approx(2 * KNOWN.cost_ns["op"], rel=0.1)
    assert (host.spread.fast, host.spread.slow) == (0.95, 1.2)
    assert host.measured["gpu"] == "2 x NVIDIA H200"
    assert "calls measured" in host.measured["programs"]
    said = capsys.readouterr().out
    assert "left out: p9 (RuntimeError: no)" in said
    assert f"{path}: written after" in said
    assert "next: phantora-async profiles copy" in said


def test_two_probes_give_the_known_host_times_a_factor(
    measured: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert cli.run(["profile", "--host", "--quick", "--output", str(path)]) == 0
    host = profiles.load_host(path)
    assert host.cost_ns == pytest.approx({kind: 2 * ns for kind, ns in KNOWN.cost_ns.items()}, rel=0.01)
    assert (host.spread.fast, host.spread.slow, host.spread.error) == (0.95, 1.2, 0.18)
    assert "2 of emu.hostbench" in host.measured["programs"]
    assert "costs of xeon-h200 times one factor" in host.measured["programs"]
    assert "profile --host --quick" in path.read_text()


def test_what_no_host_takes_is_not_written(
    measured: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profiles.host, "MOST_COST_NS", 10_000.0)
    path = tmp_path / "mine.toml"
    monkeypatch.setattr("phantora_async.commands.profiling.host.load_host", _bounded(path))
    assert cli.run(["profile", "--host", "--output", str(path)]) == EnvironmentUnusable.exit_code
    said = capsys.readouterr().err
    assert "no host takes what was measured" in said
    assert not path.exists()


def _bounded(written: Path) -> Callable[[object], profiles.HostModel]:
    """Returns a reader that reads the known host as it is, and what was written within MOST_COST_NS."""

    def load(name: object) -> profiles.HostModel:
        return profiles.load_host(written) if name == written else KNOWN

    return load


def test_without_a_gpu_the_file_says_whose_calls_it_has(
    measured: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert cli.run(["profile", "--host", "--gpus", "0", "--output", str(path)]) == 0
    host = profiles.load_host(path)
    assert host.cost_ns["launch"] == pytest.approx(KNOWN.cost_ns["launch"], rel=0.01)
    assert host.measured["gpu"] == "none"
    assert "calls as on xeon-h200: no GPU here" in host.measured["programs"]
    assert "no GPU here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--gpus", "3"], "--gpus 3: PyTorch sees 2 here"),
        (["--rounds", "0"], "--rounds 0: at least 1"),
        (["--output", "mine.json"], "--output mine.json: expected a file"),
        (["--output", "/nowhere/at/all/mine.toml"], "expected a file in an existing folder"),
    ],
)
def test_bad_options(measured: list[int], options: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["profile", "--host", *options]) == 2
    assert fault in capsys.readouterr().err
    assert measured == []


def test_it_says_what_it_is_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["profile"]) == 2
    assert "say what to measure: --host" in capsys.readouterr().err


def test_one_thing_at_a_time(measured: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["profile", "--host", "train.py"]) == 2
    assert "--host" in capsys.readouterr().err
    assert measured == []


def test_both_runs_of_a_program_have_a_name() -> None:
    assert by_run({"first": {"a": {"cold_op": 12.0}}, "again": {"a": {"warm_op": 4.0}}}) == {
        "a": {"cold_op": 12.0},
        "a, again": {"warm_op": 4.0},
    }


def test_of_several_ranks_the_mean_one_counts() -> None:
    ranks = [{"first": {"a": [8, 10, 99]}, "again": {"a": [5]}}, {"first": {"a": [20]}, "again": {"a": [7]}}]
    assert _of_mean_rank(ranks) == {"a": 15.0, "a, again": 6.0}


def test_steadiness_is_the_middle_program_s() -> None:
    steady, shaky = [100] * 20, [50, 100, 100, 200] * 5
    assert _steadiness({"a": steady, "b": steady, "c": shaky}) == (1.0, 1.0)
    fast, slow = _steadiness({"a": shaky})
    assert fast == pytest.approx(0.5)
    assert slow == pytest.approx(2.0)
    assert _steadiness({"a": [1, 2]}) == (1.0, 1.0)


def _program(tmp_path: Path, body: str) -> Path:
    """Returns an "interpreter" that does this instead of running emu.hostbench."""
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)
    return program


def test_a_process_that_fails_ends_the_others(tmp_path: Path) -> None:
    body = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('no memory')\ntime.sleep(3600)"
    ranks = [{"RANK": "0"}, {"RANK": "1"}]
    with pytest.raises(EnvironmentUnusable) as raised:
        measurement._run(_program(tmp_path, body), [measurement._Part(["real"], ranks)])
    assert "emu.hostbench real ended with exit code 1 (process 1 of 2)" in str(raised.value)
    assert "no memory" in raised.value.details


def test_a_process_that_hangs_is_ended_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "TIMEOUT_S", 1.0)
    body = "import faulthandler, time\nfaulthandler.enable()\ndef stuck(): time.sleep(3600)\nstuck()"
    with pytest.raises(EnvironmentUnusable) as raised:
        measurement._run(_program(tmp_path, body), [measurement._Part(["detached"], [{}])])
    assert "emu.hostbench detached did not end within 1 s" in str(raised.value)
    assert "in stuck" in raised.value.details


def test_processes_are_ranks_only_if_they_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    body = "import json, os\nprint(json.dumps({'rank': os.environ.get('RANK')}))"
    program = _program(tmp_path, body)
    count, real = measurement._Part(["count"], [{}]), measurement._Part(["real"], [{"RANK": "0"}, {"RANK": "1"}])
    assert measurement._run(program, [count]) == [[{"rank": None}]]
    assert measurement._run(program, [real, count]) == [[{"rank": "0"}, {"rank": "1"}], [{"rank": None}]]


ANSWER = {"first": {}, "again": {}, "failed": {}, "no_calls": ["a"], "python": "3", "torch": "2", "gpu": "H100"}
"""The answer of emu.hostbench without its times."""


def test_only_the_real_programs_have_the_user_s_list_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others run on one emulated GPU, number 0."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    log = tmp_path / "lists"
    body = (
        "import json, os, sys\n"
        f"part = next(word for word in sys.argv if word in ('count', 'detached', 'real'))\n"
        f"open({str(log)!r}, 'a').write(part + ' ' + os.environ['CUDA_VISIBLE_DEVICES'] + '\\n')\n"
        "for turn in range(3): print('NCCL INFO\\nround', turn)\n"
        f"print(json.dumps({ANSWER!r} | {{'first': {{'a': [1.0, 1.0]}}}}))"
    )
    measurement.measure(_program(tmp_path, body), 1, 2, KNOWN, lambda text: None)
    assert sorted(log.read_text().split("\n")[:-1]) == ["count 0", "detached 0", "real 3"]


def test_a_host_that_drifts_does_not_change_what_the_driver_takes(tmp_path: Path) -> None:
    """The programs run on the GPU and in front of a library that does nothing by turns, round by round."""
    turns = tmp_path / "turns"
    body = (
        "import json, os, sys\n"
        "ns = []\n"
        "rounds = int(sys.argv[sys.argv.index('--rounds') + 1]) + 1 if '--rounds' in sys.argv else 0\n"
        "for turn in range(rounds):\n"
        "    sys.stdin.readline()\n"
        f"    at = os.path.getsize({str(turns)!r}) if os.path.exists({str(turns)!r}) else 0\n"
        f"    open({str(turns)!r}, 'a').write('r' if 'real' in sys.argv else 'd')\n"
        "    ns.append(100 + 20 * (at // 2) + (50 if 'real' in sys.argv else 0))\n"  # a slower host in each round
        "    print('round', turn, flush=True)\n"
        f"print(json.dumps({ANSWER!r} | {{'first': {{'a': ns}}, 'again': {{'a': [7] * 7}}}}))"
    )
    measured = measurement.measure(_program(tmp_path, body), 1, 6, KNOWN, lambda text: None)
    assert turns.read_text() == "rd" * 7
    assert measured.real_ns == {"a": 100 + 20 * 3 + 50, "a, again": 7}
    assert measured.detached_ns == {"a": 100 + 20 * 3, "a, again": 7}
    assert measured.no_calls == ("a",)
