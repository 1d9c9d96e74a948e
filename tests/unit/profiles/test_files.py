"""Descriptions: the shipped ones load, wrong ones say what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiles

MODULES = ("a100-40g", "a100-80g", "v100", "h100", "h100-96g-hbm2e", "h200", "h20", "b200", "b300", "gb200", "gb300")


def test_shipped_names() -> None:
    gpus = (
        "a100-40g a100-80g a100-pcie-40g a100-pcie-80g h100 h100-pcie h100-nvl h200 b200 b300 gb200 gb300 l40s rtx4090 "
        "rtx-pro-6000 gh200 h20 v100 t4 l4 a10"
    )
    clusters = (
        "dgx-a100 dgx-h100 dgx-h200 dgx-b200 gb200-nvl72 hgx-h100-roce p4d p5 p5en p6-b200 a3-high a3-mega a3-ultra a4 "
        "nd-h100-v5 nd-h200-v5 eos gb300-nvl72 laptop"
    )
    assert set(profiles.gpu_names()) >= set(gpus.split())
    assert set(profiles.cluster_names()) >= set(clusters.split())


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_gpu_loads(name: str) -> None:
    gpu = profiles.load_gpu(name)
    assert gpu.name == name
    assert gpu.memory.context_nbytes < gpu.memory.reserved_nbytes < gpu.memory.total_nbytes
    # Two transfers a clock over the bus are the bandwidth, to the rounding of datasheets.
    wire = 2 * gpu.memory.clock_khz * 1e3 * gpu.memory.bus_width_bits / 8 / 1e9
    assert gpu.memory.bandwidth_gb_per_s == pytest.approx(wire, rel=0.02)


@pytest.mark.parametrize("name", profiles.cluster_names())
def test_cluster_loads_with_its_gpu_and_host(name: str) -> None:
    cluster = profiles.load_cluster(name)
    profiles.load_gpu(cluster.gpu)
    assert set(profiles.load_host(cluster.host).cost_ns) == {*profiles.CALL_KINDS, *profiles.WORK_KINDS}
    joined = cluster.gpus_per_server * cluster.servers_per_nvlink_domain
    assert cluster.network["server"]["gpus"] == joined


def test_peak_flops_by_dtype() -> None:
    gpu = profiles.load_gpu("h200")
    assert gpu.peak_flops("f8e4m3") == gpu.peak_flops("f8e5m2") > gpu.peak_flops("bf16") > gpu.peak_flops("tf32")
    with pytest.raises(profiles.ProfileError, match="no figure for dtype 'c64'"):
        gpu.peak_flops("c64")


@pytest.mark.parametrize("load", [profiles.load_gpu, profiles.load_cluster, profiles.load_host])
def test_unknown_name_lists_known_ones(load: object) -> None:
    with pytest.raises(profiles.UnknownProfile, match="h200"):
        load("dgx-h300" if load is profiles.load_cluster else "h300")  # type: ignore[operator]


@pytest.mark.parametrize("name", ["", "../h200", "."])
def test_names_that_are_no_names(name: str) -> None:
    with pytest.raises(profiles.ProfileError):
        profiles.load_gpu(name)


def test_path_of() -> None:
    assert profiles.load_gpu(profiles.path_of("a100-80g")).name == "a100-80g"
    with pytest.raises(profiles.UnknownProfile, match="known ones: a10, a100-40g, "):
        profiles.path_of("nothing")


def edited(tmp_path: Path, old: str, new: str) -> Path:
    text = profiles.path_of("h200").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    return path


def test_user_copy_overrides(tmp_path: Path) -> None:
    gpu = profiles.load_gpu(edited(tmp_path, "sm_count = 132 ", "sm_count = 78 "))
    assert gpu.name == "mine"
    assert "attr.16=78" in gpu.device_file_lines()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "sm_count = 132 ",
            "sm_count = 0 ",
            r"mine\.toml:5: sm_count: expected a whole number from 1 to 10000",
        ),
        ("sm_count = 132 ", 'sm_count = "132" ', r"mine\.toml:5: sm_count: expected a whole number"),
        ("sm_count = 132 ", "sm_count = true ", r"mine\.toml:5: sm_count: expected a whole number"),
        ("sm_count = 132 ", "sm_counts = 132 ", r"sm_count: missing"),
        ("sm_count = 132 ", "sm_count = 132\nsms = 1 ", r"mine\.toml:6: sms: unknown key; known ones: .*and \d+ more"),
        ("bus_width_bits", "bus_width", r"memory\.bus_width_bits: missing"),
        ("async_engines = 3 ", "async_engine = 3 ", r"limits\.async_engine: unknown key"),
        ("bf16 = 989.4", "bf16 = inf", r"peak_tflops\.bf16: expected a number of at least 1e-09"),
        ("bf16 = 989.4", "bf16 = nan", r"peak_tflops\.bf16: expected a number of at least 1e-09"),
        ("bf16 = 989.4", "bf16 = -1", r"peak_tflops\.bf16: expected a number of at least 1e-09"),
        ("memory_fraction = 0.91", "memory_fraction = 1.5", r"achieved\.memory_fraction: .* at most 1"),
        ('"9.0"', '"nine"', r'compute_capability: expected text like "9.0"'),
        ("[pcie]", "[pci]", r"pcie: missing"),
        ("sms = 24", "sms = 132", r"nccl\.sms: expected less than sm_count"),
        ("728_563_712", "150_109_880_320", r"memory\.reserved_nbytes: expected less than total_nbytes"),
        ("[pcie] ", "[pcie ", r"not TOML: .*line"),
    ],
)
def test_malformed_gpu(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.load_gpu(edited(tmp_path, old, new))


def test_truncated_anywhere(tmp_path: Path) -> None:
    """Cut at every tenth byte: an error that names the file, or a file that lacks nothing (cut in its last figure's
    comment).
    """
    data = profiles.path_of("h200").read_bytes()
    path = tmp_path / "cut.toml"
    needed = data.rindex(b"memory_share") + len(b"memory_share = 0.15")
    for end in range(0, len(data), 10):
        path.write_bytes(data[:end])
        if end >= needed:
            profiles.load_gpu(path)
            continue
        refused = ""
        try:
            share = profiles.load_gpu(path).nccl.memory_share
        except profiles.ProfileError as error:
            refused = str(error)
        # A figure cut after some of its digits still reads as a figure.
        assert refused.startswith(str(path)) or share != 0.15


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(profiles.ProfileError, match="no such file"):
        profiles.load_gpu(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(profiles.ProfileError, match=r"folder\.toml: cannot be read: Is a directory"):
        profiles.load_gpu(tmp_path / "folder.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(profiles.ProfileError, match="expected UTF-8 text"):
        profiles.load_gpu(path)


def test_attribute_overrides(tmp_path: Path) -> None:
    path = edited(tmp_path, "[nccl]", "[attributes]\nECC_ENABLED = 0\nNUMA_ID = -1\n[nccl]")
    assert {"attr.32=0", "attr.131=-1"} <= set(profiles.load_gpu(path).device_file_lines())
    path = edited(tmp_path, "[nccl]", "[attributes]\nECC = 0\n[nccl]")
    with pytest.raises(
        profiles.ProfileError, match=r"attributes\.ECC: no such attribute; names are those of CUdevice_attribute"
    ):
        profiles.load_gpu(path)


def test_host_without_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text(profiles.path_of("xeon-h200").read_text().replace("nccl = ", "ncll = "))
    with pytest.raises(profiles.ProfileError, match=r"call_ns\.nccl: missing"):
        profiles.load_host(path)


def test_cluster_with_unknown_key(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(profiles.path_of("laptop").read_text().replace("nccl =", 'ncll = "x"\nnccl ='))
    with pytest.raises(profiles.ProfileError, match="ncll: unknown key"):
        profiles.load_cluster(path)


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("H100", "h100"),
        ("h100-sxm", "h100"),
        ("H100 SXM5 80GB", "h100"),
        ("h100sxm5", "h100"),
        ("h100_pcie", "h100-pcie"),
        ("A100-80GB", "a100-80g"),
        ("a100 40 GB PCIe", "a100-pcie-40g"),
        ("RTX-4090", "rtx4090"),
        ("GeForce RTX 4090", "rtx4090"),
        ("Tesla_T4", "t4"),
        ("L40s", "l40s"),
    ],
)
def test_a_gpu_is_understood_as_people_spell_it(spelt: str, name: str) -> None:
    assert profiles.load_gpu(spelt).name == name
    assert profiles.path_of(spelt) == profiles.path_of(name)


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_the_name_that_cuda_gives_is_understood(name: str) -> None:
    """But that of a GPU whose device says no more than its kind: that is the usual one."""
    device_name = profiles.load_gpu(name).device_name
    assert profiles.load_gpu(device_name).name == ("h100" if device_name == "NVIDIA H100" else name)


@pytest.mark.parametrize(
    ("spelt", "variants"),
    [
        ("a100", "a100-40g, a100-80g, a100-pcie-40g, a100-pcie-80g"),
        ("A100-SXM", "a100-40g, a100-80g"),
        ("NVIDIA A100 PCIe", "a100-pcie-40g, a100-pcie-80g"),
    ],
)
def test_a_name_that_is_open_is_answered_with_its_variants(spelt: str, variants: str) -> None:
    with pytest.raises(profiles.UnknownProfile) as caught:
        profiles.load_gpu(spelt)
    assert f"its variants: {variants} (" in str(caught.value)


def test_the_gpu_of_a_gb300_is_a_ninth_faster_than_a_b300() -> None:
    """360 and 180 PFLOP/s of a rack of 72 with 8 and 16 bits, dense; a B300 has 4.5 and 2.25."""
    rack, module = profiles.load_cluster("gb300-nvl72"), profiles.load_gpu("b300")
    gpu = profiles.load_gpu(rack.gpu)
    assert (72 * gpu.peak_flops("f8e4m3") / 1e12, 72 * gpu.peak_flops("bf16") / 1e12) == (360_000, 180_000)
    assert (module.peak_flops("f8e4m3") / 1e12, module.peak_flops("bf16") / 1e12) == (4500, 2250)
    assert (gpu.power_limit_w, module.power_limit_w) == (1400, 1100)


def test_clusters_are_found_in_any_case() -> None:
    assert profiles.load_cluster("DGX_H100").name == "dgx-h100"
    assert profiles.load_cluster("P5en").name == "p5en"


@pytest.mark.parametrize("name", profiles.gpu_names())
def test_a_gpu_brings_the_servers_that_it_is_sold_in(name: str) -> None:
    """NVSwitch joins modules (SXM, and those of racks), PCIe joins cards."""
    gpu, machine = profiles.load_gpu(name), profiles.load_machine(None, name)
    assert (machine.gpu.path, machine.cluster.name) == (gpu.path, gpu.servers)
    module = name in MODULES
    assert machine.cluster.network["server"]["kind"] == ("nvswitch" if module else "pcie")
    assert machine.gpu.peer_gb_per_s == machine.cluster.peer_gb_per_s
    # An A100's NVLink is not an H200's: 12 links of 25 GB/s for 18 of them.
    assert (machine.cluster.network == profiles.load_cluster("dgx-h200").network) <= (name in ("h100", "h200"))


def test_links_that_nobody_named_are_assumed(tmp_path: Path) -> None:
    def assumed(cluster: str | Path | None, gpu: str | Path | None) -> str:
        return profiles.load_machine(cluster, gpu).assumed_links

    assert assumed(None, None) == assumed("dgx-h100", None) == assumed("dgx-h100", "H100") == ""
    assert assumed(None, "rtx4090") == "PCIe of 32 GB/s, 2 x 200 Gbit/s to other servers"
    assert assumed("dgx-h100", "b200") == "NVLink of 367 GB/s, 8 x 400 Gbit/s to other servers"
    mine = tmp_path / "mine.toml"
    text = profiles.path_of("h200").read_text()
    mine.write_text("".join(line for line in text.splitlines(True) if not line.startswith("servers")))
    assert profiles.load_machine(None, mine).cluster.name == "pcie", "of a GPU that says nothing: PCIe alone"
    assert assumed("dgx-h200", mine).startswith("NVLink of 367 GB/s")
