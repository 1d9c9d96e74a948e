"""The machine of a replay: a GPU brings its servers, unless the run was in others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from phantora_async.errors import UsageError
from phantora_async.options import RunOptions
from phantora_async.recording import Recording, load
from phantora_async.replaying.machine import Changes, spec_of
from phantora_async.study.trials.trial import Trial
from profiles import load_cluster, load_machine, path_of
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import record


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Returns the recording of two ranks on an H200 each, in a DGX H200."""
    ranks = [Script(rank, 2, world_comm(2)).segment(1000, after=10).bye() for rank in range(2)]
    record(ranks, tmp_path, FixedNetwork(), 64)
    return load(tmp_path)


def in_cluster(recording: Recording, cluster: str | Path) -> Recording:
    """Changes the recording as if the run had been made there."""
    recording.setup = dataclasses.replace(recording.setup, cluster=load_cluster(cluster))
    return recording


def test_a_gpu_brings_the_servers_that_it_is_sold_in(recording: Recording, tmp_path: Path) -> None:
    spec = spec_of(recording, Changes(gpu="rtx4090"), tmp_path)
    machine = load_machine(None, "rtx4090")
    assert (spec.gpu.name, spec.cluster, spec.gpu.peer_gb_per_s) == ("rtx4090", machine.cluster, None)
    assert spec.assumed_links == machine.assumed_links != ""
    back = spec_of(recording, Changes(gpu="H200"), tmp_path)
    assert (back.cluster, back.assumed_links) == (recording.setup.cluster, "")
    assert spec_of(recording, Changes(), tmp_path).assumed_links == ""


def test_a_cluster_that_is_named_stays(recording: Recording, tmp_path: Path) -> None:
    spec = spec_of(recording, Changes(gpu="b200", cluster="dgx-h200"), tmp_path)
    assert (spec.cluster.name, spec.assumed_links) == ("dgx-h200", load_cluster("dgx-h200").links)
    mine = tmp_path / "mine.toml"
    mine.write_text(path_of("dgx-h200").read_text())
    for cluster in ("p5en", mine):
        spec = spec_of(in_cluster(recording, cluster), Changes(gpu="b200"), tmp_path)
        assert (spec.cluster, spec.gpu.name) == (recording.setup.cluster, "b200")
        assert spec.assumed_links == spec.cluster.links, "they are an H200's"


def test_servers_that_hold_fewer_gpus_are_refused(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        spec_of(recording, Changes(gpu="gh200"), tmp_path)
    assert "mgx-gh200: the run has 2 GPUs on a server, this has 1" in caught.value.message
    assert "--cluster" in caught.value.hint


@pytest.mark.parametrize(("cluster", "gpu"), [(None, None), (None, "b200"), ("p5en", "b200"), ("dgx-h100", None)])
def test_a_trial_s_replay_is_on_the_machine_of_its_run(
    cluster: str | None, gpu: str | None, recording: Recording, tmp_path: Path
) -> None:
    """Whatever machine the recording is of."""
    options = RunOptions("train.py", world_size=2, cluster=cluster, gpu=gpu)
    machine = load_machine(cluster, gpu)
    changes = Trial("one", {}, options, {}, {}, None).changes()
    for recorded in ("dgx-h200", "pcie-l40s", "dgx-b200"):
        spec = spec_of(in_cluster(recording, recorded), changes, tmp_path)
        assert (spec.cluster, spec.gpu.path) == (machine.cluster, machine.gpu.path)
        assert spec.assumed_links == machine.assumed_links
