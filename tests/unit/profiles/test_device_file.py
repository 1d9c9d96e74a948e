"""The hook's device file, and CUDA's device attributes in it."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

import profiles
from profiles.descriptions.cuda_attributes import Attribute

BOARD_IDENTITY = {"GPU_PCI_DEVICE_ID", "GPU_PCI_SUBSYSTEM_ID"}  # of one board; nothing needs them


def header(name: str) -> str:
    found = sorted(Path(sysconfig.get_path("purelib")).glob(f"nvidia/*/include/{name}"))
    if not found:
        pytest.skip("NVIDIA's headers are not installed")
    return found[-1].read_text(errors="replace")


def lines_of(name: str) -> dict[str, str]:
    lines = profiles.load_gpu(name).device_file_lines()
    found = {key: value for key, _, value in (line.partition("=") for line in lines)}
    assert len(found) == len(lines)
    return found


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_the_file_describes_the_gpu(name: str) -> None:
    gpu, lines = profiles.load_gpu(name), lines_of(name)
    assert lines["device_name"] == gpu.device_name
    assert lines["sm_count"] == lines[f"attr.{Attribute.MULTIPROCESSOR_COUNT}"] == str(gpu.sm_count)
    assert lines["cc_major"] == lines[f"attr.{Attribute.COMPUTE_CAPABILITY_MAJOR}"]


def test_older_gpus_have_no_clusters() -> None:
    assert lines_of("a100-80g")[f"attr.{Attribute.CLUSTER_LAUNCH}"] == "0"
    assert lines_of("h100")[f"attr.{Attribute.CLUSTER_LAUNCH}"] == "1"


def test_attributes_are_those_of_the_driver() -> None:
    text = header("cuda.h")
    known = {name: int(number) for name, number in re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+)\s*=\s*(\d+)", text)}
    assert len(known) > 100
    assert {one.name: one.value for one in Attribute}.items() <= known.items()


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_every_attribute_of_the_runtime_is_answered(name: str) -> None:
    wanted = set(re.findall(r"cudaDevAttr\w+\s*=\s*(\d+)", header("driver_types.h")))
    assert len(wanted) > 100
    driver = dict(re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+)\s*=\s*(\d+)", header("cuda.h")))
    assert {f"attr.{number}" for number in wanted - {driver[one] for one in BOARD_IDENTITY}} <= lines_of(name).keys()
