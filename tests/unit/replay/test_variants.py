"""Many machines: each gives what a replay of its own gives."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from emu.contract import records
from phantora_async.errors import EnvironmentUnusable, UsageError
from phantora_async.recording import load
from phantora_async.replaying.machine import Changes, slow_gpus, spec_of
from phantora_async.replaying.replay import replay
from phantora_async.replaying.table import as_csv, as_text
from phantora_async.replaying.variants import Player, play_all, read_variants
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
    """Three steps of two ranks: a kernel, then an all-reduce of 64 MiB."""
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
    outcomes = list(play_all(folder, variants, frozenset(), 2))
    assert [one.variant for one in outcomes] == variants
    recording = load(folder)
    for one in outcomes:
        full = replay(recording, spec_of(recording, one.variant.changes, tmp_path)).report["simulated"]
        assert (one.step_ns, one.virtual_ns) == (full["step"]["median_ns"], full["virtual_ns"])
    slower = outcomes[2]
    assert slower.variant.name == "server.gpu_gbps=100"
    assert slower.step_ns > outcomes[1].step_ns
    assert "server.gpu_gbps=100" in as_text(outcomes).splitlines()[-1]
    assert len(as_csv(outcomes).splitlines()) == 1 + len(variants)


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
        ("[grid]\ngpus = []", "expected a list"),
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
    """Those that have been are ended; they would wait for work for ever, and the command for them."""
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
        list(play_all(folder, variants, frozenset(), 4))
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
    assert len(list(play_all(folder, read_variants(tmp_path / "variants.toml"), frozenset(), 64))) == 2
    assert len(forked) == 2


def test_a_process_that_is_killed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "variants.toml").write_text(GRID)
    monkeypatch.setattr(Player, "play", lambda player, variant: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(EnvironmentUnusable, match="a process that replays variants was ended"):
        list(play_all(folder, read_variants(tmp_path / "variants.toml"), frozenset(), 2))
    assert active_children() == []
