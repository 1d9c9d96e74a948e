"""The hook's device file: keys the hook knows, attribute numbers of NVIDIA's enum."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

import profiles


def attributes(name: str) -> dict[int, int]:
    lines = (line.split("=") for line in profiles.load_gpu(name).device_file_lines() if line.startswith("attr."))
    return {int(key.removeprefix("attr.")): int(value) for key, value in lines}


def test_plain_keys() -> None:
    lines = profiles.load_gpu("h200").device_file_lines()
    assert lines[:6] == [
        "device_name=NVIDIA H200",
        "memory_nbytes=150109880320",
        "reserved_nbytes=1311571968",
        "sm_count=132",
        "cc_major=9",
        "cc_minor=0",
    ]
    assert len({line.split("=")[0] for line in lines}) == len(lines)


def test_h100_attributes_are_those_that_a_real_one_answered() -> None:
    found = attributes("h100")
    answered = {1: 1024, 13: 1980000, 16: 132, 36: 2619000, 37: 5120, 38: 52428800, 39: 2048, 40: 3, 75: 9, 76: 0}
    answered |= {
        81: 233472,
        95: 1,
        97: 232448,
        106: 32,
        108: 32768000,
        109: 134217728,
        111: 1024,
        115: 1,
        119: 9,
        126: 4,
    }
    assert {number: found[number] for number in answered} == answered


def test_older_gpus_have_no_clusters() -> None:
    assert attributes("a100-80g")[120] == 0
    assert attributes("h100")[120] == 1


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_every_attribute_of_the_enum_is_answered(name: str) -> None:
    headers = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/driver_types.h"))
    if not headers:
        pytest.skip("NVIDIA's headers are not installed")
    text = headers[-1].read_text(errors="replace")
    wanted = {int(one) for one in re.findall(r"cudaDevAttr\w+\s*=\s*(\d+)", text)}
    identity = {139, 140}  # PCI ids of one board, which nothing needs
    assert len(wanted) > 100
    assert wanted - identity <= set(attributes(name))
