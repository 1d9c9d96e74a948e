"""The options of a run, resolved and checked as a whole before anything starts.

Lives here: the result (`config`) and what makes it (`resolve`), which asks one module for each part: what is run
(`program`), on which servers (`servers`), until when (`limits`), values that nobody computes (`values`), where the run
writes (`outputs`), what it shows (`display`).
Comes in: ``RunOptions``; NCCL's and torchrun's environment variables.
Goes out: a ``Config``, whose run directory and port are taken; or a UsageError.
May import: emu.contract, netsim, profiles, compile_cache, errors, faults, kernel_times, options, remote.wire, run_dir,
run_spec, trace_request, virtual_time.policy, wording.
"""

from phantora_async.config.config import FLOAT_LIMIT_COUNT, Config
from phantora_async.config.folding import AUTO, folding_of, folds_by_itself, own_sources
from phantora_async.config.outputs import RUNS
from phantora_async.config.program import checked_module, checked_script, find_python
from phantora_async.config.resolve import resolve
from phantora_async.config.servers import servers_of

__all__ = [
    "AUTO",
    "FLOAT_LIMIT_COUNT",
    "RUNS",
    "Config",
    "checked_module",
    "checked_script",
    "find_python",
    "folding_of",
    "folds_by_itself",
    "own_sources",
    "resolve",
    "servers_of",
]
