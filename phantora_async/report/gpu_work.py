"""Makes the rows of GPU work that every view shows: by family and by kernel, each per step and GPU.

The terminal, the page, Markdown, CSV and the API read these rows, so that one run has one table of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phantora_async.figures import TIME_ACCOUNTS, counted_in, ranks_of
from phantora_async.report.steps import window

Simulated = Mapping[str, Any]
GAPS = "gaps between launches"
SLOWED = "slower beside NCCL's kernels"
"""Names of the time that is booked as computing and that no kernel takes alone."""
LEAST_BESIDE = 0.005
"""The share of the computing time below which such time has no row."""


@dataclass(frozen=True, slots=True)
class WorkRow:
    """GPU work that differs in nothing that is shown, or a whole family of it. Figures are those of a step and GPU: the
    mean over GPUs and the steps that count; in the window of the whole run they are those of a GPU.
    """

    title: str
    family: str
    source: str
    """The source of its cost; empty for a family, whose members may differ."""
    bound: str
    ns: float
    launches: float
    share: float
    """Its share of the time of all GPU work."""
    signatures: Sequence[Mapping[str, Any]] = ()
    """The entries of the report that the row stands for, the longest first."""

    @property
    def site(self) -> str:
        """The line of the script at which the signature that takes most of it is launched first in a step; empty if it
        is not known.
        """
        return str(self.signatures[0].get("site", "")) if self.signatures else ""

    @property
    def mean_ns(self) -> float:
        return self.ns / self.launches if self.launches else 0.0


def family_of(signature: Mapping[str, Any]) -> str:
    """The family of a signature of the report: the model that prices it, or the kind of copy."""
    if model := signature.get("model"):
        return str(model)
    kind = str(signature.get("signature", signature["title"])).partition(";")[0].split(" ")[0]
    return {"copy": "copies", "memset": "fills"}.get(kind, "not known")


def work_window(simulated: Simulated, rank: int | None = None) -> str:
    """The window of the rows, in words: ``a step and GPU, mean of steps 4 to 5``."""
    whose = "GPU" if rank is None else f"rank {rank}"
    if simulated["kernels"]["window"] != "steps":
        return f"a GPU in {window(simulated, 'run')}" if rank is None else f"{whose} in {window(simulated, 'run')}"
    each = f"a step and {whose}" if rank is None else f"a step of {whose}"
    several = "mean of " * (simulated["step"]["counted"] > 1)
    return f"{each}, {several}{window(simulated, 'steps')}"


def kernel_rows(simulated: Simulated, rank: int | None = None) -> list[WorkRow]:
    """The rows of single kernels, the longest first. Signatures that would read the same share a row."""
    found: dict[tuple[str, ...], list[tuple[float, float, Mapping[str, Any]]]] = {}
    for ns, launches, one in signature_times(simulated, counted_in(simulated, rank), rank):
        key = (one["source"], one.get("bound", ""), one["title"])
        found.setdefault(key, []).append((ns, launches, one))
    return _rows(found, simulated, rank, families=False)


def family_rows(simulated: Simulated, rank: int | None = None) -> list[WorkRow]:
    """The rows of families, the longest first. They have the same times as the rows of kernels."""
    found: dict[tuple[str, ...], list[tuple[float, float, Mapping[str, Any]]]] = {}
    for ns, launches, one in signature_times(simulated, counted_in(simulated, rank), rank):
        found.setdefault((family_of(one),), []).append((ns, launches, one))
    return _rows(found, simulated, rank, families=True)


def beside_kernels(simulated: Simulated, rank: int | None = None) -> list[tuple[str, float]]:
    """The time of a step and GPU that reports book as computing and that no kernel takes alone, in ns: gaps between
    launches, and what NCCL kernels beside the work cost. Work on several streams at once makes it less. Empty if it is
    not known.
    """
    ranks = ranks_of(simulated, rank)
    if simulated["kernels"]["window"] != "steps" or any(one["window"] != "steps" for one in ranks):
        return []
    of_work = [account for account in TIME_ACCOUNTS if account.name in ("compute", "copies")]
    booked_ns = sum(account.time_of(one) for one in ranks for account in of_work) / counted_in(simulated, rank)
    work = list(signature_times(simulated, counted_in(simulated, rank), rank))
    rest_ns = max(booked_ns - sum(ns for ns, _, _ in work), 0.0)
    gap_ns = simulated["kernels"].get("launch_gap_ns")
    if gap_ns is None:  # a report of an older version
        found = [(f"{GAPS}, and {SLOWED}", rest_ns)]
    else:
        gaps_ns = min(gap_ns * sum(launches for _, launches, _ in work), rest_ns)
        found = [(GAPS, gaps_ns), (SLOWED, rest_ns - gaps_ns)]
    return [(name, ns) for name, ns in found if ns > LEAST_BESIDE * booked_ns]


def signature_times(
    simulated: Simulated, by: int, rank: int | None = None
) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Yields the time in ns and the launches of each signature, divided by `by` (see ``counted_in``), and its entry in
    the report. `rank`: None: those of all ranks together.
    """
    kernels = simulated["kernels"]
    listed = kernels["signatures"]
    if rank is None:
        for one in listed:
            total_ns = one["total_ns"] if "total_ns" in one else one["mean_ns"] * one["launches"]
            yield total_ns / by, one["launches"] / by, one
        return
    launches: Sequence[int] = next((group["launches"] for group in kernels["ranks"] if rank in group["ranks"]), [])
    for count, one in zip(launches, listed, strict=False):
        if count:
            yield one["mean_ns"] * count / by, count / by, one


def _rows(
    found: Mapping[tuple[str, ...], Sequence[tuple[float, float, Mapping[str, Any]]]],
    simulated: Simulated,
    rank: int | None,
    *,
    families: bool,
) -> list[WorkRow]:
    total_ns = sum(ns for group in found.values() for ns, _, _ in group) or 1.0
    rows = []
    for key, group in found.items():
        ns = sum(part for part, _, _ in group)
        ordered = [one for _, _, one in sorted(group, key=lambda part: -part[0])]
        rows.append(
            WorkRow(
                title=key[0] if families else key[2],
                family=family_of(ordered[0]),
                source="" if families else key[0],
                bound="" if families else key[1],
                ns=ns,
                launches=sum(part for _, part, _ in group),
                share=ns / total_ns,
                signatures=ordered,
            )
        )
    return sorted(rows, key=lambda row: (-row.ns, row.title))
