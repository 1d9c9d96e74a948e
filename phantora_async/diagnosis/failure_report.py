"""The last message of a failed run: details for the user, and an entry of the report for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emu.contract.races import MAY_HANG
from phantora_async.diagnosis.rank_states import (
    RankState,
    describe_all,
    describe_differing_lines,
    describe_sides,
    sides_document,
)
from phantora_async.errors import Deadlock, Mismatch, RankDied, RunFailure, Stalled
from phantora_async.ingest.call_sites import Site
from phantora_async.ingest.fact_builder import FactBuilder


@dataclass(frozen=True, slots=True)
class FailureReport:
    """A failure, and what was found out about it."""

    failure: RunFailure
    states: Sequence[RankState]
    """The activity of each rank when the failure happened."""
    seen_at: Mapping[int, Site]
    """The sites at which ranks were when they wrote their stacks."""
    stacks: Mapping[int, Path]
    """Files with the stacks of all threads, by rank."""
    beside: Mapping[int, Sequence[Site]] = field(default_factory=dict)
    """The sites at which other threads of ranks were then."""
    loops: str = ""
    """The loops in which ranks poll, one on a line."""

    def details(self, fact_builder: FactBuilder, run_dir: Path) -> str:
        """Says who called what and where, then what the ranks were doing, if that helps."""
        parts = [self.failure.details]
        if self.failure.sides:
            parts.append(describe_sides(self.failure.sides, fact_builder, run_dir))
        if isinstance(self.failure, Mismatch | Deadlock | Stalled):
            parts.append(describe_differing_lines(fact_builder.differing_lines(), fact_builder))
            parts += [text for text in sorted(fact_builder.warnings) if text.startswith(MAY_HANG)]
        shown = self._shown()
        if shown:
            if self.failure.sides or isinstance(self.failure, RankDied):
                parts.append(
                    "what the other ranks were doing:"
                    if isinstance(self.failure, RankDied)
                    else "what the ranks were doing:"
                )
            parts.append(describe_all(shown, run_dir, self.seen_at, self.stacks, self.beside))
        parts.append(self.loops)
        return "\n".join(filter(None, parts))

    def _shown(self) -> list[RankState]:
        if isinstance(self.failure, RankDied):
            told = (state for state in self.states if state.waiting or state.alone or state.failed)
            return [state for state in told if state.rank != self.failure.rank]
        return list(self.states) if self.failure.shows_ranks else []

    def document(self, fact_builder: FactBuilder, run_dir: Path) -> dict[str, Any]:
        """The entry ``failure`` of the report. The failure has its details already."""
        failure = self.failure
        return {
            "kind": failure.kind,
            "message": failure.message,
            "text": failure.text,
            "rank": failure.rank if isinstance(failure, RankDied) else None,
            "calls": sides_document(failure.sides, fact_builder),
            "ranks": [self._rank(state, run_dir) for state in self.states],
            "loops": [loop.document(rank) for rank, loop in sorted(fact_builder.reads.loops.items())],
        }

    def _rank(self, state: RankState, run_dir: Path) -> dict[str, Any]:
        seen_at = self.seen_at.get(state.rank)
        return {
            "rank": state.rank,
            "doing": state.doing,
            "waiting": state.waiting,
            "site": state.site.document() if state.site else None,
            "now": seen_at.document() if seen_at else None,
            "log": str(run_dir / f"rank{state.rank}.log"),
            "stack": str(self.stacks[state.rank]) if state.rank in self.stacks else None,
        }


def needs_stacks(failure: RunFailure) -> bool:
    """Returns true if ranks are to be asked for their stacks. These explain nothing if a rank died or the simulator
    failed.
    """
    return failure.shows_ranks or isinstance(failure, Mismatch)
