"""The output of `phantora-async doctor` as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 118
MARKS = {"ok": "ok", "note": "note", "fails": "FAILS"}
FINE = ("ok", "not in this version", "not installed")


def lines(document: Mapping[str, Any], details: bool) -> Iterator[str]:
    """Yields the lines. `details`: show all private names, not only those that are not as expected."""
    for check in document["checks"]:
        yield f"{MARKS[check['state']]:<6}{check['name']:<19}{check['found']}"
        if check["advice"]:
            yield f"{'':<25}{check['advice']}"
    private = document["ranks"].get("private")
    if private is not None:
        yield ""
        yield from _private(private, details)
    yield ""
    yield document["verdict"]


def _private(purposes: list[dict[str, Any]], details: bool) -> Iterator[str]:
    names = [name for purpose in purposes for name in purpose["names"]]
    fine = sum(name["state"] in FINE for name in names)
    yield f"private names of PyTorch, Triton and Python: {fine} of {len(names)} are as expected"
    for purpose in purposes:
        wrong = [name for name in purpose["names"] if name["state"] not in FINE]
        if not details and not wrong:
            continue
        for name in purpose["names"] if details else wrong:
            detail = f" ({name['detail']})" if name["detail"] else ""
            yield f"  {name['state']:<8} {name['name']}{detail}"
        if details:
            yield from _wrapped(f"for {purpose['use']} ({', '.join(purpose['files'])})")
        yield from _wrapped(f"{'lost' if wrong else 'without it'}: {purpose['lost']}")


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=" " * 11, subsequent_indent=" " * 11)
