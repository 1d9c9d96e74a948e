"""The jobs that are benchmarked: one training script on several numbers of ranks, in weak and strong scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.contract import installed
from phantora_async.errors import UsageError

SCRIPT = Path(installed.EMU, "hostbench", "sharded_training.py")
MODELS = {
    "tiny": ("--layers", "4", "--dim", "256"),
    "1b": ("--layers", "16", "--dim", "2048"),
    "7b": ("--layers", "32", "--dim", "4096"),
}
SCALINGS = ("weak", "strong", "both")
MOST_MICRO_BATCHES = 32


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a benchmark."""

    ranks: int
    scaling: str
    """`weak`: every rank has one sequence a step. `strong`: all ranks together have as many sequences as the largest
    run has.
    """
    micro_batches: int

    @property
    def name(self) -> str:
        return f"{self.ranks} ranks, {self.scaling}"


@dataclass(frozen=True, slots=True)
class BenchJob:
    """The settings that all runs of a benchmark have in common."""

    model: str
    steps: int
    script: Path | None
    """The user's own script, in place of the model."""
    arguments: tuple[str, ...]
    """The arguments of the user's script."""
    run_options: tuple[str, ...]
    """Further options that `phantora-async run` gets."""

    def command(self, case: Case) -> list[str]:
        """The script and its arguments for this case."""
        if self.script is not None:
            return [str(self.script), *self.arguments]
        batches = ("--micro-batches", str(case.micro_batches))
        return [str(SCRIPT), *MODELS[self.model], "--steps", str(self.steps), *batches]

    def key(self) -> dict[str, object]:
        """Identifies the job: runs of jobs with equal keys can be compared."""
        own = [str(self.script.resolve()), *self.arguments] if self.script is not None else None
        return {"model": None if own else self.model, "steps": self.steps, "script": own, "run": list(self.run_options)}


def cases(ranks: Sequence[int], scaling: str) -> list[Case]:
    """The cases to run. Raises UsageError if strong scaling cannot divide the largest number of ranks by another
    one.
    """
    found = []
    if scaling != "strong":
        found += [Case(n, "weak", 1) for n in ranks]
    if scaling != "weak":
        largest = max(ranks)
        for n in ranks:
            if largest % n:
                raise UsageError(
                    f"--ranks: {largest} is no multiple of {n}, which strong scaling needs", "try --scaling weak"
                )
            if largest // n > MOST_MICRO_BATCHES:
                raise UsageError(
                    f"--ranks: strong scaling from {n} to {largest} ranks is too far", "try --scaling weak"
                )
        found += [Case(n, "strong", largest // n) for n in ranks]
    return found
