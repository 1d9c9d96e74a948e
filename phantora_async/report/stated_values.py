"""Reports values that nobody computed: those that the user has stated, the decisions that depend on them, and the files
that hold them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emu.contract.stated_values import StatedValue
from phantora_async.ingest.uncomputed_reads import Checkpoint, UncomputedReads
from phantora_async.wording import short

Document = dict[str, Any]
NAMED = 4
"""The most checkpoints that have a warning of their own."""
Sharing = Mapping[int, Sequence[int]]
"""For each rank, the ranks that do what it does, for which it reports, too (``Timelines.sharing``). A rank that is not
in it reports for itself alone.
"""
EACH_ITS_OWN: Sharing = {}


def stated_document(
    values: Sequence[StatedValue], reads: UncomputedReads, sharing: Sharing = EACH_ITS_OWN
) -> list[Document]:
    """The report's part on stated values: sums over ranks."""
    return [_one(value, reads, number, sharing) for number, value in enumerate(values)]


def _many(rank: int, sharing: Sharing) -> int:
    """The number of ranks for which this one reports."""
    return len(sharing.get(rank, (rank,)))


def total_of(by_rank: Iterable[tuple[int, int]], sharing: Sharing = EACH_ITS_OWN) -> int:
    """The sum over all ranks. `by_rank`: the number that each reporting rank has reported."""
    return sum(number * _many(rank, sharing) for rank, number in by_rank)


def _one(value: StatedValue, reads: UncomputedReads, number: int, sharing: Sharing) -> Document:
    ranks = reads.stated.get(number, {})
    return {
        "text": value.text,
        "file": value.file,
        "line": value.line,
        "expression": value.expression,
        "reads": total_of(((rank, one.reads) for rank, one in ranks.items()), sharing),
        "computed": total_of(((rank, one.computed) for rank, one in ranks.items()), sharing),
        "ranks": total_of(((rank, one.reads > 0) for rank, one in ranks.items()), sharing),
    }


def checkpoints_document(reads: UncomputedReads, sharing: Sharing = EACH_ITS_OWN) -> list[Document]:
    """The checkpoints with such values. The files of one folder are one checkpoint, with sums over ranks; a file that
    is alone there is one by itself.
    """
    folders: dict[str, list[tuple[str, int, Checkpoint]]] = {}
    for path, rank, one in reads.written(sharing):
        if one.uncomputed:
            folders.setdefault(os.path.dirname(path), []).append((path, rank, one))
    found = []
    for folder, files in folders.items():
        paths = {path for path, _, _ in files}
        found.append(
            {
                "path": f"{folder}{os.sep}" if len(paths) > 1 else next(iter(paths)),
                "files": len(paths),
                "ranks": sorted({rank for _, rank, _ in files}),
                "times": sum(one.times for _, _, one in files),
                "written_nbytes": sum(one.written for _, _, one in files),
                "uncomputed_nbytes": sum(one.uncomputed for _, _, one in files),
            }
        )
    return found


def checkpoint_warnings(checkpoints: Sequence[Mapping[str, Any]]) -> list[Document]:
    """The checkpoints as warnings of the report: one for each, and one for all those that are too many to be named."""
    several = len(checkpoints) > NAMED + 1
    named, left = (checkpoints[:NAMED], checkpoints[NAMED:]) if several else (checkpoints, ())
    warnings = []
    for one in named:
        size, share = one["written_nbytes"], one["uncomputed_nbytes"] / max(one["written_nbytes"], 1)
        what = f"{short(one['path'])} ({one['files']} files)" if one["files"] > 1 else short(one["path"])
        text = (
            f"checkpoint {what}: {share:.1%} of its {size:,} bytes are values that were not computed, zeros there; "
            "its size is right, its values are of no use"
        )
        warnings.append({"text": text, "ranks": one["ranks"], "count": one["times"]})
    if left:
        uncomputed, size = (sum(one[key] for one in left) for key in ("uncomputed_nbytes", "written_nbytes"))
        share = uncomputed / max(size, 1)
        text = f"{len(left)} more checkpoints: {share:.1%} of {size:,} bytes are values that were not computed"
        ranks = sorted({rank for one in left for rank in one["ranks"]})
        warnings.append({"text": text, "ranks": ranks, "count": sum(one["times"] for one in left)})
    return warnings


