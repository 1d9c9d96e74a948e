"""The parts of reinforcement learning's steps, in virtual time: a rank generates responses, scores them, updates the
model, and generates again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emu.contract import records
from phantora_async.report.serving import Notes, changes_of, spans
from phantora_async.virtual_time import GenerationNote
from phantora_async.wording import named, seconds

Document = dict[str, Any]
PARTS = ("generating", "scoring", "updating", "between")
RANKS = 256
"""The most ranks that are listed."""


class Cycle(NamedTuple):
    """The time from the beginning of a rollout to that of the next one, or to the end of its last step."""

    begin_ns: int
    rollout_ns: int
    """The instant at which its last response is complete."""
    generating_ns: int
    training_ns: int
    """The instant at which its first backward pass begins."""
    step_ns: int
    """The instant at which its last step ends."""
    end_ns: int

    @property
    def parts(self) -> tuple[int, ...]:
        """Generating, scoring, updating, and the time between: what is left of the rollout's time counts as scoring."""
        scoring_ns = self.training_ns - self.begin_ns - self.generating_ns
        return self.generating_ns, scoring_ns, self.step_ns - self.training_ns, self.end_ns - self.step_ns


def cycles_of(told: Sequence[GenerationNote], until_ns: int) -> list[Cycle]:
    """A rank's cycles. A rollout may be several batches; it has ended when a backward pass begins. What comes behind
    the last one's steps is no part of it.
    """
    generating = [(begin, end) for begin, end, running in spans(changes_of(told, records.BATCH), until_ns) if running]
    training = [note.at_ns for note in told if note.kind == records.TRAINING]
    steps = [note.at_ns for note in told if note.kind == records.MARKER]
    found: list[Cycle] = []
    while generating:
        begin_ns = generating[0][0]
        training = [at_ns for at_ns in training if at_ns >= begin_ns]
        if not training:
            break
        rollout = [span for span in generating if span[1] <= training[0]]
        generating = [span for span in generating if span[0] >= training[0]]
        next_ns = generating[0][0] if generating else until_ns
        ends = [at_ns for at_ns in steps if training[0] <= at_ns <= next_ns]
        if not rollout or not ends:
            continue
        ns = sum(end - begin for begin, end in rollout)
        end_ns = next_ns if generating else ends[-1]
        found.append(Cycle(begin_ns, rollout[-1][1], ns, training[0], ends[-1], end_ns))
    return found


def rollouts_document(notes: Notes, until_ns: int) -> Document | None:
    """The report's part on rollouts: means of a cycle. None if no rank trains on what it has generated."""
    cycles = {rank: found for rank, told in sorted(notes.items()) if (found := cycles_of(told, until_ns))}
    if not cycles:
        return None
    ranks = [{"rank": rank, "cycles": len(own), **_means(own)} for rank, own in cycles.items()]
    alike = len({len(own) for own in cycles.values()}) == 1
    if len(cycles) > 1 and alike:
        last = [max(one.rollout_ns for one in together) for together in zip(*cycles.values(), strict=True)]
        for row, own in zip(ranks, cycles.values(), strict=True):
            row["early_ns"] = sum(end - one.rollout_ns for end, one in zip(last, own, strict=True)) // len(own)
    total = sum(map(len, cycles.values()))
    means = {name: sum(row[name] * row["cycles"] for row in ranks) // total for name in _NAMES}
    return {"cycles": max(map(len, cycles.values())), **means, "ranks": ranks[:RANKS]}


_NAMES = tuple(f"{part}_ns" for part in PARTS)


def _means(cycles: Sequence[Cycle]) -> dict[str, int]:
    sums = map(sum, zip(*(one.parts for one in cycles), strict=True))
    return {name: ns // len(cycles) for name, ns in zip(_NAMES, sums, strict=True)}


def rollouts_notes(rollouts: Mapping[str, Any]) -> list[str]:
    """The notes on rollouts for the terminal."""
    whole = max(sum(rollouts[name] for name in _NAMES), 1)
    shares = ", ".join(
        f"{words} {seconds(rollouts[name])} ({rollouts[name] / whole:.0%})"
        for name, words in zip(_NAMES, _WORDS, strict=True)
    )
    steps = rollouts["cycles"]
    notes = [f"rollouts: {steps:,}, each with its training takes {seconds(whole)} on average: {shares}"]
    early = [(row["early_ns"], row["rank"]) for row in rollouts["ranks"] if row.get("early_ns") is not None]
    if early and max(early)[0]:
        least, most = min(early), max(early)
        mean = sum(ns for ns, _ in early) // len(early)
        notes.append(
            f"  ranks wait {seconds(mean)} on average, in the next collective that they share, until the rank with the "
            f"longest rollout ends its own: {named([most[1]])} {seconds(most[0])}, {named([least[1]])} "
            f"{seconds(least[0])}"
        )
    return notes


_WORDS = (
    "generating",
    "until the first backward pass (rewards, reference, forward pass, waits for other ranks)",
    "update",
    "between the last step and the next rollout (weight transfer, data)",
)
