"""Makes the document that the page's scripts read: the report, and the notes in the words of the terminal's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phantora_async.figures import has_steps
from phantora_async.report import notes, unused_notes, used_no_gpu
from phantora_async.report.gpu_work import WorkRow, beside_kernels, family_rows, kernel_rows, work_window
from phantora_async.report.jobs import jobs_note
from phantora_async.report.loading import loading_binds
from phantora_async.report.text import what_binds

Document = Mapping[str, Any]
DIVIDED = ("live", "report", "report.simulated")
"""The parts of the view whose own parts are sent one by one."""
UNSHOWN = ("signatures", "ranks")
"""The parts of the report on kernels that the page does not have."""


def view(document: Document, live: Document | None = None) -> dict[str, Any]:
    """The view of the report. `live`: the state of a run that lasts; None: it has ended."""
    return {
        "title": _title(document),
        "report": _shown(document),
        "work": _work(document["simulated"]),
        "binds": _binds(document),
        "notes": notes(document),
        "unused": _unused(document, live),
        "jobs": _jobs(document, live),
        "live": live,
    }


def _binds(document: Document) -> list[str]:
    """The resource that binds a step, and the reason, in the words of the terminal's verdict; empty for a run without
    steps.
    """
    simulated = document["simulated"]
    if used_no_gpu(simulated) or not has_steps(simulated["step"]):
        return []
    what, _, why = what_binds(simulated, loading_binds(document.get("loading"))).partition(": ")
    return [what, why]


def _unused(document: Document, live: Document | None) -> list[str]:
    """The notes that come before all figures if no rank used a GPU; none for a run that lasts, since it may still use
    one.
    """
    simulated = document["simulated"]
    return unused_notes(simulated) if live is None and used_no_gpu(simulated) else []


def _jobs(document: Document, live: Document | None) -> str:
    """The sentence that says that the ranks are no single job; empty for a run that lasts: it may still communicate."""
    simulated = document["simulated"]
    return jobs_note(simulated) if live is None and not used_no_gpu(simulated) else ""


def _shown(document: Document) -> Document:
    """The document without single cost signatures, which may be many; ``work`` has the rows that are shown of them."""
    kernels = {name: value for name, value in document["simulated"]["kernels"].items() if name not in UNSHOWN}
    return {**document, "simulated": {**document["simulated"], "kernels": kernels}}


def _work(simulated: Document) -> dict[str, Any]:
    """The rows of GPU work, as the terminal's report has them."""
    if not simulated["kernels"]["gpu_ns"]:
        return {}
    plain = ("title", "family", "source", "bound", "ns", "launches", "share")

    def listed(rows: Sequence[WorkRow]) -> list[dict[str, Any]]:
        return [{name: getattr(row, name) for name in (*plain, "site")} for row in rows]

    return {
        "where": work_window(simulated),
        "families": listed(family_rows(simulated)),
        "kernels": listed(kernel_rows(simulated)),
        "beside": beside_kernels(simulated),
    }


def parts(shown: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The view in the pieces that a live page is sent, by their place in the view: ``report.simulated.step``."""
    found: dict[str, Any] = {}
    for name, value in shown.items():
        at = f"{place}{name}"
        if at in DIVIDED and value is not None:
            found |= parts(value, f"{at}.")
        else:
            found[at] = value
    return found


def _title(document: Document) -> str:
    run, simulated = document.get("run", {}), document["simulated"]
    words = [*filter(None, [run.get("script")]), *run.get("arguments", ())]
    return " ".join(words) or f"{simulated['world_size']} x {simulated['gpu']}"
