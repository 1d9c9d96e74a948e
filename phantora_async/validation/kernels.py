"""Compares the kernel time of a job by family: a trace of the real run beside the simulated one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phantora_async.errors import UsageError
from profiles import ProfileError, load_gpu
from profiles.timings import trace
from profiles.tools import trace_compare
from profiles.tools.trace_compare import Family


@dataclass(frozen=True, slots=True)
class KernelComparison:
    """One step of rank 0. ``problem``: why there are no families, else empty."""

    job: str
    trace: str
    families: tuple[Family, ...]
    problem: str = ""

    def text(self) -> str:
        head = f"\nkernels of {self.job}, one step of rank 0 ({self.trace}):\n\n"
        return head + (self.problem or trace_compare.table(self.families)) + "\n"

    def document(self) -> dict[str, Any]:
        families = [asdict(family) | {"error": family.error} for family in self.families]
        return {"job": self.job, "trace": self.trace, "problem": self.problem, "families": families}


def find(folder: Path, job: str) -> Path | None:
    """The job's trace of rank 0: ``JOB.json``, ``JOB.r0.json``, or one of these with ``.gz``."""
    for name in (f"{job}.json", f"{job}.r0.json"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def compare(path: Path, job: str, report: dict[str, Any]) -> KernelComparison:
    """Compares the kernels of a trace with the report's. Raises UsageError if the file is no trace. A run without a
    report has a problem, not families.
    """
    try:
        events = trace.load(path)
        real, steps = trace.works(events), trace.steps_in(events)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path}: not a trace of torch.profiler ({type(error).__name__}: {error})",
            "export_chrome_trace of a profile with record_shapes=True makes one",
        ) from None
    try:
        gpu = load_gpu(report["simulated"]["gpu"])
        found = trace_compare.families(gpu, real, steps, report)
    except (KeyError, ValueError, ProfileError) as error:
        return KernelComparison(job, path.name, (), f"no kernels were simulated: {error}")
    return KernelComparison(job, path.name, tuple(found))
