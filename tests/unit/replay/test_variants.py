"""Replays on many machines: each gives what a replay of its own gives."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from emu.contract import records
from phantora_async.cli import run
from phantora_async.errors import EnvironmentUnusable, ExitCode, UsageError
from phantora_async.recording import load
from phantora_async.replaying.kept_outcomes import key_of
from phantora_async.replaying.machine import Changes, slow_gpus, spec_of
from phantora_async.replaying.replay import replay
from phantora_async.replaying.table import as_csv, as_json, as_text
from phantora_async.replaying.variants import Outcome, Player, Variant, play_all, read_variants
from profiles import path_of
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import record

GRID = """
[[variant]]
name = "fast NICs"
network = ["server.nic_gbps=800"]
[grid]
nccl = ["", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree NCCL_PROTO=Simple"]
network = ["", "server.gpu_gbps=100"]
"""

REAL_FORK = os.fork


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The recording of three steps of two ranks: a kernel, then an all-reduce of 64 MiB."""
    ranks = [Script(rank, 2, world_comm(2)) for rank in range(2)]
    for rank, script in enumerate(ranks):
        script.add(records.CommInit.encode(0, 1, 2, rank, rank, 0, payload=b"world".ljust(128, b"\0")))
        for _ in range(3):
            script.segment(1000, after=10).all_reduce(1 << 26).sync().step()
        script.bye()
    record(ranks, tmp_path, FixedNetwork(), 64)
    return tmp_path


def test_each_is_a_replay(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "variants.toml").write_text(GRID)
    variants = read_variants(tmp_path / "variants.toml")
    recording = load(folder)
    found = dict(play_all(recording, variants, frozenset(), 2))
    outcomes = [found[number] for number in range(len(variants))]
    assert [one.variant for one in outcomes] == variants
    for one in outcomes:
        full = replay(recording, spec_of(recording, one.variant.changes, tmp_path)).report["simulated"]
        assert (one.step_ns, one.virtual_ns) == (full["step"]["median_ns"], full["virtual_ns"])
    slower = outcomes[2]
    assert slower.variant.name == "server.gpu_gbps=100"
    assert slower.step_ns > outcomes[1].step_ns
    assert "server.gpu_gbps=100" in as_text(outcomes).splitlines()[-1]
    assert len(as_csv(outcomes).splitlines()) == 1 + len(variants)
    row = json.loads(as_json(outcomes))[2]
    assert (row["changes"], row["step_ns"]) == ({"network": ["server.gpu_gbps=100"]}, slower.step_ns)


def test_a_host_that_counts_work_otherwise_cannot_price_a_recording(folder: Path, tmp_path: Path) -> None:
    host = path_of("xeon-h200").read_text().replace("hot_within_functions = 256", "hot_within_functions = 100")
    (tmp_path / "host.toml").write_text(host)
    mine = path_of("dgx-h200").read_text().replace('host = "xeon-h200"', f'host = "{tmp_path / "host.toml"}"')
    (tmp_path / "mine.toml").write_text(mine)
    changes = Changes(cluster=str(tmp_path / "mine.toml"))
    with pytest.raises(UsageError, match=r"hot_within_functions=256.*hot_within_functions=100"):
        spec_of(load(folder), changes, tmp_path)
    assert spec_of(load(folder), dataclasses.replace(changes, host="none"), tmp_path).host.hot_within_functions == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\ngpus = []", "expected a list of one value or more, found "),
        ("[[variant]]\ngqu = 'h100'", r"unknown key; did you mean gpu\?"),
        ("[[variant]]\ngpu = 3", "expected a text"),
        ("", "no variants"),
        ("[other]", "other: unknown key"),
        ("[", "variants.toml"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "variants.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_variants(tmp_path / "variants.toml")


@pytest.mark.parametrize("text", ["", "a=1", "2=0.5", "0=0", "0=fast"])
def test_a_slow_gpu_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="slow GPU"):
        slow_gpus(Changes(slow=(text,)), 2)


@pytest.mark.parametrize("text", ["server.nic_gbps", "server.wheels=4", "fabric=1", "server.nic_gbps=x"])
def test_a_network_value_that_is_none(folder: Path, text: str) -> None:
    recording = load(folder)
    with pytest.raises(UsageError, match="network"):
        spec_of(recording, Changes(network=(text,)), folder)


def test_processes_that_cannot_be_forked(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that have been forked are ended; they would wait for work for ever, and the command for them."""
    (tmp_path / "variants.toml").write_text(GRID)
    variants = read_variants(tmp_path / "variants.toml")
    forked = []

    def fork() -> int:
        if len(forked) == 2:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        forked.append(REAL_FORK())
        return forked[-1]

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(EnvironmentUnusable, match="no further process"):
        list(play_all(load(folder), variants, frozenset(), 4))
    monkeypatch.undo()
    for child in active_children():
        child.join()
    assert len(forked) == 2
    assert active_children() == []


def test_no_more_processes_than_there_is_work_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "variants.toml").write_text('[grid]\nnccl = ["", "NCCL_ALGO=Ring"]')
    forked = []
    monkeypatch.setattr(os, "fork", lambda: (forked.append(pid) if (pid := REAL_FORK()) else None, pid)[1])
    assert len(list(play_all(load(folder), read_variants(tmp_path / "variants.toml"), frozenset(), 64))) == 2
    assert len(forked) == 2


def test_a_process_that_is_killed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "variants.toml").write_text(GRID)
    monkeypatch.setattr(Player, "play", lambda player, variant: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(EnvironmentUnusable, match="a process that replays variants was ended"):
        list(play_all(load(folder), read_variants(tmp_path / "variants.toml"), frozenset(), 2))
    assert active_children() == []


def replay_variants(folder: Path, *options: str) -> int:
    file = folder / "variants.toml"
    file.write_text(GRID)
    return run(["replay", str(folder), "--variants", str(file), "--results", str(folder / "kept"), *options])


def test_an_interrupted_command_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed one may have left a part of a line."""
    play, played = Player.play, []

    def interrupted(player: Player, variant: Variant) -> Outcome:
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(variant.name)
        return play(player, variant)

    monkeypatch.setattr(Player, "play", interrupted)
    assert replay_variants(folder, "--jobs", "1") == ExitCode.INTERRUPTED
    told = capsys.readouterr()
    assert "interrupted: 3 of 7 variants are known" in told.err
    assert len(told.out.splitlines()) == 1 + 3
    with (folder / "kept").open("a") as file:
        file.write('{"key": ')
    monkeypatch.setattr(Player, "play", lambda player, variant: (played.append(variant.name), play(player, variant))[1])
    assert replay_variants(folder, "--jobs", "1", "--table", str(folder / "again.csv")) == 0
    assert len(played) == len(set(played)) == 7
    assert replay_variants(folder, "--jobs", "1", "--table", str(folder / "kept.csv")) == 0
    assert len(played) == 7
    assert (folder / "kept.csv").read_text() == (folder / "again.csv").read_text()
    assert len((folder / "kept").read_text().splitlines()) == 7


def test_results_of_another_machine_are_not_taken(folder: Path) -> None:
    recording = load(folder)
    own = path_of("h200").read_text()
    (folder / "mine.toml").write_text(own)
    variant = Variant("mine", Changes(gpu=str(folder / "mine.toml")))
    before = key_of(recording, variant, frozenset())
    assert key_of(recording, variant, frozenset()) == before
    assert key_of(recording, variant, frozenset({"queries"})) != before
    (folder / "mine.toml").write_text(own.replace("sm_count = 132", "sm_count = 131"))
    assert key_of(recording, variant, frozenset()) != before


@pytest.mark.parametrize("content", ["text", "text\n", "[]\n", '{"key": "a", "step_ns": "1"}\n'])
def test_a_file_of_something_else_is_left_as_it_is(
    folder: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "kept").write_text(content)
    assert replay_variants(folder) == ExitCode.USAGE
    assert "name another file: --results FILE" in capsys.readouterr().err
    assert (folder / "kept").read_text() == content


def test_a_table_of_another_form_is_refused_before_anything_is_played(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay_variants(folder, "--table", "steps.txt") == ExitCode.USAGE
    assert "expected a name that ends in .csv or .json" in capsys.readouterr().err
    assert not (folder / "kept").exists()