def stated_notes(stated: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes on stated values for the terminal."""
    notes = ["values stated by the user (--value), not computed:"] if stated else []
    for one in stated:
        text = f"  {one['text']}: {one['reads']} reads on {one['ranks']} ranks"
        if not one["reads"]:
            text = f"  {one['text']}: nothing was read there that was not computed"
        if one["computed"]:
            text += f"; {one['computed']} reads of computed values, which were left as they are"
        notes.append(text)
    return notes


PLACES = 6
"""The most places with chosen sizes that the terminal shows. The JSON report has all."""


def sizes_document(policy: str, reads: UncomputedReads, sharing: Sharing = EACH_ITS_OWN) -> Document:
    """The report's part on chosen sizes: sums over ranks, the place with most elements first."""
    places = []
    for place, by_rank in reads.sizes.items():
        columns = zip(*by_rank.values(), strict=True)
        calls, most, chosen = (total_of(zip(by_rank, of, strict=True), sharing) for of in columns)
        ranks = sum(_many(rank, sharing) for rank in by_rank)
        places.append(place._asdict() | {"ranks": ranks, "calls": calls, "most": most, "chosen": chosen})
    return {"policy": policy, "places": sorted(places, key=lambda one: (-one["most"], one["inner"], one["operation"]))}


def sizes_notes(sizes: Mapping[str, Any]) -> list[str]:
    """The notes on chosen sizes for the terminal; none if the policy has chosen nothing."""
    places, policy = sizes["places"], sizes["policy"]
    if not places:
        return []
    other = "fraction:0.1" if policy == "most" else "most"
    notes = [
        f"sizes: values that decide them are not computed; they follow the policy {policy} (--data-shapes); time and "
        f"memory depend on it: run with --data-shapes {other}, too, and `compare` says how much of a step does"
    ]
    for one in places[:PLACES]:
        where = one["inner"] or one["line"] or "the script"
        called = f" (called from {short(one['line'])})" if one["line"] and not where.endswith(one["line"]) else ""
        mean, most = one["chosen"] / one["calls"], one["most"] / one["calls"]
        calls = f" in each of {one['calls']} calls" if one["calls"] > 1 else ""
        notes.append(f"  {short(where)}{called}: {one['operation']} gives {mean:,.0f} of {most:,.0f}{calls}")
    if len(places) > PLACES:
        notes.append(f"  {len(places) - PLACES} more places in the JSON report")
    return notes


SHOWN = 3
"""The most lines of the script that the terminal names."""


def decided_document(reads: UncomputedReads, sharing: Sharing = EACH_ITS_OWN) -> list[Document]:
    """The lines that decide by values that nobody computed, or read such integers, the one with most reads first."""
    lines = [
        {
            "place": place,
            "reads": total_of(by_rank.items(), sharing),
            "ranks": sum(_many(rank, sharing) for rank in by_rank),
        }
        for place, by_rank in reads.decided.items()
    ]
    return sorted(lines, key=lambda line: (-line["reads"], line["place"]))


def decided_notes(decided: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes on such lines for the terminal."""
    if not decided:
        return []
    total, lines = sum(line["reads"] for line in decided), "line" if len(decided) == 1 else "lines"
    named = ", ".join(f"{line['place']} ({line['reads']})" for line in decided[:SHOWN])
    more = f" and {len(decided) - SHOWN} more" if len(decided) > SHOWN else ""
    return [
        f"{total} of them decide something in the program or are integers, at {len(decided)} {lines}: {named}{more}"
    ]
