"""`sweep`: what is run, what is replayed, what is kept, what is told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.api import running
from phantora_async.errors import (
    EnvironmentUnusable,
    JobsFailed,
    NotFoldable,
    NotWritten,
    PathChanged,
    RankDied,
    UsageError,
)
from phantora_async.options import RunOptions
from phantora_async.study import machines
from phantora_async.study.sweeping import sweep
from phantora_async.study.trials.store import FILE
from phantora_async.study.trials.study_file import read
from phantora_async.study.trials.trial import Trial

from .conftest import Runs

RUN: dict[str, Any] = {"script": "train.py", "world_size": 2}


def grid(**lists: list[Any]) -> dict[str, Any]:
    return {"run": RUN, "grid": lists}


def stored(folder: str) -> list[tuple[Any, ...]]:
    """Returns the rows of the database, in their order."""
    with closing(sqlite3.connect(Path(folder) / FILE)) as database:
        return list(database.execute("SELECT * FROM trials ORDER BY number"))


def hows(swept: Any) -> list[tuple[str, str]]:
    return [(one.result.name, one.result.how) for one in swept.trials]


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_of_each_program_is_run_and_the_others_are_replays(runs: Runs, jobs: int) -> None:
    swept = sweep(grid(**{"--fast": [False, True], "gpu": ["h100", "h200"], "nccl": ["", "NCCL_ALGO=Ring"]}), jobs=jobs)
    assert sorted(runs.arguments) == [[], ["--fast"]]
    assert {options.gpu for options in runs.asked} == {"h200"}, "which has more memory"
    assert hows(swept)[:4] == [
        ("fast=false gpu=h100", "replay"),
        ("fast=false gpu=h100 NCCL_ALGO=Ring", "replay"),
        ("fast=false gpu=h200", "run"),
        ("fast=false gpu=h200 NCCL_ALGO=Ring", "replay"),
    ]
    assert len(stored("phantora-sweep")) == 8
    assert all(one.result.good for one in swept.trials)


def test_a_setting_changes_what_a_replay_gives(runs: Runs) -> None:
    slow, fast = sweep(grid(set_network=["server.gpu_gbps=100", "server.gpu_gbps=1000"])).trials
    assert slow.job is not None
    assert fast.job is not None
    assert slow.job.step_s > 2 * fast.job.step_s
    assert [options.record is not None for options in runs.asked] == [True], "one run that no trial asked for as it is"


async def test_in_a_running_event_loop(runs: Runs) -> None:
    """A notebook is such a place: `sweep` is called as it is, or in a thread, which lets the loop go on."""
    study = grid(nccl=["", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree"])
    at_once = sweep(study, folder="one", jobs=2)
    in_thread = await asyncio.to_thread(sweep, study, folder="other", jobs=2)
    assert (
        hows(in_thread)
        == hows(at_once)
        == [("as it is", "run"), *((name, "replay") for name in study["grid"]["nccl"][1:])]
    )


@pytest.mark.parametrize(("cores", "memory_gib", "count"), [(2, 100, 1), (16, 100, 4), (16, 4, 2), (16, 1, 1)])
def test_as_many_at_a_time_as_cores_and_memory_allow(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, cores: int, memory_gib: int, count: int
) -> None:
    """Five runs of four ranks: a core for each rank, and 800 MiB besides 128 MiB for each."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(machines.psutil, "virtual_memory", lambda: SimpleNamespace(available=memory_gib << 30))
    trials = read({"run": RUN | {"world_size": 4}, "grid": {"--n": [1, 2, 3, 4, 5]}}).trials
    assert machines.Here("auto").runs_at_a_time(trials, []) == count
    assert machines.Here(3).runs_at_a_time(trials, []) == 3


