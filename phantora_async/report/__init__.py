"""The report of a run: one JSON document, and the text that is made of it.

``document["simulated"]`` is what the emulated cluster did. Two runs of the same script with modelled host time agree on
it to the byte. ``document["simulator"]`` is what the simulation itself cost.
Comes in: a ``virtual_time.Snapshot``, and what ``ingest.FactBuilder`` knows of ranks; or the file of a report.
Goes out: the document; its JSON; its text.
May import: netsim, ingest, over_time, run_spec, virtual_time, wording.
"""

from phantora_async.report.document import SCHEMA, Document, Seen, build, ranks_document, to_json
from phantora_async.report.memory import memory_notes
from phantora_async.report.notes import notes, unused_notes, used_no_gpu
from phantora_async.report.reading import ReportError, read, read_whole, report_schema
from phantora_async.report.simulator import Usage
from phantora_async.report.steps import step_document
from phantora_async.report.text import terminal_report, verdict_until_failure

__all__ = [
    "SCHEMA",
    "Document",
    "ReportError",
    "Seen",
    "Usage",
    "build",
    "memory_notes",
    "notes",
    "ranks_document",
    "read",
    "read_whole",
    "report_schema",
    "step_document",
    "terminal_report",
    "to_json",
    "unused_notes",
    "used_no_gpu",
    "verdict_until_failure",
]
