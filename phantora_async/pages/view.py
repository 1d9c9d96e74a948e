"""What the page's scripts read: the report's document, and the notes in the words of the terminal's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phantora_async.report import notes

Document = Mapping[str, Any]


def view(document: Document, live: Document | None = None) -> dict[str, Any]:
    """`live`: what is known of a run that lasts; None: it has ended."""
    return {"title": _title(document), "report": _shown(document), "notes": notes(document), "live": live}


def _shown(document: Document) -> Document:
    """Without the texts of cost signatures, which may be long; their titles say what they are."""
    kernels = document["simulated"]["kernels"]
    short = [{name: value for name, value in one.items() if name != "signature"} for one in kernels["signatures"]]
    return {**document, "simulated": {**document["simulated"], "kernels": {**kernels, "signatures": short}}}


def _title(document: Document) -> str:
    run, simulated = document.get("run", {}), document["simulated"]
    words = [*filter(None, [run.get("script")]), *run.get("arguments", ())]
    return " ".join(words) or f"{simulated['world_size']} x {simulated['gpu']}"
