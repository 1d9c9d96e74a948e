"""Descriptions that are based on others: a user's file says only what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiles


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_cluster_of_five_lines(tmp_path: Path) -> None:
    mine = profiles.load_cluster(
        written(tmp_path, 'base = "dgx-h200"\ngpu = "h100"\n[network.fabric]\noversubscription = 4.0\n')
    )
    dgx = profiles.load_cluster("dgx-h200")
    assert (mine.name, mine.gpu, mine.gpus_per_server, mine.nccl) == ("mine", "h100", 8, "hopper")
    assert mine.network == {**dgx.network, "fabric": {**dgx.network["fabric"], "oversubscription": 4.0}}


def test_a_gpu_of_five_lines(tmp_path: Path) -> None:
    mine = profiles.load_gpu(
        written(tmp_path, 'base = "h200"\nsm_count = 78\n[peak_tflops]\nbf16 = 148.0\nf16 = 148.0\n')
    )
    assert (mine.sm_count, mine.peak_flops("bf16"), mine.peak_flops("f32")) == (78, 148e12, 67e12)
    assert mine.memory == profiles.load_gpu("h200").memory
    assert {"sm_count=78", "attr.16=78"} <= set(mine.device_file_lines())


def test_a_host_of_two_lines(tmp_path: Path) -> None:
    mine = profiles.load_host(written(tmp_path, 'base = "xeon-h200"\n[call_ns]\nlaunch = 3000.0\n'))
    expected = profiles.load_host("xeon-h200").cost_ns | {"launch": 3000.0}
    assert mine.cost_ns == expected


def test_another_kind_of_network_takes_nothing_from_the_base(tmp_path: Path) -> None:
    switch = profiles.load_cluster(written(tmp_path, 'base = "dgx-h200"\n[network.fabric]\nkind = "switch"\n'))
    assert switch.network["fabric"] == {"kind": "switch"}
    graph = '[network.graph]\nhosts = ["a"]\nswitches = []\nlink = []\n'
    assert profiles.load_cluster(written(tmp_path, f'base = "dgx-h200"\n{graph}')).network.keys() == {"graph"}


def test_a_base_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 'base = "b200"\nsm_count = 100\n', "small.toml")
    path = written(tmp_path, 'base = "small.toml"\nsm_clock_khz = 1_000_000\n')
    monkeypatch.chdir("/")
    assert (profiles.load_gpu(path).sm_count, profiles.load_gpu(path).sm_clock_khz) == (100, 1_000_000)


def test_faults_name_the_file_that_has_them(tmp_path: Path) -> None:
    written(tmp_path, 'base = "dgx-h200"\n\nnccl = 5\n', "other.toml")
    mine = written(tmp_path, 'base = "other.toml"\n')
    with pytest.raises(profiles.ProfileError, match=r"other\.toml:3: nccl: expected a non-empty string"):
        profiles.load_cluster(mine)
    mine.write_text('base = "other.toml"\nnccl = ""\n')
    with pytest.raises(profiles.ProfileError, match=r"mine\.toml:2: nccl: expected a non-empty string"):
        profiles.load_cluster(mine)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = 3", r"mine\.toml:1: base: expected a non-empty string, found 3"),
        ('base = "dgx-h300"', r"unknown cluster 'dgx-h300'; did you mean dgx-h200, dgx-h100 or dgx-b300\?"),
        ('base = "h200"', "unknown cluster 'h200'"),
        ('base = "none.toml"', r"none\.toml: no such file"),
        ('base = "mine.toml"', r"mine\.toml:1: base: 'mine\.toml' is based on more than 8 files, or on itself"),
        ('base = "dgx-h200"\ngpus = 4', r"mine\.toml:2: gpus: unknown key"),
        (
            'base = "dgx-h200"\ngpus_per_server = 4',
            r"mine\.toml:2: gpus_per_server: 4 GPUs, but network\.server\.gpus is 8: set it to 4",
        ),
        (
            'base = "gb200-nvl72"\nservers_per_nvlink_domain = 9',
            r"gb200-nvl72\.toml:\d+: gpus_per_server: 4 GPUs in each of 9 servers .* is 72: set it to 36",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.load_cluster(written(tmp_path, text + "\n"))
