"""Makes the document that the page's scripts read: the report, and the notes in the words of the terminal's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phantora_async.report import notes, unused_notes, used_no_gpu

Document = Mapping[str, Any]
DIVIDED = ("live", "report", "report.simulated")
"""The parts of the view whose own parts are sent one by one."""


def view(document: Document, live: Document | None = None) -> dict[str, Any]:
    """The view of the report. `live`: the state of a run that lasts; None: it has ended."""
    return {
        "title": _title(document),
        "report": _shown(document),
        "notes": notes(document),
        "unused": _unused(document, live),
        "live": live,
    }


def _unused(document: Document, live: Document | None) -> list[str]:
    """The notes that come before all figures if no rank used a GPU; none for a run that lasts, since it may still use
    one.
    """
    simulated = document["simulated"]
    return unused_notes(simulated) if live is None and used_no_gpu(simulated) else []


def _shown(document: Document) -> Document:
    """The document without the texts of cost signatures, which may be long; their titles describe them."""
    kernels = document["simulated"]["kernels"]
    short = [{name: value for name, value in one.items() if name != "signature"} for one in kernels["signatures"]]
    return {**document, "simulated": {**document["simulated"], "kernels": {**kernels, "signatures": short}}}


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
