"""Reading a report that may be damaged or written by another program: every field that the text or the
Python API shows is checked.
"""

from __future__ import annotations

from pathlib import Path

from netsim import SpecError
from netsim.json_files import line_of, name_of, parse, read_text
from phantora_async.report.document import SCHEMA, Document
from phantora_async.report.fields import REASONS, SHAPE
from phantora_async.report.shapes import Fault, fault_in, only


class ReportError(Exception):
    """A report that cannot be shown. The message names file, line and field, and says what is allowed."""


def read(path: Path) -> Document:
    """The document, checked, with those fields alone that ``SHAPE`` has. Raises ReportError."""
    return dict(only(read_whole(path), SHAPE))


def read_whole(path: Path) -> Document:
    """The document with all its fields, of which those that ``SHAPE`` has are checked. Raises ReportError."""
    try:
        text = read_text(path)
        document = parse(text, path)
    except SpecError as error:
        raise ReportError(str(error)) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ReportError(f"{path}: not a report, or written by another version of phantora-async")
    fault = fault_in(document, SHAPE, ()) or _disagreement(document["simulated"])
    if fault is not None:
        raise ReportError(f"{path}:{line_of(text, fault.place)}: {name_of(fault.place)}: {fault.problem}")
    return document


def _disagreement(simulated: Document) -> Fault | None:
    """Fields that each have their shape, but contradict each other."""
    world_size, ranks, kernels = simulated["world_size"], simulated["ranks"], simulated["kernels"]
    at: tuple[str | int, ...] = ("simulated",)
    if len(ranks) != world_size:
        return Fault((*at, "ranks"), f"expected {world_size} ranks as in world_size, found {len(ranks)}")
    reasons = simulated.get("reasons", {"missing": "not asked for"})
    if not reasons["missing"]:
        for name in REASONS.optional:
            if name not in reasons:
                return Fault((*at, "reasons", name), "missing")
    signatures = len(kernels["signatures"])
    for number, group in enumerate(kernels["ranks"]):
        if len(group["launches"]) != signatures:
            place = (*at, "kernels", "ranks", number, "launches")
            found = len(group["launches"])
            return Fault(place, f"expected {signatures} numbers, one for each of kernels.signatures, found {found}")
    return None
