"""Figures of the report against what the script did and printed."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from .conftest import Run, ranks_have

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


def test_a_run_that_uses_no_gpu_says_so_first(run: Run) -> None:
    done = run("no_gpu.py", n=1)
    assert done.exit_code == 0, done.output
    first, second, *others = (line for line in done.output.splitlines() if " | virtual " not in line)
    assert first.startswith("NO EMULATED GPU WAS USED")
    assert second == 'likely cause: CUDA_VISIBLE_DEVICES="" hides all GPUs (rank 0)'
    assert not any("a step takes" in line for line in others)


def test_a_checkpoint_is_told_as_a_whole(run: Run, tmp_path: Path) -> None:
    """By a path, a stream, from copies on the host, and sharded. What was computed is no matter."""
    done = run("checkpoints.py", str(tmp_path))
    assert done.exit_code == 0, done.output
    told = {Path(one["path"]).relative_to(tmp_path): one for one in done.simulated["checkpoints"]}
    expected = {"path/model.pt", "copied/model.pt", "stream/model.pt", "sharded"}
    assert {str(path) for path in told} == expected | (
        {"safe/model.safetensors"} if ranks_have("safetensors") else set()
    )
    assert told[Path("sharded")]["files"] == 2
    assert told[Path("sharded")]["ranks"] == [0, 1]
    for path, one in told.items():
        assert 0.98 < one["uncomputed_nbytes"] / one["written_nbytes"] <= 1, path
        files = list((tmp_path / path).glob("*.distcp")) or [tmp_path / path]
        assert one["written_nbytes"] == sum(file.stat().st_size for file in files)
    texts = [warning["text"] for warning in done.simulated["warnings"]]
    assert all(text.startswith("checkpoint ") for text in texts), texts
    assert len(texts) == len(told)


def test_steps_windows_and_the_script_s_own_figures_agree(run: Run, tmp_path: Path) -> None:
    done = run("figures.py", n=1, options=("--trace", str(tmp_path / "t.json")))
    assert done.exit_code == 0, done.output
    simulated, step = done.simulated, done.simulated["step"]
    # Step 1 begins with the run in traces, too.
    assert (step["first_listed"], step["first_counted"], step["last_counted"]) == (2, 4, 5)
    events = json.loads((tmp_path / "t.rank0.json").read_bytes())["traceEvents"]
    steps = {
        int(event["name"].partition("#")[2]): event["dur"] * 1e3
        for event in events
        if event.get("ph") == "X" and event["name"].startswith("ProfilerStep#")
    }
    assert set(steps) == {1, 2, 3, 4, 5}
    assert simulated["ranks"][0]["counted_steps"] == [4, 5]
    # What the script logged of its steps, and no bar.
    lines = [line for line in done.log(0).splitlines() if line.startswith("step ")]
    rate = float(lines[-1].split()[2])
    assert [(one["rate"], one["value"], one["window"]) for one in simulated["logged"]] == [
        ("tokens/s", rate, "steps"),
        ("MFU", 1.5, "steps"),
    ]
    assert f"; the script logged {simulated['logged'][0]['text']}" in done.output
    # Half of the square of attention: forward 2, backward 4 products of BATCH x HEADS x LENGTH x LENGTH x DEPTH x 2.
    whole = {"fwd": 2, "bwd": 4}
    attention = [one for one in simulated["kernels"]["signatures"] if one["signature"].startswith("sdpa;")]
    for one in attention:
        direction = one["signature"].split(";")[1]
        assert one["flops"] == pytest.approx(whole.pop(direction) * 2 * 2 * 4 * 256 * 256 * 64 / 2, rel=0.01)
    assert not whole
    # One window for the table and for where its times come from.
    assert simulated["cost_sources"]["gpu_ns"] == simulated["kernels"]["gpu_ns"]
    assert simulated["cost_sources_whole_run"]["gpu_ns"] > simulated["kernels"]["gpu_ns"]


def numbers(line: str) -> tuple[list[str], list[str]]:
    """A line's words, and the numbers between them."""
    found = re.split(r"(\d[\d,]*(?:\.\d+)?)", line)
    return [" ".join(text.split()) for text in found[::2]], [text.replace(",", "") for text in found[1::2]]


def about(shown: str, is_share: bool) -> object:
    """Returns a number that is about the one shown: within 1 %, for shares within 1 % of the whole, or one in the last
    decimal that is shown.
    """
    decimals = len(shown.partition(".")[2])
    last = 1.01 * 10.0**-decimals if decimals else 0.0
    return pytest.approx(float(shown), rel=0.01, abs=max(last, 1.0) if is_share else last)


def is_shown(text: str, printed: list[str]) -> None:
    """`text`: what a page shows, indented; `...` for any lines. Words and order must be those that were printed;
    figures may drift by 1 % (shares by a point), or in their last digit, until the page is written anew."""
    shown = [line[4:] for line in text.splitlines()]
    place = 0
    for number, line in enumerate(shown):
        if line == "...":
            continue
        words, figures = numbers(line)
        while numbers(printed[place])[0] != words:
            assert shown[number - 1] == "...", f"the page has {line!r} where the command prints {printed[place]!r}"
            place += 1
            assert place < len(printed), f"the page shows a line that is not printed: {line!r}"
        units = words[1:]  # the text that follows each number
        for found, figure, unit in zip(numbers(printed[place])[1], figures, units, strict=True):
            assert float(found) == about(figure, unit.startswith("%")), printed[place]
        place += 1


def test_readme_shows_what_its_command_prints(run: Run) -> None:
    text = (ROOT / "README.md").read_text()
    command, output = text[text.index("    phantora-async run") :].split("\n\n")[:2]
    program, verb, n, ranks, script, *arguments = command.split()
    assert (program, verb, n) == ("phantora-async", "run", "-n")
    done = run(ROOT / script, *arguments, n=int(ranks), options=("--no-progress",))
    assert done.exit_code == 0, done.output
    if [int(part) for part in done.report["run"]["versions"]["torch"].split(".")[:2]] < [2, 15]:
        pytest.skip("README shows figures of the newest PyTorch")
    is_shown(output, done.output.splitlines())


READ_ALOUD = [
    (command, output)
    for command, output in itertools.pairwise((ROOT / "docs" / "reading-a-report.md").read_text().split("\n\n"))
    if command.startswith("    phantora-async run")
]


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "output"), READ_ALOUD, ids=[command.strip() for command, _ in READ_ALOUD])
def test_the_reports_that_are_read_aloud_are_printed(run: Run, command: str, output: str, tmp_path: Path) -> None:
    program, verb, n, ranks, *others = shlex.split(command)
    assert (program, verb, n) == ("phantora-async", "run", "-n")
    script = others.index("examples/train.py")
    options = (*others[:script], "--no-progress")
    copy = tmp_path / others[script]  # below the run's working directory: lines are told as the command names it
    copy.parent.mkdir()
    shutil.copy(ROOT / others[script], copy)
    done = run(copy, *others[script + 1 :], n=int(ranks), options=options)
    assert done.exit_code == (1 if "does not fit" in output else 0), done.output
    is_shown(output, done.output.splitlines())
