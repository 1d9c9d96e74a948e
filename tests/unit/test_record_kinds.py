"""A kind of record is named in few files: what others know of it they read in records.def."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from emu.contract.records_definition import ENTRIES, class_name

ROOT = Path(__file__).parents[2]
MOST = 5
"""In so many files a kind is named: where it is made, taken in, executed, and in two more."""
MORE = {
    "SEGMENT": (
        9,
        "its fields are work on a GPU: prices of replays, the power limit's clock and the questions of a step take it "
        "as such",
    ),
    "CONNECT": (
        9,
        "its rows are steps of which each names up to two creations: rows are written and read, renumbered, mirrored, "
        "left out of wider replays and their peers resolved, each in a file of its own",
    ),
    "QUERY": (
        6,
        "a question that is asked time and again is a loop: its turns are recorded, counted, priced and played",
    ),
    "MARKER": (
        6,
        "the end of a step also divides a rollout's training from the time until the next one",
    ),
    "COMM_INIT": (
        6,
        "a communicator for messages of two ranks of one role says that they cannot share a timeline",
    ),
    "NCCL_LAUNCH": (
        6,
        "whether ranks of a folded ring send or receive first decides which of them share a role",
    ),
    "NCCL_DATA": (
        6,
        "bytes of a collective are sent in parts, mirrored, and divided by roots, each in a file of its own",
    ),
}
"""The kinds that more files name: how many, and why. A number may fall; one that rises needs a reason."""
_NAMED = re.compile(r"\brecords\.(\w+)|\b(?:PH_KIND_|struct ph_)(\w+)")


def files_by_kind() -> Counter[str]:
    """Returns how many files of the product name each kind, by its number or its class."""
    names = {name: entry.name for entry in ENTRIES if entry.is_record for name in (entry.name, class_name(entry.name))}
    found: Counter[str] = Counter()
    for folder in ("emu", "phantora_async"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".c", ".h"):
                found.update(
                    {names[name] for pair in _NAMED.findall(path.read_text()) for name in pair if name in names}
                )
    return found


def test_a_kind_of_record_is_named_in_few_files() -> None:
    found = files_by_kind()
    assert found.keys() >= {"SEGMENT", "CLOCK"}
    assert {kind: files for kind, files in found.items() if files > MORE.get(kind, (MOST,))[0]} == {}
