"""Reads of a GPU's properties by the script itself stop a replay on a GPU that would have answered otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.contract import records
from phantora_async.errors import PathChanged
from phantora_async.recording import Recording, load
from phantora_async.replaying.attribute_reads import value_of
from phantora_async.replaying.differences import (
    ATTRIBUTES,
    attention_by,
    attention_remarks,
    attention_share,
    memory_calls,
)
from phantora_async.replaying.machine import Changes, spec_of
from phantora_async.replaying.replay import replay
from phantora_async.report.text import terminal_report
from profiles import CALL_KINDS, gpu_names, load_gpu
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import record


def recording(folder: Path, *names: str) -> Recording:
    """Returns the recording of two ranks on an H200, of which the second reads these, in line 7 of train.py."""
    ranks = [Script(rank, 2, world_comm(2)) for rank in range(2)]
    for rank, script in enumerate(ranks):
        script.add(records.CommInit.encode(0, 1, 2, rank, rank, 0, payload=b"world".ljust(128, b"\0")))
    ranks[1].add(records.Site.encode(0, 3, 7, 0, 0, payload=b"train.py\n<module>\n\n"))
    for name in names:
        ranks[1].add(records.AttributeRead.encode(0, 3, 0, payload=name.encode()))
    for script in ranks:
        for _ in range(3):
            script.segment(1000, after=10).all_reduce(1 << 20).sync().step()
        script.bye()
    record(ranks, folder, FixedNetwork(), 64)
    return load(folder)


def replayed(made: Recording, gpu: str, *allowed: str) -> dict[str, object]:
    return dict(replay(made, spec_of(made, Changes(gpu=gpu), made.folder), frozenset(allowed)).report["simulated"])


@pytest.mark.parametrize(
    ("name", "gpu", "then", "now"),
    [
        ("name", "h100", "NVIDIA H200", "NVIDIA H100 80GB HBM3"),
        ("total_memory", "h100", "150,109,880,320", "85,017,493,504"),
        ("capability", "b200", "9.0", "10.0"),
        ("major", "b200", "9", "10"),
        ("multi_processor_count", "a100-80g", "132", "108"),
        ("attr.16", "a100-80g", "132", "108"),  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        ("power_limit", "l40s", "700 W", "350 W"),
        ("bf16_supported", "t4", "True", "False"),
    ],
)
def test_a_replay_stops_where_the_script_would_have_read_another_value(
    name: str, gpu: str, then: str, now: str, tmp_path: Path
) -> None:
    made = recording(tmp_path, name)
    with pytest.raises(PathChanged) as caught:
        replayed(made, gpu)
    assert f"rank 1 asked at train.py:7 for the GPU's {name}; recorded: {then}, now: {now}" in caught.value.message
    assert "--allow attributes" in caught.value.hint


@pytest.mark.parametrize(
    ("names", "gpu"),
    [
        (
            ("multi_processor_count", "major", "minor", "bf16_supported", "warp_size"),
            "h100",
        ),  # 132 SMs, 9.0, as an H200
        (("bf16_supported", "warp_size"), "a100-80g"),
        (("name", "total_memory"), "h200"),
        ((), "a100-80g"),  # libraries' reads are not told
        (("of a later version",), "a100-80g"),
    ],
)
def test_what_is_the_same_stops_nothing(names: tuple[str, ...], gpu: str, tmp_path: Path) -> None:
    assert "read_attributes" not in replayed(recording(tmp_path, *names), gpu)


def test_the_step_s_line_tells_where_the_user_goes_on(tmp_path: Path) -> None:
    made = recording(tmp_path, "name", "total_memory")
    found = replayed(made, "h100", ATTRIBUTES)
    assert found["read_attributes"] == [
        {"rank": 1, "line": "train.py:7", "attribute": name, "then": then, "now": now}
        for name, then, now in (
            ("name", "NVIDIA H200", "NVIDIA H100 80GB HBM3"),
            ("total_memory", "150,109,880,320", "85,017,493,504"),
        )
    ]
    report = replay(made, spec_of(made, Changes(gpu="h100"), tmp_path), frozenset({ATTRIBUTES})).report
    (line,) = (line for line in terminal_report(report).splitlines() if line.startswith("a step takes"))
    assert "though the script read the GPU's name at train.py:7: NVIDIA H200 then, NVIDIA H100 80GB HBM3 here" in line
    assert "(also total_memory)" in line


@pytest.mark.parametrize("name", gpu_names())
def test_every_property_of_torch_has_a_value(name: str) -> None:
    """But those that belong to one board: its addresses and its UUID."""
    gpu = load_gpu(name)
    names = """L2_cache_size clock_rate gcnArchName is_integrated is_multi_gpu_board major max_threads_per_block
        max_threads_per_multi_processor memory_bus_width memory_clock_rate minor multi_processor_count name
        regs_per_multiprocessor shared_memory_per_block shared_memory_per_block_optin shared_memory_per_multiprocessor
        total_memory warp_size"""
    for attribute in names.split():
        assert value_of(gpu, attribute) is not None, attribute


@pytest.mark.parametrize(
    ("gpu", "implementation"),
    [
        ("h200", "cuDNN"),  # 9.0
        ("b200", "cuDNN"),  # 10.0
        ("b300", "cuDNN"),  # 10.3
        ("a100-80g", "FlashAttention"),  # 8.0
        ("l40s", "FlashAttention"),  # 8.9
        ("rtx-pro-6000", "FlashAttention"),  # 12.0
        ("t4", "memory-efficient attention"),  # 7.5
    ],
)
def test_attention_follows_the_gpu_s_capability(gpu: str, implementation: str) -> None:
    assert attention_by(load_gpu(gpu)) == implementation


def test_what_attention_keeps_of_the_recorded_gpu_is_said() -> None:
    h200, h100, b200, l40s = map(load_gpu, ("h200", "h100", "b200", "l40s"))
    assert list(attention_remarks(h200, h100, 0.5)) == list(attention_remarks(h200, l40s, 0.0)) == []
    (other_kernels,) = attention_remarks(h200, l40s, 0.074)
    assert other_kernels.startswith("PyTorch prefers cuDNN on h200 and FlashAttention on l40s")
    assert "7.4% of GPU time" in other_kernels
    (other_operators,) = attention_remarks(h200, b200, 0.074)
    assert "on a GPU of capability 10.0 than on one of 9.0" in other_operators


def test_the_share_of_attention() -> None:
    times = {
        "sdpa;fwd;4x16x2048x128": 10,
        "kernel;_ZN13pytorch_flash16flash_fwd_kernel;1,1,1": 20,
        "kernel;_ZN13pytorch_flash25flash_bwd_dot_do_o_kernel;1,1,1": 5,
        "kernel;fmha_cutlassF_bf16_aligned_64x64_rf_sm80;1,1,1": 5,
        "gemm;bf16": 60,
    }
    signatures = [{"signature": name, "total_ns": total_ns} for name, total_ns in times.items()]
    assert attention_share({"simulated": {"kernels": {"gpu_ns": 100, "signatures": signatures}}}) == 0.4
    assert attention_share({"simulated": {"kernels": {"gpu_ns": 0, "signatures": []}}}) == 0.0


def test_requests_for_memory_by_step(tmp_path: Path) -> None:
    """Work 5 asks CUDA once, work 6, before a launch, three times: 1 in the first step, then 2, then 4."""
    alloc = CALL_KINDS.index("alloc")
    script = Script(0, 1)
    works = {4: 0, 5: 1, 6: 3}
    for work, units in works.items():
        counted = records.WorkCount.encode(alloc, 0, units)
        script.add(records.HistoryWork.encode(0, work, 0, 0, 1, 0, payload=counted))
    launches = records.HistoryLaunch.encode(0, 4, 1, 1) + records.HistoryLaunch.encode(0, 6, 1, 1)
    script.add(records.HistoryList.encode(0, 9, 2, 0, payload=launches))
    query, marker, segment = records.QUERY, records.MARKER, records.SEGMENT
    told = [
        (0, 5, query),
        (0, 4, marker),
        (0, 5, query),
        (0, 5, marker),
        (9, 0, segment),
        (0, 5, query),
        (0, 4, marker),
    ]
    entries = b"".join(records.HistoryEntry.encode(*one, 0) for one in told)
    script.add(records.History.encode(0, len(told), 0, payload=entries))
    for _ in range(3):
        script.step()
    record([script.bye()], tmp_path, FixedNetwork(), 64)
    made = load(tmp_path)
    assert [memory_calls(made, 0, step, step) for step in (1, 2, 3)] == [1, 2, 4]
    assert memory_calls(made, 0, 2, 3) == 6
