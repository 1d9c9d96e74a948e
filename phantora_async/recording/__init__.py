"""Recordings of runs: what ranks sent and were answered, kept so that virtual time can execute it again without them.

A rank's facts become rows of one size (``rows``). What differs between ranks that do the same (communicators, process
ids, data) is left out of the rows or replaced by a number of the rank's own, so that equal ranks have equal rows. Rows
are cut at ends of steps; equal pieces are stored once (``store``).

Comes in: records, facts and answers while a run goes on (``Recorder``); a recording's folder (``load``).
Goes out: the folder; a ``Recording``.
May import: emu.contract, netsim, profiles, errors, run_spec, ingest, virtual_time.
"""

from phantora_async.recording.recorder import Recorder
from phantora_async.recording.recording import Recording, load

__all__ = ["Recorder", "Recording", "load"]
