"""Says where vLLM measures requests by the clock of this machine: in a process without a GPU.

An API server, a client, or the caller of an engine that is a process of its own reads real time, its GPUs' processes
virtual time: a time to first token that goes from one to the other means nothing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ...contract.clocks import REAL_TIME
from ...private.changes import Names, changes
from .responses import Responses

PURPOSE = "clock of vLLM's client"
BENCHMARK_PURPOSE = "clock of vLLM's benchmark"
MIXED = (
    f"{REAL_TIME}, and that of the GPUs' processes is simulated: times to first token, latencies and tokens/s that vLLM"
    " prints or returns here mix both and mean nothing. The run's report has the requests in simulated time. With one"
    " GPU, VLLM_ENABLE_V1_MULTIPROCESSING=0 keeps the engine of an offline program in its own process, which then has"
    " one clock."
)


class Clocks:
    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._said = False

    def note(self) -> None:
        """Warns once, on stderr, if this process is no rank. Called where vLLM takes requests."""
        if not self._said and not self._responses.is_rank:
            self._said = True
            print(MIXED, file=sys.stderr, flush=True)

    def connecting(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """The client of an engine in another process is made."""

        @functools.wraps(create)
        def __init__(client: Any, *args: Any, **kwargs: Any) -> None:
            self.note()
            create(client, *args, **kwargs)

        return __init__

    def beginning(self, measure: Callable[..., Any]) -> Callable[..., Any]:
        """`vllm bench serve` begins."""

        @functools.wraps(measure)
        def measure_noted(*args: Any, **kwargs: Any) -> Any:
            self.note()
            return measure(*args, **kwargs)

        return measure_noted


def follow(responses: Responses) -> Clocks:
    """Warns from now on. Called once, in the forker."""
    clocks = Clocks(responses)

    def change(names: Names) -> None:
        names.change("MPClient.__init__", clocks.connecting)

    def change_benchmark(names: Names) -> None:
        names.change("main_async", clocks.beginning)

    changes.when_imported(PURPOSE, change)
    changes.when_imported(BENCHMARK_PURPOSE, change_benchmark)
    return clocks
