"""Provides the live page's data while a run lasts: its progress, and the activity of every rank."""

from __future__ import annotations

import time
from collections.abc import Sequence

from phantora_async.diagnosis.progress import Progress
from phantora_async.diagnosis.rank_states import RankState
from phantora_async.diagnosis.remaining import Remaining, Share, logged_steps
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.report import Document, ranks_document, step_document
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import Snapshot, Timeline

MOST_GROUPS = 32
"""The most groups of ranks in the same state that are described."""
STARTING, RUNNING, WAITING, FINISHED = "srwf"


class LiveState:
    def __init__(self, spec: RunSpec, timeline: Timeline, fact_builder: FactBuilder) -> None:
        self._spec = spec
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._remaining = Remaining()
        self._started_s = time.monotonic()

    def look(self) -> None:
        """Updates the estimate of the remaining time. To be called about twice a second, whether anybody looks at the
        page or not.
        """
        share = self._share() or logged_steps(self._spec.run_dir / "rank0.log")
        self._remaining.look(share, time.monotonic())

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the run's start."""
        return time.monotonic() - self._started_s

    def whole(self) -> Document | None:
        """Says how much of the run is done, and what is left; None if the whole is not known."""
        return self._remaining.document(time.monotonic())

    def _share(self) -> Share | None:
        spec, timeline = self._spec, self._timeline
        if spec.until_ns:
            return Share(timeline.now_ns, spec.until_ns, "--until")
        if spec.steps:
            return Share(min(host.steps for host in timeline.own_hosts), spec.steps, "--steps")
        return None

    def progress(self, snapshot: Snapshot, stall: str) -> Document:
        """The figures that are cheap to compute while the run goes on. `snapshot` need not contain ranks; `stall`: see
        ``Status``. Figures of the report have the report's names.
        """
        progress = Progress.of(snapshot, self._fact_builder)
        return {
            "live": {
                "progress": {
                    "virtual_ns": progress.virtual_ns,
                    "ahead_ns": progress.ahead_ns,
                    "elapsed_s": round(self.elapsed_s, 1),
                    "steps": progress.steps,
                    "starting": progress.starting,
                    "running": progress.running,
                    "waiting": progress.waiting,
                    "finished": progress.finished,
                    "stall": stall,
                    "whole": self.whole(),
                },
            },
            "simulated": {
                "virtual_ns": snapshot.now_ns,
                "collectives": snapshot.collectives,
                "step": {"interval": None} | step_document(snapshot),
            },
        }

    def ranks(self, snapshot: Snapshot, states: Sequence[RankState]) -> Document:
        """The figures and states of all ranks. `snapshot` and `states` contain all ranks."""
        return {
            "live": {"states": self._states(states)},
            "simulated": {"ranks": ranks_document(self._spec, snapshot, self._fact_builder)},
        }

    def _states(self, states: Sequence[RankState]) -> Document:
        """The states of ranks: ``each`` has a letter for each rank; ``groups`` has the ranks that do the same, the
        largest group first.
        """
        groups: dict[str, list[int]] = {}
        for state in states:
            groups.setdefault(state.doing, []).append(state.rank)
        largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0]))
        return {
            "each": "".join(map(self._letter, states)),
            "groups": [{"ranks": ranks, "doing": doing} for doing, ranks in largest[:MOST_GROUPS]],
            "left_out": max(len(groups) - MOST_GROUPS, 0),
        }

    def _letter(self, state: RankState) -> str:
        info = self._fact_builder.rank_info[state.rank]
        if info.bye is not None:
            return FINISHED
        if info.hello is None:
            return STARTING
        return WAITING if state.waiting or info.questions else RUNNING
