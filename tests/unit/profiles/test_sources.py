"""Cluster descriptions from system files, outputs of tools and words: what each form says, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_async import cli
from profiles import ProfileError, load_cluster
from profiles.sources import Facts, described, merge, mlperf, read_source

FILES = Path(__file__).parent / "sources_files"


def values(facts: Facts) -> dict[str, object]:
    return {
        name: getattr(facts, name).value
        for name in Facts.__slots__
        if name != "notes" and getattr(facts, name) is not None
    }


def cluster_of(tmp_path: Path, *sources: str):
    made = described(merge([read_source(one) for one in sources]))
    path = tmp_path / "made.toml"
    path.write_text(made.text)
    return load_cluster(path), made


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            "16 nodes of 8 x H100 SXM, 8 x 400 Gb/s InfiniBand, rail-optimised, 2:1 at the spine",
            {"gpu": "h100", "servers": 16, "gpus": 8, "nics": 8, "nic_gbps": 400.0, "link": "infiniband"}
            | {"inside": "nvswitch", "fabric": "rail", "oversubscription": 2.0},
        ),
        (
            "8xH200, 400G RoCE x8, leaf-spine non-blocking, 16 servers per leaf",
            {"gpu": "h200", "gpus": 8, "nics": 8, "nic_gbps": 400.0, "link": "ethernet", "fabric": "leaf-spine"}
            | {"oversubscription": 1.0, "servers_per_leaf": 16},
        ),
        (
            "4 x L40S PCIe, no NVLink, 1 x 100 GbE",
            {"gpu": "l40s", "gpus": 4, "nics": 1, "nic_gbps": 100.0, "link": "ethernet", "inside": "pcie"},
        ),
        (
            "32 x 8 x A100 80GB, 8 x HDR + 1 x 25 GbE management",
            {"gpu": "a100-80g", "gpus": 8, "nics": 8, "nic_gbps": 200.0, "link": "infiniband"},
        ),
        (
            "GB200 NVL72, 4 x NDR per tray",
            {"gpu": "gb200", "nics": 4, "nic_gbps": 400.0, "link": "infiniband", "inside": "nvswitch"},
        ),
    ],
)
def test_words(words: str, found: dict[str, object]) -> None:
    assert values(read_source(words)) == found


@pytest.mark.parametrize(
    ("networking", "nics", "gbps", "link"),
    [
        # As submissions of MLPerf Training 5.1 write it.
        (
            "Storage: 2x BF3 400Gb/s, Compute: 8x BF3 ConnectX-7 400Gb/s, Management: 100Gb/s Ethernet NIC",
            8,
            400,
            "ethernet",
        ),
        ("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 8, 400, "infiniband"),
        ("4x ConnectX-8 IB XDR 800 Gb/s", 4, 800, "infiniband"),
        ("Compute: 8x MT43244 BlueField-3 200Gb/s, Management: 2x100Gb/s Ethernet NIC", 8, 200, "ethernet"),
        ("Infiniband; Data bandwidth for GPU-PCIe: 504GB/s; PCIe-NIC: 500GB/s", None, None, "infiniband"),
    ],
)
def test_cards_of_a_system_file(networking: str, nics: int | None, gbps: float | None, link: str) -> None:
    data = {
        "accelerator_model_name": "NVIDIA H200-SXM5-141GB",
        "accelerators_per_node": "8",
        "host_networking": networking,
    }
    found = values(mlperf.read_system(data | {"number_of_nodes": "2"}, "system.json"))
    assert (found.get("nics"), found.get("nic_gbps"), found.get("link")) == (nics, gbps, link)


def test_a_system_file_of_mlperf() -> None:
    """The faster of two kinds of eight cards count, and a note says so."""
    facts = read_source(str(FILES / "mlperf_h200.json"))
    assert values(facts) == {
        "gpu": "h200",
        "gpus": 8,
        "servers": 8,
        "sockets": 2,
        "cpus": 2 * 32 * 2,
        "inside": "nvswitch",
        "nics": 8,
        "nic_gbps": 400.0,
        "link": "infiniband",
    }
    assert "not those of 200" in facts.notes[0]


def test_a_matrix_of_nvidia_smi() -> None:
    """A card that shares no switch with a GPU is for storage; the matrix does not say how fast cards are."""
    facts = read_source(str(FILES / "topo_h100.txt"))
    assert values(facts) == {
        "gpu": "h100",
        "gpus": 4,
        "inside": "nvswitch",
        "nics": 4,
        "sockets": 2,
        "cpus": 224,  # 0-55, 112-167, 56-111, 168-223
    }
    assert any("NIC4" in note for note in facts.notes)
    assert any("how fast" in note for note in facts.notes)


def test_nccl_s_xml() -> None:
    """The third card is slower than the others. Bits of the processors' masks: 24 + 32, and 24 + 8."""
    facts = read_source(str(FILES / "nccl_h100.xml"))
    assert values(facts) == {
        "gpu": "h100",
        "gpus": 2,
        "inside": "nvswitch",
        "nics": 2,
        "nic_gbps": 400.0,
        "sockets": 2,
        "cpus": 88,
    }


