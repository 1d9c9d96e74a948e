"""Executes recorded runs again, without scripts, PyTorch or processes of ranks: on the same machine or on another one.

Comes in: a ``Recording``; the machine to execute it on.
Goes out: a report; an error that names the first answer that differs where it may not.
May import: emu.contract, netsim, profiles, errors, run_spec, coordinator, ingest, recording, report, virtual_time,
wording.
"""

from phantora_async.replaying.replay import Replayed, replay

__all__ = ["Replayed", "replay"]
