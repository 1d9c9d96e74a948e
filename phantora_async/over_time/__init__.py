"""What ranks and links did over virtual time, in equal parts of it: for pictures.

A run keeps a bounded number of parts, however long it is. The figures are the same whatever order facts arrive in.
Comes in: the accounts of devices, noted by virtual time; the collectives that the network has carried.
Goes out: the parts ``activity`` and ``links`` of the report.
May import: netsim.
"""

from phantora_async.over_time.document import KINDS, activity_document, links_document
from phantora_async.over_time.link_traffic import Carried, LinkTraffic, Traffic
from phantora_async.over_time.samples import FIELDS, LEAST_PARTS, Activity, Samples, at_instants, parts_for, width_for

__all__ = [
    "FIELDS",
    "KINDS",
    "LEAST_PARTS",
    "Activity",
    "Carried",
    "LinkTraffic",
    "Samples",
    "Traffic",
    "activity_document",
    "at_instants",
    "links_document",
    "parts_for",
    "width_for",
]
