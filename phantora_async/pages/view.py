"""What the page's scripts read: the report's document, and the notes in the words of the terminal's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phantora_async.report import notes

Document = Mapping[str, Any]


def view(document: Document, live: Document | None = None) -> dict[str, Any]:
    """`live`: what is known of a run that lasts; None: it has ended."""
    return {"title": _title(document), "report": document, "notes": notes(document), "live": live}


def _title(document: Document) -> str:
    run, simulated = document.get("run"), document["simulated"]
    return " ".join([run["script"], *run["arguments"]]) if run else f"{simulated['world_size']} x {simulated['gpu']}"
