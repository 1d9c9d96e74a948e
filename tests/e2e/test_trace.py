"""`run --trace`: what it shows agrees with the report, it changes nothing, and it can be read whatever ends the run."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from phantora_async.trace.names import KNOWN_NAMES
from profiles import load_gpu

from .conftest import Run

STEP, KERNEL, COPY, FILL = "ProfilerStep#", "kernel", "gpu_memcpy", "gpu_memset"
GPU = (KERNEL, COPY, FILL)
Event = dict[str, Any]


def events_of(path: Path) -> list[Event]:
    """Returns complete events in order of time, with integer nanoseconds."""
    content = json.loads(path.read_text())
    found = [event for event in content["traceEvents"] if event["ph"] == "X"]
    for event in found:
        event["from_ns"] = round(event["ts"] * 1000)
        event["to_ns"] = event["from_ns"] + round(event["dur"] * 1000)
    return sorted(found, key=lambda event: (event["from_ns"], -event["to_ns"]))


def union_ns(events: list[Event], from_ns: int, to_ns: int) -> int:
    """Returns how much of a time is covered by events, in ns."""
    covered, until = 0, from_ns
    for event in events:
        start, end = max(event["from_ns"], until), min(event["to_ns"], to_ns)
        if end > start:
            covered += end - start
            until = end
    return covered


def test_a_trace_agrees_with_the_report_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    plain = run("traced.py")
    traced = run("traced.py", options=("--trace", str(tmp_path / "t.json")))
    assert traced.exit_code == 0, traced.output
    assert traced.simulated == plain.simulated

    events = events_of(tmp_path / "t.rank0.json")
    names = {event["cat"]: set[str]() for event in events}
    for event in events:
        names[event["cat"]].add(event["name"])
    assert {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"} <= names["cuda_runtime"]
    assert {"aten::addmm", "aten::mm", "AddmmBackward0"} <= names["cpu_op"]
    assert {"forward of the model", f"{STEP}1", f"{STEP}4"} <= names["user_annotation"]
    assert any("multi_tensor_apply_kernel<" in name for name in names[KERNEL])
    assert "Memcpy DtoH (Device -> Pageable)" in names[COPY] or "Memcpy DtoH (Device -> Pinned)" in names[COPY]

    # Every kernel is correlated with one call, before it, and with the op around that call.
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    ops = {event["args"]["External id"]: event for event in events if "Record function id" in event["args"]}
    on_gpu = [event for event in events if event["cat"] in GPU]
    for event in on_gpu:
        call = calls[event["args"]["correlation"]]
        assert call["from_ns"] <= event["from_ns"]
        if call["args"]["External id"]:
            op = ops[call["args"]["External id"]]
            assert op["from_ns"] <= call["from_ns"]
            assert call["to_ns"] <= op["to_ns"]

    # A stream waits for what the other one had been given, the host for what the stream had been given.
    launched = {e["args"]["correlation"]: e for e in on_gpu}
    synced = [event for event in events if event["cat"] == "cuda_sync"]
    waits = [event for event in synced if event["name"] == "Stream Wait Event"]
    assert len([event for event in waits if event["args"]["wait_on_stream"] == event["tid"]]) == 0
    assert {"Stream Wait Event", "Stream Sync"} <= {event["name"] for event in synced}
    side = {event["tid"] for event in on_gpu if "pow_tensor_scalar" in event["name"]} - {1}
    assert [event["args"]["wait_on_stream"] for event in waits if event["tid"] in side] == [1] * 4
    assert len([event for event in waits if event["args"]["wait_on_stream"] in side]) == 4
    for event in synced:
        call = calls[event["args"]["correlation"]]
        assert (event["from_ns"], event["to_ns"]) == (call["from_ns"], call["to_ns"])
        recorded = calls.get(event["args"].get("wait_on_cuda_event_record_corr_id", -1), call)
        stream = event["args"].get("wait_on_stream", event["tid"])
        until = recorded["args"]["correlation"]
        before = [e for number, e in launched.items() if e["tid"] == stream and number < until]
        if event["name"] == "Stream Wait Event":
            assert recorded["name"] == "cudaEventRecord"
            number = event["args"]["correlation"]
            behind = [e for other, e in launched.items() if e["tid"] == event["tid"] and other > number]
        else:
            behind = [{"from_ns": event["to_ns"]}]
        assert max((e["to_ns"] for e in before), default=0) <= min((e["from_ns"] for e in behind), default=1 << 62)

    # Kernels of one stream do not overlap.
    for stream in {event["tid"] for event in on_gpu}:
        for before, after in pairwise(event for event in on_gpu if event["tid"] == stream):
            assert before["to_ns"] <= after["from_ns"]

    # The report's step, launches and NCCL time.
    steps = [event for event in events if event["name"].startswith(STEP)]
    assert [event["name"] for event in steps] == [f"{STEP}{number}" for number in (1, 2, 3, 4)]
    rank = traced.simulated["ranks"][0]
    collectives = [event for event in on_gpu if event["name"].startswith("ncclDevKernel_AllReduce_Sum_f32")]
    assert len(collectives) >= 4
    for event in collectives:
        arguments = event["args"]
        assert arguments["Collective name"] == "allreduce"
        assert (arguments["Group size"], arguments["dtype"]) == (2, "Float")
        assert arguments["algorithm"] in ("ring", "tree", "nvls")
        assert arguments["bus bandwidth (GB/s)"] > 0
    total = sum(event["to_ns"] - event["from_ns"] for event in on_gpu if "nccl" not in event["name"])
    costs = traced.simulated["cost_sources_whole_run"]["gpu_ns"]
    both = total + sum(
        event["to_ns"] - event["from_ns"]
        for event in events_of(tmp_path / "t.rank1.json")
        if event["cat"] in GPU and "nccl" not in event["name"]
    )
    assert costs <= both <= 1.2 * costs  # slower where NCCL or another stream was beside them
    assert rank["steps"] == 4


def test_time_on_the_gpu_is_the_report_s(run: Run, tmp_path: Path) -> None:
    traced = run("overlapped.py", "3", options=("--trace", str(tmp_path / "t.json")))
    assert traced.exit_code == 0, traced.output
    gap_ns = load_gpu("h200").achieved.launch_gap_ns
    kernels = {entry["signature"]: entry for entry in traced.simulated["kernels"]["signatures"]}
    launches = total_ns = 0
    for rank in (0, 1):
        events = [event for event in events_of(tmp_path / f"t.rank{rank}.json") if event["cat"] in GPU]
        figures = traced.simulated["ranks"][rank]
        nccl = [event for event in events if event["name"].startswith("nccl")]
        compute = [event for event in events if not event["name"].startswith("nccl")]
        assert union_ns(nccl, 0, figures["window_ns"]) == figures["communication_ns"]
        # With the gap behind each kernel, which is longer beside NCCL, too.
        slots_ns = sum(
            (event["to_ns"] - event["from_ns"]) * (1 + gap_ns / kernels[event["args"]["signature"]]["mean_ns"])
            for event in compute
            if event["cat"] == KERNEL
        )
        others = [event for event in compute if event["cat"] != KERNEL]
        slots_ns += sum(event["to_ns"] - event["from_ns"] + gap_ns for event in others)
        booked_ns = figures["compute_ns"] + figures["copies_ns"]
        assert abs(slots_ns - booked_ns) <= 2 * len(compute) + 0.002 * booked_ns
        launches += len(compute)
        total_ns += sum(event["to_ns"] - event["from_ns"] for event in compute)
        waits = [event["args"] for event in nccl if event["args"]["Collective name"] == "allreduce"]
        assert len(waits) == 3
        # The rank with less to compute waits for the other one.
        assert [wait["waited for rank"] for wait in waits][1:] == [1, 1]
        assert (sum(wait["waited (us)"] for wait in waits[1:]) > 0) == (rank == 0)
    assert launches == sum(entry["launches"] for entry in kernels.values())
    assert total_ns >= sum(entry["total_ns"] for entry in kernels.values())


def test_a_failed_run_leaves_a_readable_trace(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS_AT", "2")
    failed = run("traced.py", options=("--trace", str(tmp_path / "t.json")))
    assert failed.exit_code == 1
    names = {event["name"] for event in events_of(tmp_path / "t.rank0.json")}
    assert {f"{STEP}1", f"{STEP}2", "aten::addmm"} <= names


def test_a_trace_that_cannot_be_written_is_refused_at_the_start(run: Run, tmp_path: Path) -> None:
    refused = run("traced.py", options=("--trace", str(tmp_path / "missing" / "t.json")))
    assert refused.exit_code == 2
    assert "cannot be written: No such file or directory" in refused.output


def test_a_full_disk_ends_the_trace_and_not_the_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.rank0.json").symlink_to("/dev/full")
    ended = run("traced.py", options=("--trace", str(tmp_path / "t.json"), "--trace-ranks", "0"))
    assert ended.exit_code == 74
    assert "the trace t.json is incomplete: No space left on device" in ended.output
    assert ended.simulated["ranks"][0]["steps"] == 4


def test_chosen_ranks_and_steps_in_both_forms(run: Run, tmp_path: Path) -> None:
    options = ("--trace-ranks", "1", "--trace-steps", "3")
    json_form = run("traced.py", options=("--trace", str(tmp_path / "t.json"), *options))
    assert json_form.exit_code == 0, json_form.output
    assert not (tmp_path / "t.rank0.json").exists()
    events = events_of(tmp_path / "t.rank1.json")
    (step,) = [event for event in events if event["name"].startswith(STEP)]
    assert step["name"] == f"{STEP}3"
    host = [event for event in events if event["cat"] in ("cpu_op", "cuda_runtime")]
    assert len(host) > 50
    assert all(step["from_ns"] <= event["from_ns"] and event["to_ns"] <= step["to_ns"] for event in host)

    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    own_form = run("traced.py", options=("--trace", str(tmp_path / "t.pftrace"), *options))
    assert own_form.exit_code == 0, own_form.output
    trace = pb.Trace.FromString((tmp_path / "t.pftrace").read_bytes())
    names: dict[int, str] = {}
    tracks: dict[int, str] = {}
    found: list[tuple[int, int, str]] = []
    started: dict[int, list[tuple[int, str]]] = {}
    rates = []
    arrows: dict[int, list[tuple[int, str]]] = {}
    packets = sorted(enumerate(trace.packet), key=lambda packet: (packet[1].timestamp, packet[0]))
    for packet in trace.packet:
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
    for _, packet in packets:
        event, track = packet.track_event, packet.track_event.track_uuid
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            started.setdefault(track, []).append((packet.timestamp, names[event.name_iid]))
            for flow in event.flow_ids:
                name = names[event.name_iid]
                arrows.setdefault(flow, []).append((packet.timestamp, KNOWN_NAMES.get(name, name)))
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            start_ns, name = started[track].pop()
            if "stream" not in tracks[track] or not name.startswith("waits for"):
                found.append((start_ns, packet.timestamp, name))
        elif event.type == pb.TrackEvent.TYPE_COUNTER and "gpu1:out" in tracks[track]:
            rates.append(event.double_counter_value)
    assert not any(started.values())
    known = [(start_ns, end_ns, KNOWN_NAMES.get(name, name)) for start_ns, end_ns, name in found]
    shown = [event for event in events if event["cat"] != "cuda_sync"]  # the call shows how long its host waited
    assert sorted(known) == sorted((event["from_ns"], event["to_ns"], event["name"]) for event in shown)
    assert max(rates) > 0
    assert rates[-1] == 0
    correlated: dict[int, list[tuple[int, str]]] = {}
    for event in shown:
        if event["args"].get("correlation"):
            correlated.setdefault(event["args"]["correlation"], []).append((event["from_ns"], event["name"]))
    assert sorted(map(sorted, arrows.values())) == sorted(map(sorted, correlated.values()))
    assert sum(len(joined) > 1 for joined in arrows.values()) > 20


def test_holistic_trace_analysis_finds_the_critical_path(run: Run, tmp_path: Path) -> None:
    """By hand: the host launches the long kernel, it runs, then the kernel behind both. HTA drops the last step."""
    analysis = pytest.importorskip("hta.trace_analysis", reason="pip install HolisticTraceAnalysis")
    pandas = pytest.importorskip("pandas")
    if int(pandas.__version__.partition(".")[0]) > 2:
        pytest.skip("HolisticTraceAnalysis 0.5 needs pandas 2 for critical paths")
    folder = tmp_path / "traces"
    folder.mkdir()
    traced = run("two_streams.py", n=1, options=("--trace", str(folder)))
    assert traced.exit_code == 0, traced.output
    found = analysis.TraceAnalysis(trace_dir=str(folder))
    events = found.t.get_trace(0)
    names = [found.t.symbol_table.get_sym_table()[name] for name in events["name"]]
    for step, long in ((1, "cos"), (2, "sin")):
        graph, complete = found.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=step)
        assert complete
        path = [graph.node_list[number].ev_idx for number in graph.critical_path_nodes]
        on_gpu = [events.index.get_loc(number) for number in dict.fromkeys(path) if events.stream[number] != -1]
        assert len(on_gpu) == 2
        assert f"{long}_kernel" in names[on_gpu[0]]
        assert "AbsFunctor" in names[on_gpu[1]] or "abs_kernel" in names[on_gpu[1]]


def test_holistic_trace_analysis_finds_the_report_s_figures(run: Run, tmp_path: Path) -> None:
    """It rounds to microseconds, and has no gaps between kernels."""
    analysis = pytest.importorskip("hta.trace_analysis", reason="pip install HolisticTraceAnalysis")
    folder = tmp_path / "traces"
    folder.mkdir()
    traced = run("overlapped.py", "40", options=("--trace", str(folder)))
    assert traced.exit_code == 0, traced.output
    found = analysis.TraceAnalysis(trace_dir=str(folder))
    breakdown = found.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = found.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
    for rank, figures in enumerate(traced.simulated["ranks"]):
        exposed_ns = figures["transfer_ns"] + figures["peers_ns"]
        hidden = 100 * (1 - exposed_ns / figures["communication_ns"])
        assert abs(overlap[rank] - hidden) < 2
        assert abs(breakdown["compute_time(us)"][rank] * 1000 - figures["compute_ns"]) < 0.02 * figures["compute_ns"]
        # Before the first kernel and behind the last one, HTA does not look; it counts gaps between kernels.
        gaps_ns = figures["launches"] * load_gpu("h200").achieved.launch_gap_ns
        idle_ns = breakdown["idle_time(us)"][rank] * 1000
        assert idle_ns <= 1.1 * (figures["idle_ns"] + figures["host_bound_ns"] + gaps_ns)
    kinds, _ = found.get_gpu_kernel_breakdown(visualize=False)
    kinds = kinds.set_index("kernel_type")["sum"]
    communication_us = sum(kinds[kind] for kind in kinds.index if "COMMUNICATION" in kind)
    expected_us = sum(figures["communication_ns"] for figures in traced.simulated["ranks"]) / 1000
    assert abs(communication_us - expected_us) < 0.01 * expected_us
