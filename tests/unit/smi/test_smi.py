"""The emulated nvidia-smi: command lines, and what it prints of two GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emu.smi.__main__ import Refused, answer, parse
from emu.smi.gpus import Gpu, System
from profiles.sources.smi_topology import is_topology, read_topology

FIRST = Gpu(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-1",
    pci="00000000:10:00.0",
    pci_bus=0x10,
    capability="9.0",
    total_mib=81079,
    used_mib=1719,
    free_mib=79360,
    power_limit_w=700.0,
    sm_mhz=1980,
    memory_mhz=2619,
    ecc=True,
    nvlinks=18,
)
SECOND = replace(FIRST, index=1, uuid="GPU-2", pci="00000000:1B:00.0", pci_bus=0x1B, used_mib=695, free_mib=80384)
SYSTEM = System("580.95.05", "13.0", (FIRST, SECOND))


def said(*arguments: str, system: System = SYSTEM) -> list[str]:
    return list(answer(parse(arguments), system))


def test_gpus_are_listed() -> None:
    assert said("-L") == [
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)",
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)",
    ]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["--query-gpu=name,memory.total", "--format=csv,noheader"],
            ["NVIDIA H100 80GB HBM3, 81079 MiB", "NVIDIA H100 80GB HBM3, 81079 MiB"],
        ),
        (
            ["--query-gpu", "index,memory.used,memory.free", "--format", "csv"],
            ["index, memory.used [MiB], memory.free [MiB]", "0, 1719 MiB, 79360 MiB", "1, 695 MiB, 80384 MiB"],
        ),
        (["--format=csv,noheader,nounits", "--query-gpu=memory.free"], ["79360", "80384"]),
        (
            ["--query-gpu=gpu_name, gpu_uuid,count", "--format=csv", "--id=1"],
            ["name, uuid, count", "NVIDIA H100 80GB HBM3, GPU-2, 2"],
        ),
        (["-i", "GPU-1", "--query-gpu=pci.bus", "--format=csv,noheader"], ["0x10"]),
        (["-i", "1b:00.0", "--query-gpu=index", "--format=csv,noheader"], ["1"]),
        (["--query-gpu=power.limit,clocks.sm", "--format=csv,noheader", "-i", "0,1"], ["700.00 W, 1980 MHz"] * 2),
        (["--query-gpu=utilization.gpu,temperature.gpu", "--format=csv,noheader,nounits", "-i", "0"], ["[N/A], [N/A]"]),
    ],
)
def test_fields_are_answered(arguments: list[str], lines: list[str]) -> None:
    assert said(*arguments) == lines


def test_the_table_has_versions_names_and_memory() -> None:
    text = "\n".join(said())
    assert "Driver Version: 580.95.05 " in text
    assert "CUDA Version: 13.0 " in text
    assert "1719MiB / 81079MiB |" in text
    assert len({len(line) for line in said()[1:]}) == 1


def imported(system: System) -> tuple[object, object]:
    """The number of GPUs, and how they are joined, as profiles read them."""
    text = "\n".join(said("topo", "-m", system=system))
    assert is_topology(text)
    facts = read_topology(text, "topo")
    assert facts.gpus is not None
    assert facts.inside is not None
    return facts.gpus.value, facts.inside.value


def test_the_matrix_is_one_that_profiles_can_import() -> None:
    assert imported(SYSTEM) == (2, "nvswitch")
    assert imported(replace(SYSTEM, gpus=(replace(FIRST, nvlinks=0), replace(SECOND, nvlinks=0)))) == (2, "pcie")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-q"], 2, "-q is not emulated"),
        (["dmon", "-s", "u"], 2, "dmon is not emulated"),
        (["--query-compute-apps=pid", "--format=csv"], 2, "--query-compute-apps is not emulated"),
        (["-pm", "1"], 2, "-pm is not emulated"),
        (["topo", "-p2p", "n"], 2, "with -m only"),
        (["--query-gpu=name"], 2, "--format=csv"),
        (["--query-gpu=name", "--format=xml"], 2, "xml is not emulated"),
        (["--query-gpu=name,nonsense", "--format=csv"], 2, '"nonsense"'),
        (["-L", "-i", "2"], 6, "2 GPUs, and none is 2"),
    ],
)
def test_what_is_not_emulated_is_named(arguments: list[str], code: int, words: str) -> None:
    with pytest.raises(Refused) as raised:
        said(*arguments)
    assert raised.value.code == code
    assert words in str(raised.value)
