"""`--steps` and `--until`: a run ends before its script does, with a complete report."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SCRIPTS, Finished, Run

pytestmark = pytest.mark.torch


def lines(done: Finished) -> list[str]:
    return [line for line in done.output.splitlines() if line.startswith("step ")]


def test_steps_are_those_of_a_script_that_stops_there(run: Run, tmp_path: Path) -> None:
    """The figures are those of a script of three steps; no line is lost, nor one that is not flushed."""
    held = run("stepping.py", "--clock", "--log", str(tmp_path / "log"), options=("--steps", "3"))
    assert held.exit_code == 0, held.output
    assert "stopped by --steps 3; the script did not end" in held.output
    assert [(tmp_path / f"log{rank}").read_text() for rank in range(2)] == ["step 1\nstep 2\nstep 3\n"] * 2
    ended = run("stepping.py", "--clock", "--steps", "3")
    assert "ended" in ended.output
    assert lines(held) == lines(ended)
    assert [rank["steps"] for rank in held.simulated["ranks"]] == [3, 3]
    begun_ns = [done.simulated["step"].pop("from_ns") for done in (held, ended)]
    assert held.simulated["step"] == ended.simulated["step"]
    assert abs(begun_ns[0] - begun_ns[1]) < 10_000, "reading another command line takes another time"
    assert held.report["stopped"]["option"] == "--steps 3"
    assert ended.report["stopped"] is None


def test_steps_that_the_record_plays_are_those_that_the_script_would_do(run: Run) -> None:
    """Six of ten are done, of which the last two are alike; the script prints no more than these. Only what comes
    behind the last step is not played. How often the host waits is known of steps that were done, and left out.
    """
    played = run("stepping.py", options=("--steps", "10", "--real-steps", "6"))
    assert played.exit_code == 0, played.output
    assert lines(played) == [f"step {step} loss 0.000" for step in range(1, 7)]
    done = run("stepping.py", options=("--steps", "10"))
    differing = {name for name in done.simulated if played.simulated.get(name) != done.simulated[name]}
    assert differing <= {"logged", "virtual_ns", "activity", "links", "calls"}
    assert played.simulated["step"] == done.simulated["step"]
    assert [rank["steps"] for rank in played.simulated["ranks"]] == [10, 10]


def test_a_rank_without_steps_ends_with_the_others(run: Run) -> None:
    done = run("stepping.py", "--idle-rank", "2", n=3, options=("--steps", "2"))
    assert done.exit_code == 0, done.output
    assert lines(done) == ["step 1 loss 0.000", "step 2 loss 0.000"]
    assert "stopped by --steps 2; the script did not end; rank 2 has no optimizer steps" in done.output


def test_until_an_instant(run: Run, tmp_path: Path) -> None:
    done = run("stepping.py", "--clock", "--log", str(tmp_path / "log"), options=("--until", "30ms"))
    assert done.exit_code == 0, done.output
    assert "stopped by --until 30ms of virtual time" in done.output
    assert done.simulated["virtual_ns"] == 30_000_000
    last = lines(done)[-1]
    assert 0.015 < float(last.rpartition(" ")[2]) < 0.03
    # The script may be stopped between a step's line on the terminal and the one in its file.
    written = [f"step {step}" for step in range(1, int(last.split()[1]))]
    assert written == (tmp_path / "log0").read_text().splitlines()[: len(written)] != []


def test_a_launcher_s_ranks_end_as_well(run: Run) -> None:
    script = str(SCRIPTS / "stepping.py")
    done = run("torchrun", "--nproc-per-node", "2", script, options=("--steps", "2", "--launcher", "--"))
    assert done.exit_code == 0, done.output
    assert lines(done) == ["step 1 loss 0.000", "step 2 loss 0.000"]
    assert "stopped by --steps 2" in done.output
