"""The report of a run: one JSON document, and the text that is made of it.

``document["simulated"]`` holds what the emulated cluster did; two runs of the same program with modelled host time
agree on it to the byte. What the simulator itself needed is under ``document["simulator"]``.
"""

from phantora_async.report.document import SCHEMA, Document, build, to_json
from phantora_async.report.simulator import Usage
from phantora_async.report.text import terminal_report

__all__ = ["SCHEMA", "Document", "Usage", "build", "terminal_report", "to_json"]
