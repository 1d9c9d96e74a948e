"""vLLM's workers, which have the GPUs where its scheduler is in a process without one (tensor and pipeline parallelism
by processes): they tell of the scheduler's requests, in virtual time.

The scheduler's clock is that of this machine. What it has to tell travels with the next step that it sends. It sends
that step because outputs of earlier steps have come back, so a worker first waits until its GPU has made these: that is
when the scheduler could know of them. Its own work, and the way of its messages, take no virtual time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ...private.changes import Names, changes
from .responses import Responses, Word

PURPOSE = "workers of vLLM"
_HANDED_ON = "_phantora_handed_on"
"""The attribute of a scheduled step: its number, the last step whose output has come back, what there is to tell."""
_EVENTS = ("copy_event", "async_copy_ready_event")
"""The attribute of an output that is still to come, by model runner: an event behind the copy of its tokens."""


def hand_on(step: Any, number: int, heard_of: int, words: Iterable[Word]) -> None:
    """Sends along what the workers are to tell. `step`: vLLM's SchedulerOutput, of which they get a copy."""
    plain = [
        (function, tuple(int(one) if isinstance(one, int) else one for one in values)) for function, values in words
    ]
    setattr(step, _HANDED_ON, (number, heard_of, plain))


def step_of(step: Any) -> int:
    """Returns the number of a step; 0: it is not sent to other processes."""
    return int(getattr(step, _HANDED_ON, (0,))[0])


def follow(responses: Responses) -> None:
    """Has workers tell from now on. Called once, in the forker."""
    workers = Workers(responses)

    def change(names: Names) -> None:
        names.change("Worker.execute_model", workers.executing)
        names.change("Worker.sample_tokens", workers.sampling)

    changes.when_imported(PURPOSE, change)


class Workers:
    """The functions in the place of the worker's, in a process of its own."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._step = 0
        """The step that is executed now; 0: no other process has sent it."""
        self._outputs: dict[int, Any] = {}
        """The events behind outputs that the scheduler has not said to have, by step."""

    def executing(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(execute)
        def execute_followed(worker: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._step, heard_of, words = getattr(scheduler_output, _HANDED_ON, (0, 0, ()))
            if self._step:
                self._wait(heard_of)
                if _tells(worker):
                    self._responses.tell_for(words)
            return self._noted(execute(worker, scheduler_output, *args, **kwargs))

        return execute_followed

    def sampling(self, sample: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(sample)
        def sample_followed(worker: Any, *args: Any, **kwargs: Any) -> Any:
            return self._noted(sample(worker, *args, **kwargs))

        return sample_followed

    def _noted(self, output: Any) -> Any:
        """Notes when the step's output will be there, if it is still to come."""
        event = next((getattr(output, name) for name in _EVENTS if hasattr(output, name)), None)
        if self._step and event is not None:
            self._outputs[self._step] = event
        return output

    def _wait(self, until: int) -> None:
        """Waits for the outputs of all steps until this one."""
        for step in [step for step in self._outputs if step <= until]:
            self._outputs.pop(step).synchronize()


def _tells(worker: Any) -> bool:
    """Tells whether this is the worker of the engine whose output goes to the scheduler."""
    parallel = worker.parallel_config
    return bool(
        worker.rank == parallel.world_size - parallel.tensor_parallel_size * parallel.prefill_context_parallel_size
    )
