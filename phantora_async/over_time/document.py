"""Describes what ranks and links did over time. A row of shares is a text: one character for each part of time,
``LEVELS``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim import Link
from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.over_time.link_traffic import Traffic
from phantora_async.over_time.samples import Activity

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
"""The characters for shares from 0 to 1, in equal steps."""
MOST_ROWS = 64
MOST_LINKS = 64
LINKS_AT_ONCE = 4096
_NUMBER = re.compile(r"\d+")
Document = dict[str, Any]
Figures = NDArray[np.int64]


def activity_document(activity: Activity) -> Document:
    """The activity of ranks as JSON. ``ranks``: ranks that did the same share a row; if there are many ranks,
    neighbours share a row with their mean. ``allocated`` and ``reserved`` are the peaks until then: [part, bytes] for
    each change.
    """
    alike: dict[str, Document] = {}
    known: dict[tuple[int, int, int], Document] = {}
    for rank, its in enumerate(zip(activity.accounts, activity.memory, activity.devices, strict=True)):
        accounts, memory, devices = its
        row = known.get((id(accounts), id(memory), devices))
        if row is None:
            texts = _row(accounts, max(devices, 1), activity.width_ns) | _memory(memory)
            row = alike.setdefault("".join(map(str, texts.values())), {"ranks": [], **texts})
            known[id(accounts), id(memory), devices] = row
        row["ranks"].append(rank)
    rows = list(alike.values())
    if len(rows) > MOST_ROWS:
        ranks = len(activity.accounts)
        each = -(-ranks // MOST_ROWS)
        rows = [_merged(activity, range(first, min(first + each, ranks))) for first in range(0, ranks, each)]
    return {"part_ns": activity.width_ns, "until_ns": activity.until_ns, "ranks": rows}


def _merged(activity: Activity, ranks: range) -> Document:
    together = np.add.reduce([activity.accounts[rank] for rank in ranks])
    largest = np.maximum.reduce([activity.memory[rank] for rank in ranks])
    devices = sum(max(activity.devices[rank], 1) for rank in ranks)
    return {"ranks": list(ranks), **_row(together, devices, activity.width_ns), **_memory(largest)}


def _row(accounts: Figures, devices: int, width_ns: int) -> Document:
    spent = np.diff(accounts) / (devices * width_ns)
    # The time before the GPU's first use is in no account.
    return {account.name: _text(shares) for account, shares in zip(TIME_ACCOUNTS, spent, strict=True)}


def _memory(memory: Figures) -> Document:
    return {
        name: [[int(part), int(nbytes[part])] for part in np.flatnonzero(np.diff(nbytes, prepend=0))]
        for name, nbytes in zip(("allocated", "reserved"), memory, strict=True)
    }


def _text(shares: NDArray[Any]) -> str:
    """The shares as characters. Any share above 0 is shown as one."""
    levels = np.ceil(np.clip(shares, 0, 1) * (len(LEVELS) - 1) - 1e-9).astype(int)
    return bytes(np.frombuffer(LEVELS.encode(), np.uint8)[levels]).decode()


def links_document(until_ns: int, links: Sequence[Link], traffic: Traffic) -> Document:
    """The traffic of links as JSON. `links`: those of ``traffic``.

    ``kinds`` are links whose names differ only in numbers. ``listed`` are the busiest links.
    """
    part_ns, courses, course_of = traffic.width_ns, traffic.courses, traffic.course_of
    capacity = np.array([link.gbps for link in links]) / 8  # bytes a nanosecond
    most = capacity * part_ns
    carried = courses.sum(1)[course_of]
    shares = carried / (capacity * max(until_ns, 1))
    # Links of one kind differ only in the numbers in their names: node000/nic2 and node001/nic0 are one kind.
    kinds: dict[str, list[int]] = {}
    for place, link in enumerate(links):
        kinds.setdefault(_NUMBER.sub("#", link.name), []).append(place)
    busiest = sorted(range(len(links)), key=lambda place: (-shares[place], place))[:MOST_LINKS]
    parts = -(-until_ns // part_ns)
    return {
        "part_ns": part_ns,
        "until_ns": until_ns,
        "kinds": [
            {
                "kind": kind,
                "links": len(places),
                "gbps": links[places[0]].gbps,
                "nbytes": int(carried[places].sum()),
                "mean_share": float(shares[places].mean()),
                "max_share": float(shares[places].max()),
                # By kind: all shares of a large job would take as much memory as its bytes.
                "busy": _text(_mean_share(courses[:, :parts], course_of[places], most[places])),
            }
            for kind, places in kinds.items()
        ],
        "listed": [
            {
                "name": links[place].name,
                "gbps": links[place].gbps,
                "nbytes": int(carried[place]),
                "share": float(shares[place]),
                "busy": _text(courses[course_of[place], :parts] / most[place]),
            }
            for place in sorted(busiest)
        ],
        "links": len(links),
    }


def _mean_share(courses: Figures, course_of: Figures, most: NDArray[Any]) -> NDArray[Any]:
    """The mean share of links by part of time; their bytes are never in memory at once."""
    total = np.zeros((1, courses.shape[1]))
    for first in range(0, len(course_of), LINKS_AT_ONCE):
        some = slice(first, first + LINKS_AT_ONCE)
        shares = courses[course_of[some]] / most[some, None]
        total = np.concatenate([total, shares]).sum(0, keepdims=True)
    mean: NDArray[Any] = total[0] / len(course_of)
    return mean