def test_a_folded_run_needs_a_core_for_each_of_its_processes(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 ranks: the first, the last, one that plays the others, and a witness."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(machines.psutil, "virtual_memory", lambda: SimpleNamespace(available=100 << 30))
    folded = RUN | {"world_size": 64, "nproc_per_node": 8, "fold": "dp=64"}
    trials = read({"run": folded, "grid": {"--n": [1, 2, 3, 4, 5]}}).trials
    assert trials[0].ranks == 4
    assert machines.Here("auto").runs_at_a_time(trials, []) == 4


REPLICAS = "model = DistributedDataParallel(model)\n"


def test_trials_fold_by_themselves(runs: Runs) -> None:
    """Of 64 replicas, a few have processes. Faults, and a study that says how to fold, keep a process for each rank."""
    Path("train.py").write_text(REPLICAS)
    wide = RUN | {"world_size": 64, "nproc_per_node": 8}
    (plain,) = read({"run": wide, "trial": [{}]}).trials
    (unfolded,) = read({"run": wide | {"fold": "none"}, "trial": [{}]}).trials
    (faulty,) = read({"run": wide | {"fault": ["gpu 3 at 0.5x"]}, "trial": [{}]}).trials
    (slow,) = read({"run": wide | {"slow_gpu": ["3=0.5"]}, "trial": [{}]}).trials
    assert plain.folded
    assert plain.ranks < 64
    assert "--fold auto" in plain.command(None)
    for one in (unfolded, faulty, slow):
        assert (one.folded, one.ranks) == (False, 64)
        assert "--fold" not in one.command(None)
        assert one.program != plain.program
        assert one.key != plain.key, "what a folded run gave is no result of it"
    swept = sweep({"run": wide, "grid": {"gpu": ["h100", "h200"]}})
    assert [(options.fold, options.record is not None) for options in runs.asked] == [("auto", True)]
    assert len(swept.trials) == 2


def test_a_trial_that_cannot_be_folded_runs_with_all_processes(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second run waits for room for all of them."""
    Path("train.py").write_text(REPLICAS)
    room: list[int] = []

    @contextmanager
    def entered(trial: Trial) -> Iterator[None]:
        room.append(trial.ranks)
        yield

    monkeypatch.setattr(machines.Here, "room_for", lambda *_: entered)

    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        if options.fold is not None:
            raise NotFoldable("rank 3 is a witness, and does something else")

    runs.change = change
    swept = sweep({"run": RUN | {"world_size": 64, "nproc_per_node": 8}, "trial": [{}]})
    assert [options.fold for options in runs.asked] == ["auto", None]
    assert room == [swept.trials[0].trial.ranks, 64]
    assert room[0] < 64
    assert swept.trials[0].result.good
    assert "as it is: again with a process for each rank" in capsys.readouterr().err
    assert "--fold" not in swept.command(swept.trials[0]), "the command is that of the run that gave the figures"


def test_a_large_trial_waits_for_room_and_holds_up_no_small_ones(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores: three trials of two ranks run together, and one of 64 alone."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(machines.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000 << 30))
    trials = read({"run": RUN | {"fold": "none"}, "grid": {"world_size": [64, 2], "--n": [1, 2, 3]}}).trials
    here = machines.Here("auto")
    assert here.runs_at_a_time(trials, []) == 3
    room = here.room_for([])
    small, large = (next(one for one in trials if one.ranks == ranks) for ranks in (2, 64))
    order: list[str] = []

    def wait() -> None:
        with room(large):
            order.append("large")

    with room(small), room(small):
        waiting = threading.Thread(target=wait)
        waiting.start()
        with room(small):
            order.append("small")
        order.append("end of the small ones")
    waiting.join()
    assert order == ["small", "end of the small ones", "large"]


def test_the_memory_of_a_trial_decides_as_its_cores_do(runs: Runs) -> None:
    room = machines.Room(cores=8, nbytes=100)
    entered: list[int] = []

    def wait() -> None:
        with room.entered(1, 60):
            entered.append(2)

    with room.entered(1, 60):
        waiting = threading.Thread(target=wait)
        waiting.start()
        with room.entered(1, 40):
            entered.append(1)
    waiting.join()
    assert entered == [1, 2], "60 and 60 bytes are more than 100"
    with room.entered(9, 1000):
        assert entered == [1, 2], "more than there is, and alone"


def test_a_trial_alone_is_not_recorded(runs: Runs) -> None:
    sweep(grid(**{"--fast": [False, True], "$A": ["1"]}))
    assert [options.record for options in runs.asked] == [None, None]
    assert runs.environments == [{"A": "1"}] * 2


def test_a_replay_that_leaves_its_path_is_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(*_: Any) -> Any:
        raise PathChanged("the replay leaves the recorded path: rank 0 asked")

    monkeypatch.setattr(machines, "written", written)
    swept = sweep(grid(nccl=["", "NCCL_ALGO=Ring"]))
    assert hows(swept) == [("as it is", "run"), ("NCCL_ALGO=Ring", "run")]
    assert runs.environments == [{}, {"NCCL_ALGO": "Ring"}]
    only_replays = sweep(grid(slow_gpu=["1=0.5"]), folder="other")
    assert only_replays.trials[0].unfit == "failed: the replay leaves the recorded path: rank 0 asked"


def test_faults_are_no_part_of_a_recording(runs: Runs) -> None:
    swept = sweep({"run": RUN | {"fault": ["gpu 0 at 0.1x"]}, "trial": [{}]})
    assert [options.fault for options in runs.asked] == [()]
    assert hows(swept) == [("as it is", "replay")]


def test_runs_that_cannot_be_recorded_are_all_run(runs: Runs) -> None:
    measured = RUN | {"host": "measured"}
    assert [how for _, how in hows(sweep({"run": measured, "grid": {"gpu": ["h100", "h200"]}}))] == ["run", "run"]
    assert [options.record for options in runs.asked] == [None, None]


# ---- trials that fail ------------------------------------------------------------------------------------------------


def out_of_memory(options: RunOptions, simulated: dict[str, Any]) -> None:
    if "--fast" in options.arguments:
        raise died("rank 0 ended: torch.OutOfMemoryError", {"fits": False, "missing_nbytes": 3 << 30})


def died(text: str, verdict: dict[str, Any]) -> RankDied:
    from phantora_async.api.results import Run

    error = RankDied(0, text, 1)
    error.run = Run({"simulated": {"memory": {"verdict": verdict}}}, Path("report.json"))
    return error


def test_what_does_not_fit_is_told_and_the_others_go_on(runs: Runs) -> None:
    runs.change = out_of_memory
    swept = sweep(grid(**{"--fast": [True, False]}))
    assert [one.unfit for one in swept.trials] == ["out of memory: 3.00 GiB missing at least", ""]
    assert swept.front == [swept.trials[1]]


def fails(options: RunOptions, simulated: dict[str, Any]) -> None:
    if "--fast" in options.arguments:
        raise died("rank 0 ended with exit code 1: ValueError: no data\nmore", {"fits": True})


def test_the_first_trial_s_failure_ends_the_sweep(runs: Runs) -> None:
    runs.change = fails
    study = grid(**{"--fast": [True, False], "--other": [1, 2]})
    with pytest.raises(JobsFailed, match=r"the first trial failed: fast=true other=1: rank 0 ended .* no data$"):
        sweep(study)
    assert len(runs.asked) == 1
    swept = sweep(study, folder="again", keep_going=True)
    assert [one.result.state for one in swept.trials] == ["failed", "failed", "done", "done"]


def test_what_other_scripts_did_does_not_say_that_this_one_works(runs: Runs) -> None:
    sweep(grid(**{"--other": [1]}), folder="both")
    runs.change = fails
    with pytest.raises(JobsFailed, match="the first trial failed: fast=true "):
        sweep(grid(**{"--fast": [True], "--other": [1, 2]}), folder="both")


def test_a_full_disk_ends_the_sweep_and_is_no_trial_s_result(runs: Runs) -> None:
    def full(options: RunOptions, simulated: dict[str, Any]) -> None:
        raise NotWritten("cannot write the report report.json: No space left on device")

    study, runs.change = grid(**{"--other": [1, 2]}), full
    with pytest.raises(NotWritten, match="No space left on device"):
        sweep(study, keep_going=True)
    runs.change = lambda options, simulated: None
    assert [one.result.state for one in sweep(study).trials] == ["done", "done"], "both are tried again"


def test_a_limit_that_is_broken_is_a_reason(runs: Runs) -> None:
    limited = {"run": RUN | {"max_step_time": "300ms"}, "grid": {"--fast": [True, False]}}
    assert [one.unfit for one in sweep(limited).trials] == ["", "step time 400.0 ms of 300.0 ms (+33.3 %)"]


def test_a_run_without_steps_has_failed(runs: Runs) -> None:
    def no_steps(options: RunOptions, simulated: dict[str, Any]) -> None:
        simulated["step"] = {"source": "the whole run: none were found", "median_ns": 1}

    runs.change = no_steps
    (one,) = sweep(grid(**{"--fast": [True]}), keep_going=True).trials
    assert one.unfit == "failed: no steps were found, or no GPU was used"


# ---- sweeps that end early -------------------------------------------------------------------------------------------


def test_a_sweep_goes_on_where_it_was(runs: Runs) -> None:
    study = grid(**{"--n": [1, 2, 3], "gpu": ["h100", "h200"]})

    def interrupted(options: RunOptions, simulated: dict[str, Any]) -> None:
        if len(runs.asked) == 2:
            raise KeyboardInterrupt

    runs.change = interrupted
    with pytest.raises(KeyboardInterrupt):
        sweep(study, folder="kept")
    before = stored("kept")
    runs.change = lambda options, simulated: None
    told: list[str] = []
    swept = sweep(study, folder="kept", told=lambda result, known, total: told.append(f"{known}/{total}"))
    assert runs.arguments == [["--n", "1"], ["--n", "2"], ["--n", "2"], ["--n", "3"]]
    assert stored("kept")[: len(before)] == before
    assert len(stored("kept")) == 6
    assert told == [f"{known}/6" for known in range(len(before) + 1, 7)]
    assert [one.result.good for one in swept.trials] == [True] * 6
    sweep(study, folder="kept")
    assert len(runs.asked) == 4


def of_another_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE songs (name TEXT)")


def with_a_row_of_nonsense(path: Path) -> None:
    sweep(grid(**{"--fast": [True]}), folder=path.parent)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE trials SET job = '[]'")
        database.commit()


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda path: path.write_text("a text\n" * 100), "file is not a database"),
        (of_another_table, "of another version, or of another program"),
        (with_a_row_of_nonsense, "row 1 is no result of a sweep"),
        (lambda path: path.mkdir(), "is no file"),
    ],
)
def test_a_file_that_is_something_else_is_refused(runs: Runs, make: Callable[[Path], object], fault: str) -> None:
    Path("kept").mkdir()
    make(Path("kept") / FILE)
    asked = len(runs.asked)
    with pytest.raises(UsageError, match=fault):
        sweep(grid(**{"--fast": [True]}), folder="kept")
    assert len(runs.asked) == asked


def dies(task: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_ended_is_told(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "replay", dies)
    with pytest.raises(EnvironmentUnusable, match="a process that replays was ended"):
        sweep(grid(nccl=["", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree"]), jobs=2)


def test_runs_at_a_time_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the thread that waits for them, a signal to this process alone too."""
    # Short sleeps: a signal between Python's last look and a long one would not end it.
    waits = 'import os, time; open(os.environ["PLACE"], "w").close()\nwhile True: time.sleep(0.01)'
    monkeypatch.setattr(running, "BOOTSTRAP", waits)
    places = [tmp_path / name for name in "ab"]
    for place in places:
        os.mkfifo(place)

    def work(place: Path | None) -> None:
        if place is None:
            for one in places:
                one.open().close()  # when its run has begun
            raise JobsFailed("one of them fails")
        running.run_with(RunOptions("train.py"), {"PLACE": str(place)})

    with pytest.raises(JobsFailed):
        list(machines.in_threads(3, work, [*places, None], lambda: None))


def test_two_sweeps_do_not_write_to_one_file(runs: Runs) -> None:
    from phantora_async.study.trials.store import Store

    with Store(Path("kept")), pytest.raises(UsageError, match="another sweep is using it"):
        sweep(grid(**{"--fast": [True]}), folder="kept")
    assert runs.asked == []
    sweep(grid(**{"--fast": [True]}), folder="kept")


@pytest.mark.parametrize("jobs", [0, 100_000])
def test_a_number_of_jobs_that_is_none(runs: Runs, jobs: int) -> None:
    with pytest.raises(UsageError, match=f"jobs {jobs}: expected 1 to 1,024, or auto"):
        sweep(grid(**{"--fast": [True]}), jobs=jobs)


# ---- what is printed -------------------------------------------------------------------------------------------------

FILE_TEXT = """
tokens_per_step = 10000
[run]
script = "train.py"
world_size = 2
max_memory = "76GiB"
[grid]
"--fast" = [false, true]
gpu = ["h100", "a100-80g"]
"""


def test_table_json_and_commands(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two GPUs, 0.2 s a step of 10,000 tokens: a million take 20 s, 40 GPU seconds, at 2.49 $ an hour 0.0277 $."""
    (tmp_path / "study.toml").write_text(FILE_TEXT)
    assert cli.run(["sweep", "study.toml", "--table", "table.csv"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split()[:6] == ["trial", "step", "tokens/s", "memory", "reserved", "MFU"]
    assert lines[1].startswith("* fast=true gpu=a100-80g")  # of equal trials the cheaper one
    assert lines[1].split()[3:8] == ["200.0", "ms", "50,000", "60.00", "GiB"]
    assert [line.startswith("*") for line in lines[1:5]] == [True, False, False, False]
    assert "$0.0277 to 0.0443 and 50 kJ" in shown.out  # 500 J a step
    assert lines[-1] == "time, memory, money: phantora-async run -n 2 --steps 5 --gpu a100-80g train.py --fast".replace(
        "train.py", str(tmp_path / "train.py")
    )
    assert shown.err.splitlines()[-1].startswith("[4/4] run  fast=true gpu=a100-80g: step 200.0 ms, 60.00 GiB")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 5
    assert cli.run(["sweep", "study.toml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["by"] == "million_tokens"
    assert [one["front"] for one in told["trials"]] == [False, False, False, True]
    assert told["trials"][2]["spent"]["million_tokens"]["money"] == pytest.approx([2.49 * 40 / 3600, 3.99 * 40 / 3600])
    assert told["best"]["money"]["trial"] == "fast=true gpu=a100-80g"


def test_what_only_a_replay_can_do_is_a_command_of_its_own(runs: Runs) -> None:
    swept = sweep(grid(slow_gpu=["1=0.5"], nccl=["NCCL_ALGO=Ring"]))
    recording = swept.trials[0].trial.program
    command = swept.command(swept.trials[0])
    assert command.startswith("phantora-async replay ")
    assert command.endswith(f"{recording} --nccl NCCL_ALGO=Ring --slow-gpu 1=0.5")
    with_variable = sweep(grid(nccl=["NCCL_ALGO=Ring"]))
    assert with_variable.command(with_variable.trials[0]).startswith("NCCL_ALGO=Ring phantora-async run -n 2")


def test_a_sweep_without_any_figures_ends_with_1(runs: Runs, tmp_path: Path) -> None:
    runs.change = fails
    (tmp_path / "study.toml").write_text(FILE_TEXT.replace("[false, true]", "[true]"))
    assert cli.run(["sweep", "study.toml", "--keep-going"]) == 1


def test_steps_that_may_do_different_work_are_told(runs: Runs) -> None:
    assert "state tokens_per_step" in str(sweep(grid(**{"--batch": [1, 2]})))
    assert "state tokens_per_step" not in str(sweep(grid(gpu=["h100", "h200"])))
