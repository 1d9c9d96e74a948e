"""Reads a report that may be damaged or written by another program: every field that the text or the Python API shows
is checked.
"""

from __future__ import annotations

from pathlib import Path

from formats.files import MOST_DATA_NBYTES, read_text
from formats.json_lines import line_of, name_of, parse
from phantora_async.report.document import SCHEMA, Document
from phantora_async.report.fields import REASONS, SHAPE
from phantora_async.report.shapes import Fault, fault_in, json_schema, only


class ReportError(Exception):
    """A report that cannot be shown. The message names file, line and field, and says what is allowed."""


def read(path: Path) -> Document:
    """The document, checked, with those fields alone that ``SHAPE`` has. Raises ReportError."""
    return dict(only(read_whole(path), SHAPE))


def read_whole(path: Path) -> Document:
    """The document with all its fields, of which those that ``SHAPE`` has are checked. Raises ReportError."""
    text = read_text(path, MOST_DATA_NBYTES, ReportError)
    document = parse(text, path, ReportError)
    if not isinstance(document, dict) or type(document.get("schema")) is not int:
        raise ReportError(f"{path}: not a report of phantora-async")
    if document["schema"] != SCHEMA:
        raise ReportError(
            f"{path}: written by another version of phantora-async: its schema is {document['schema']}, this version "
            f"reads schema {SCHEMA}"
        )
    fault = fault_in(document, SHAPE, ()) or _disagreement(document["simulated"])
    if fault is not None:
        raise ReportError(f"{path}:{line_of(text, fault.place)}: {name_of(fault.place)}: {fault.problem}")
    return document


def report_schema() -> Document:
    """The JSON schema of reports: docs/data/report.schema.json."""
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Report of phantora-async, schema {SCHEMA}",
        "description": "Names end in their unit: _ns nanoseconds of virtual time, _nbytes bytes, _s real seconds.",
    }
    return about | json_schema(SHAPE)


def _disagreement(simulated: Document) -> Fault | None:
    """The first fault among fields that each have their shape, but contradict each other; None if there is none."""
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
