"""What the user has stated that the script reads, and how often it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emu.contract.stated_values import StatedValue
from phantora_async.ingest.uncomputed_reads import UncomputedReads

Document = dict[str, Any]


def stated_document(values: Sequence[StatedValue], reads: UncomputedReads) -> list[Document]:
    """Sums over ranks."""
    return [_one(value, reads, number) for number, value in enumerate(values)]


def _one(value: StatedValue, reads: UncomputedReads, number: int) -> Document:
    ranks = reads.stated.get(number, {})
    return {
        "text": value.text,
        "file": value.file,
        "line": value.line,
        "expression": value.expression,
        "reads": sum(one.reads for one in ranks.values()),
        "computed": sum(one.computed for one in ranks.values()),
        "ranks": sum(one.reads > 0 for one in ranks.values()),
    }


def stated_notes(stated: Sequence[Mapping[str, Any]]) -> list[str]:
    """For the terminal."""
    notes = ["values stated by the user (--value), not computed:"] if stated else []
    for one in stated:
        text = f"  {one['text']}: {one['reads']} reads on {one['ranks']} ranks"
        if not one["reads"]:
            text = f"  {one['text']}: nothing was read there that was not computed"
        if one["computed"]:
            text += f"; {one['computed']} reads of computed values, which were left as they are"
        notes.append(text)
    return notes
