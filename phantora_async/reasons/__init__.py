"""Explains why a step takes as long as it does: its critical path, what costs most, and what a faster resource would
change.

The facts of the last steps are kept. After the run they are executed again in a timeline of their own, and a listener
notes what each interval on a stream or a host had waited for. The critical path is found by walking back from the
step's end. With other durations, or another network, the same facts tell what would change.

Comes in: facts, rank by rank (``LastSteps.add``); the run's description and costs (``reasons_document``).
Goes out: the report's part ``reasons``.
May import: emu.contract, profiles, run_spec, ingest, virtual_time.
"""

from phantora_async.reasons.document import reasons_document
from phantora_async.reasons.last_steps import LastSteps

__all__ = ["LastSteps", "reasons_document"]
