"""Writes verdicts as text, JSON, JUnit XML and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from phantora_async.budget import FIGURES, Row
from phantora_async.gate.checking import Judged
from phantora_async.wording import markdown, printable, short

FAILURE, ERROR = "failure", "error"
"""The elements that JUnit XML has in a test case that did not pass."""


def line(one: Judged, width: int) -> str:
    """The line for one job: ``ok    llama-8b  fits, 8.52 GiB left; step 433.8 ms of 450.0 ms (-3.6 %); 5 steps for a
    median``.
    """
    parts = [one.memory_text]
    if one.ended_in_step is None and one.fits is not False:  # else the verdict on memory names them
        parts += [row.text for row in one.rows if one.good or row.broken]
    if one.failure and one.fits is not False:
        parts.append(one.failure.splitlines()[0])
    parts += [one.setup_text, *(f"baseline of another {text}" for text in one.notes), *one.causes]
    if one.good and one.job.why_steps:
        parts.append(f"{one.steps} {one.job.why_steps}")
    return printable(f"{'ok  ' if one.good else 'FAIL'}  {one.job.name:<{width}}  {'; '.join(filter(None, parts))}")


def summary(judged: Sequence[Judged]) -> str:
    bad = sum(not one.good for one in judged)
    jobs, their = ("1 job", "its") if len(judged) == 1 else (f"{len(judged)} jobs", "their")
    return f"{jobs}: {len(judged) - bad} within {their} budgets, {bad} not"


def as_document(judged: Sequence[Judged]) -> dict[str, Any]:
    return {"format": 1, "good": all(one.good for one in judged), "jobs": [one.document() for one in judged]}


def as_json(judged: Sequence[Judged]) -> str:
    return json.dumps(as_document(judged), indent=1, allow_nan=False)


def as_junit(judged: Sequence[Judged], name: str) -> str:
    """The verdicts as JUnit XML, which CI servers read: a test case for each job."""
    kinds = [_junit_kind(one) for one in judged]
    suite = ElementTree.Element(
        "testsuite",
        name=name,
        tests=str(len(judged)),
        failures=str(kinds.count(FAILURE)),
        errors=str(kinds.count(ERROR)),
        time=f"{sum(one.wall_s for one in judged):.3f}",
    )
    for one, kind in zip(judged, kinds, strict=True):
        case = ElementTree.SubElement(suite, "testcase", name=one.job.name, classname=name, time=f"{one.wall_s:.3f}")
        if kind:
            told = ElementTree.SubElement(case, kind, message=printable(one.reason))
            told.text = printable(one.failure or "\n".join(_lines(one)))
        ElementTree.SubElement(case, "system-out").text = printable("\n".join(_lines(one)))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _lines(one: Judged) -> list[str]:
    return [*(row.text for row in one.rows), *filter(None, [one.setup_text]), *one.notes, *one.causes]


def _junit_kind(one: Judged) -> str:
    """The kind of a test case that did not pass. A job that breaks a budget, the GPU's memory included, is a failure;
    one that could not be judged is an error.
    """
    if one.good:
        return ""
    return ERROR if one.failure and one.fits is not False else FAILURE


def as_markdown(judged: Sequence[Judged]) -> str:
    """The verdicts as a Markdown table for a comment on a pull request."""
    titles = [figure.title for figure in FIGURES.values()]
    lines = [f"| job | verdict | {' | '.join(titles)} |", f"| --- | --- |{' ---: |' * len(titles)}"]
    for one in judged:
        verdict = "ok" if one.good else f"**{markdown(one.reason)}**"
        cells = [
            _cell([row for row in one.rows if row.figure is figure], one, figure.name) for figure in FIGURES.values()
        ]
        lines.append(f"| {' | '.join((markdown(one.job.name), verdict, *map(markdown, cells)))} |")
    return "\n".join([*lines, "", summary(judged), ""])


def _cell(rows: Sequence[Row], one: Judged, name: str) -> str:
    if name not in one.figures:
        return ""
    shown = FIGURES[name].text(one.figures[name])
    return "; ".join([shown, *(row.text.partition(shown)[2].lstrip(", ") for row in rows)])


def report_lines(judged: Sequence[Judged]) -> list[str]:
    """Names the reports of the jobs that are not good."""
    return [
        f"{one.job.name}: phantora-async report {short(one.report)}" for one in judged if not one.good and one.report
    ]
