"""Executes a window's facts, as they were or with other durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.reasons.recording import Recorder
from phantora_async.reasons.window import NoStepError, Window
from phantora_async.virtual_time import NetworkModel, Stop, Timeline
from phantora_async.virtual_time.results import LOGGED_RANK

TURN = 2_000
"""The events between two checks whether the step has ended."""


def play(
    window: Window, facts: Sequence[Sequence[Any]], network: NetworkModel, queue_depth: int, paces: Paces = NO_PACES
) -> Recorder:
    """The graph of the window's step with these facts in place of the window's own. Raises NoStepError if the step
    does not come to its end. `paces`: of the run.
    """
    timeline = Timeline(len(facts), network, queue_depth, paces=paces.since(window.begin_ns))
    recorder = Recorder(len(facts))
    timeline.listen(recorder, range(len(facts)))
    for rank, mine in enumerate(facts):
        timeline.feed(rank, mine)
    end = LOGGED_RANK, window.last
    while end not in recorder.steps:
        if timeline.run(TURN) is not Stop.BUDGET and end not in recorder.steps:
            raise NoStepError("the last steps wait for work of steps before them, which is not kept")
    return recorder


def step_instants(window: Window, recorder: Recorder) -> tuple[int, int]:
    """The instants at which the window's step began and ended."""
    begin_ns = recorder.steps[LOGGED_RANK, window.first].at_ns if window.first >= 0 else 0
    return begin_ns, recorder.steps[LOGGED_RANK, window.last].at_ns
