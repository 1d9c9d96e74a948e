"""Writes the report's part ``reasons`` in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from phantora_async.figures.resources import Resource

KINDS = {
    "compute": "compute",
    "communication": "communication that nothing hides",
    "copies": "copies",
    "host": "the GPU waits for the host",
    "peer": "one rank works while its peer waits for it",
    "straggler": "one rank works while half of the others or more wait for it",
}
"""The kinds of parts, in words."""
LEAST_SHARE = 0.005
"""The share of the step below which a part is not named."""
MOST_NAMED = 4
"""The most parts of one kind that are named."""
MOST_LONGEST = 3
"""The most kernels and collectives of the path that are named."""
LONGEST_TITLE = 60
LEAST_CHANGE = 0.0005
LEAST_LINK_SHARE = 0.05
"""The share of the path's communication that links twice as fast must save to count as what decides it."""
_NETWORK = frozenset((Resource.LINKS.value, Resource.NETWORK.value))
Document = Mapping[str, Any]


def reasons_notes(reasons: Document) -> list[str]:
    """The reasons as lines of text."""
    if reasons["missing"]:
        return [f"no reasons are given: {reasons['missing']}"]
    step_ns = max(reasons["ns"], 1)
    notes = [f"why step {reasons['step']} takes {step_ns / 1e6:.2f} ms (its critical path, through all ranks):"]
    by_kind: Counter[str] = Counter()
    for part in reasons["parts"]:
        by_kind[part["kind"]] += part["ns"]
    for kind, for_ns in by_kind.most_common():
        if for_ns >= LEAST_SHARE * step_ns:
            named = _named([part for part in reasons["parts"] if part["kind"] == kind], step_ns)
            if kind == "communication" and _no_link_decides(reasons, step_ns, for_ns):
                named += "; the latency and the channels of NCCL decide, not links"
            notes.append(f"  {for_ns / step_ns:6.1%}  {KINDS.get(kind, kind)}: {named}")
    if longest := _longest([*reasons["kernels"]["path"], *reasons["collectives"]["path"]], step_ns):
        notes.append(f"  longest on it: {longest}")
    if changes := [_change(one, step_ns) for one in reasons["what_if"]]:
        notes.append(f"  if twice as fast, the step would take: {'; '.join(changes)}")
    return notes


def _no_link_decides(reasons: Document, step_ns: int, for_ns: int) -> bool:
    """Tells whether links that are twice as fast make the collectives on the path, which take `for_ns`, no shorter:
    if links decided alone, these would take half as long.
    """
    saved = [step_ns - one["ns"] for one in reasons["what_if"] if one["resource"] in _NETWORK]
    return bool(saved) and sum(saved) < LEAST_LINK_SHARE * for_ns


def _named(parts: Sequence[Document], step_ns: int) -> str:
    large = [part for part in parts if part["ns"] >= LEAST_SHARE * step_ns][:MOST_NAMED] or parts[:1]
    texts = []
    for part in large:
        name = f"{part['name']} ({part['doing']})" if part["doing"] else part["name"]
        texts.append(f"{name} {part['ns'] / step_ns:.1%}")
    return ", ".join(texts) + (" ..." if len(large) < len(parts) else "")


def _longest(costs: Sequence[Document], step_ns: int) -> str:
    ordered = sorted(costs, key=lambda one: -one["path_ns"])[:MOST_LONGEST]
    return ", ".join(
        f"{_short(one['title'])} {one['path_ns'] / step_ns:.1%}"
        for one in ordered
        if one["path_ns"] >= LEAST_SHARE * step_ns
    )


def _short(title: str) -> str:
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"


def _change(entry: Document, step_ns: int) -> str:
    change = entry["ns"] / step_ns - 1
    text = f"{change:+.1%}" if abs(change) >= LEAST_CHANGE else "no change"
    return f"{entry['resource']} {entry['ns'] / 1e6:.2f} ms ({text})"
