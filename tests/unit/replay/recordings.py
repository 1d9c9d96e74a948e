"""Recordings of scripted ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.over_time import activity_document
from phantora_async.recording import Recorder, Recording, load
from phantora_async.recording.given_answers import RecordedAnswers
from phantora_async.replaying.execution import RecordedRun
from phantora_async.replaying.execution import execute as execute_recorded
from phantora_async.replaying.loops import marked
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import NetworkModel, Stop, Timeline
from profiles import load_cluster, load_gpu, load_host
from tests.unit.virtual_time.scripted import Arrivals, Script, new_fact_builder

NO_REPORT: dict[str, Any] = {"failure": None, "simulated": {"kernel_times": [], "logged": []}}


def spec_of(world_size: int) -> RunSpec:
    cluster = load_cluster("dgx-h200")
    nothing = Path("/dev/null")
    return RunSpec(
        socket=nothing,
        cost_table=nothing,
        run_dir=nothing,
        servers=(world_size,),
        gpu=load_gpu(cluster.gpu),
        cluster=cluster,
        host=load_host(cluster.host),
        host_mode="modelled",
    )


def record(
    scripts: Sequence[Script],
    folder: Path,
    network: NetworkModel,
    depth: int,
    paces: Paces = NO_PACES,
    *,
    warned: Sequence[int] = (),
) -> tuple[Timeline, list[Any]]:
    """Plays the scripts in order, and records them. `warned`: the ranks of which a warning is kept. Returns the
    timeline and what was answered.
    """
    recorder = Recorder(spec_of(len(scripts)), folder)
    timeline = Timeline(len(scripts), network, depth, paces=paces)
    fact_builder = new_fact_builder(len(scripts))
    take = fact_builder.take

    def recorded(rank: int, arrived: list[Any]) -> list[Any]:
        facts = take(rank, arrived)
        recorder.take(rank, arrived, facts)
        return facts

    fact_builder.take = recorded  # type: ignore[method-assign]
    arrivals = Arrivals(list(scripts), timeline, fact_builder)
    while arrivals:
        for rank in range(len(scripts)):
            if not arrivals.waits(rank):
                arrivals.feed(rank, arrivals.left(rank))
    answers = execute(timeline)
    recorder.answered(answers)
    for rank in warned:
        fact_builder.warn(rank, "a warning")
    assert recorder.close(fact_builder, NO_REPORT) == ""
    return timeline, answers


def execute(timeline: Timeline) -> list[Any]:
    """Executes the timeline to its end. Returns what was answered."""
    answers = []
    while timeline.run(1000) is Stop.BUDGET:
        answers += timeline.take_answers()
    return answers + timeline.take_answers()


def replayed(
    recording: Recording, network: NetworkModel, depth: int, paces: Paces = NO_PACES
) -> tuple[Timeline, list[RecordedAnswers]]:
    streams = [marked(recording.stream(rank), recording.answers(rank).queries) for rank in range(recording.world_size)]
    timeline = Timeline(recording.world_size, network, depth, paces=paces, recorded=RecordedRun(recording, streams))
    _, answers = execute_recorded(recording, timeline)
    return timeline, answers


def outcome(timeline: Timeline) -> dict[str, Any]:
    """Returns the figures that the report is made of."""
    snapshot = timeline.snapshot()
    return {
        "now": snapshot.now_ns,
        "collectives": snapshot.collectives,
        "ranks": [
            (rank.state, rank.clock_ns, rank.steps, rank.memory, rank.shares, _window(rank.window))
            for rank in snapshot.ranks
        ],
        "instants": snapshot.step_instants,
        "completed": snapshot.completed_collectives,
        "activity": activity_document(timeline.activity()),
    }


def _window(window: Any) -> Any:
    return window and [(step.number, step.host_ns, step.device_ns, step.shares) for step in window]


__all__ = ["execute", "load", "outcome", "record", "replayed", "spec_of"]