def test_a_fabric_of_infiniband() -> None:
    """Two rails: each leaf has four ports of machines, and two of the spine; the storage machine does not count."""
    facts = read_source(str(FILES / "ibnetdiscover.txt"))
    assert values(facts) == {
        "servers": 4,
        "nics": 2,
        "nic_gbps": 400.0,
        "link": "infiniband",
        "fabric": "rail",
        "servers_per_leaf": 4,
        "oversubscription": 2.0,
    }


def test_the_description_has_what_differs_from_its_base(tmp_path: Path) -> None:
    cluster, made = cluster_of(tmp_path, "2 x H200", str(FILES / "ibnetdiscover.txt"))
    assert (made.base, made.servers) == ("dgx-h200", 4)
    assert (cluster.gpu, cluster.gpus_per_server) == ("h200", 2)
    base = load_cluster("dgx-h200").network
    assert cluster.network["server"] == base["server"] | {"gpus": 2, "nics": 2}
    assert cluster.network["fabric"] == base["fabric"] | {"servers_per_leaf": 4, "oversubscription": 2.0}
    assert "processors of a server" in made.assumed


def test_a_later_source_counts_and_the_disagreement_is_noted(tmp_path: Path) -> None:
    cluster, made = cluster_of(tmp_path, str(FILES / "mlperf_h200.json"), "8 x H200, 8 x 200 Gb/s Slingshot")
    assert cluster.network["server"]["nic_gbps"] == 200.0
    assert "nic gbps: 400.0" in made.text


@pytest.mark.parametrize(
    ("words", "base", "nics", "gbps"),
    [
        ("8 x H100, 32 x 100 Gb/s EFA", "hgx-h100-roce", 8, 400.0),  # four cards of a GPU are one port
        ("72 x GB200, 4 x 400 Gb/s IB", "gb200-nvl72", 72, 400.0),
    ],
)
def test_cards_are_ports_of_gpus(tmp_path: Path, words: str, base: str, nics: int, gbps: float) -> None:
    cluster, made = cluster_of(tmp_path, words.replace("72 x GB200", "4 x GB200"))
    server = cluster.network["server"]
    assert (made.base, server["nics"], server["nic_gbps"]) == (base, nics, gbps)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("8 x MI300X, 8 x 400G", "MI300X: GPUs of NVIDIA are emulated"),
        ("8 big ones", "names no GPU"),
        ("nowhere/there.json", "no such file"),
        (__file__, "none of: a system file"),
    ],
)
def test_a_source_that_says_nothing_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(ProfileError, match=complaint):
        read_source(source)


def test_a_fabric_alone_names_no_gpu() -> None:
    with pytest.raises(ProfileError, match="no source names the GPU"):
        described(read_source(str(FILES / "ibnetdiscover.txt")))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.toml"
    words = "16 nodes of 8 x H100, 8 x 400 Gb/s IB, rail-optimised, 2:1"
    assert cli.run(["profiles", "import", words, "-o", str(target)]) == 0
    shown = capsys.readouterr().out
    assert f"run -n 128 --cluster {target}" in shown
    assert "Assumed, as in dgx-h100:" in shown
    assert load_cluster(target).network["fabric"]["oversubscription"] == 2.0
    assert cli.run(["profiles", "import", words, "-o", str(target)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_what_does_not_fit_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.toml"
    assert cli.run(["profiles", "import", "8 x H100, 3 x 400 Gb/s IB", "-o", str(target)]) == 2
    assert "3 cards cannot be spread evenly over 8 GPUs" in capsys.readouterr().err
    assert not target.exists()
