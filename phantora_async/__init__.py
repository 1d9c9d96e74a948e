"""The product: command line, Python API, coordinator, virtual time, reports. Never imports torch.

Lives here: the command line (cli), what a run's options are and mean (options, config, run_spec), one run from start to
end (session), the processes that it starts (launcher), its terminal, every error (errors), its version. The launcher
starts the forker, from which ranks are forked. Records of ranks arrive in ``ingest`` and become facts; ``virtual_time``
executes the facts; ``coordinator`` drives both; ``liveness`` watches ranks that send nothing; ``diagnosis`` and
``report`` say what happened; ``api`` is what ``import phantora_async`` offers.
Comes in: a command line, messages of the forker.
Goes out: the script's output, the status, the report, an exit code.
May import: emu.contract, netsim, profiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phantora_async.api.replays import replay
    from phantora_async.api.results import Kernel, KernelFamily, Rank, Run, Step, compare, load
    from phantora_async.api.running import run
    from phantora_async.comparison import Comparison
    from phantora_async.errors import PhantoraError, RunFailure, UsageError
    from phantora_async.gate.checked import Checked, check
    from phantora_async.options import RunOptions
    from phantora_async.study.advice import Advice, advise
    from phantora_async.study.sweeping import Swept, sweep

_PLACES = {
    "Advice": "phantora_async.study.advice",
    "Checked": "phantora_async.gate.checked",
    "Comparison": "phantora_async.comparison",
    "KernelFamily": "phantora_async.api.results",
    "Kernel": "phantora_async.api.results",
    "PhantoraError": "phantora_async.errors",
    "Rank": "phantora_async.api.results",
    "Run": "phantora_async.api.results",
    "RunFailure": "phantora_async.errors",
    "RunOptions": "phantora_async.options",
    "Step": "phantora_async.api.results",
    "Swept": "phantora_async.study.sweeping",
    "UsageError": "phantora_async.errors",
    "advise": "phantora_async.study.advice",
    "check": "phantora_async.gate.checked",
    "compare": "phantora_async.api.results",
    "load": "phantora_async.api.results",
    "replay": "phantora_async.api.replays",
    "run": "phantora_async.api.running",
    "sweep": "phantora_async.study.sweeping",
}
"""The module of each name. It is imported when the name is first used, so that `import phantora_async` takes no
time.
"""

__all__ = [
    "Advice",
    "Checked",
    "Comparison",
    "Kernel",
    "KernelFamily",
    "PhantoraError",
    "Rank",
    "Run",
    "RunFailure",
    "RunOptions",
    "Step",
    "Swept",
    "UsageError",
    "advise",
    "check",
    "compare",
    "load",
    "replay",
    "run",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
