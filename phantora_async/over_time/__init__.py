"""Divides virtual time into equal parts and says what ranks and links did in each: for pictures.

A run keeps a bounded number of parts, however long it is. The figures are the same whatever order facts arrive in.
Comes in: the accounts of devices, noted by virtual time; the collectives that the network has carried.
Goes out: the parts ``activity`` and ``links`` of the report.
May import: netsim, the table of figures.
"""

from phantora_async.over_time.document import activity_document, links_document
from phantora_async.over_time.link_traffic import Carried, LinkTraffic, Traffic
from phantora_async.over_time.samples import (
    LEAST_PARTS,
    Activity,
    accounts_at,
    memory_at,
    parts_for,
    width_for,
)

__all__ = [
    "LEAST_PARTS",
    "Activity",
    "Carried",
    "LinkTraffic",
    "Traffic",
    "accounts_at",
    "activity_document",
    "links_document",
    "memory_at",
    "parts_for",
    "width_for",
]
