"""Executes a window's facts, as they were or with other durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phantora_async.reasons.recording import RecordedTimeline, Recorder
from phantora_async.reasons.window import NoStepError, Window
from phantora_async.virtual_time import NetworkModel, Stop
from phantora_async.virtual_time.output import LOGGED_RANK

TURN = 2_000
"""Events between looks whether the step has ended."""


def play(window: Window, facts: Sequence[Sequence[Any]], network: NetworkModel, queue_depth: int) -> Recorder:
    """The graph of the window's step with these facts in place of the window's own. Raises NoStepError if the step
    does not come to its end.
    """
    timeline = RecordedTimeline(len(facts), network, queue_depth)
    for rank, mine in enumerate(facts):
        timeline.feed(rank, mine)
    steps, end = timeline.recorder.steps, (LOGGED_RANK, window.last)
    while end not in steps:
        if timeline.run(TURN) is not Stop.BUDGET and end not in steps:
            raise NoStepError("the last steps cannot be executed by themselves")
    return timeline.recorder


def step_instants(window: Window, recorder: Recorder) -> tuple[int, int]:
    """When the window's step began and ended."""
    begin_ns = recorder.steps[LOGGED_RANK, window.first].at_ns if window.first >= 0 else 0
    return begin_ns, recorder.steps[LOGGED_RANK, window.last].at_ns
