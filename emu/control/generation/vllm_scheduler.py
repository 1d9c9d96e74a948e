"""vLLM's scheduler, which appends sampled tokens to requests and tests whether they stop: tokens become those that the
policy states before they are appended.

What is on the device stays unknown: no time depends on it, and of a request that has stopped nothing is read any more.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ...private.changes import Names, changes
from .responses import Responses

PURPOSE = "responses of vLLM"
_PROGRAM = "vLLM"


@dataclass(slots=True)
class _Stated:
    """The tokens of one request."""

    length: int
    end: int
    other: int
    """The token that is sampled until the end."""

    def token(self, number: int) -> int:
        """Returns the response's token of this number, from 1."""
        return self.end if number >= self.length else self.other


def follow(responses: Responses) -> None:
    """Makes responses of vLLM have their lengths from now on. Called once, in the forker."""
    scheduler = Scheduling(responses)

    def change(names: Names) -> None:
        names.change("Scheduler._update_request_with_output", scheduler.appending)
        names.change("Scheduler.schedule", scheduler.telling)
        names.change("Scheduler.update_from_output", scheduler.telling)

    changes.when_imported(PURPOSE, change)


class Scheduling:
    """The functions in the place of the scheduler's."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._stated: WeakKeyDictionary[Any, _Stated | None] = WeakKeyDictionary()
        self._running = 0

    def appending(self, append: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(append)
        def append_stated(scheduler: Any, request: Any, new_token_ids: list[int], *args: Any, **kwargs: Any) -> Any:
            if request not in self._stated:
                self._stated[request] = self._of(request)
            stated = self._stated[request]
            if stated is not None:
                first = request.num_output_tokens + 1
                new_token_ids[:] = [stated.token(first + place) for place in range(len(new_token_ids))]
            result = append(scheduler, request, new_token_ids, *args, **kwargs)
            stopped = result[1]
            if stopped and stated is not None:
                length = request.num_output_tokens
                self._responses.complete(_PROGRAM, [(length, length >= stated.length)], together=False)
            return result

        return append_stated

    def telling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Tells how many requests run after the method, where that has changed."""

        @functools.wraps(method)
        def tell(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(scheduler, *args, **kwargs)
            running = len(scheduler.running)
            # Between two steps, places of requests that have stopped are taken by those that wait.
            if running != self._running and (running >= self._running or not len(scheduler.waiting)):
                self._running = running
                self._responses.running(running)
            return result

        return tell

    def _of(self, request: Any) -> _Stated | None:
        """Draws the length of a request; None if it has no end token."""
        parameters = request.sampling_params
        stops = tuple(parameters.stop_token_ids or ())
        end = parameters.eos_token_id
        ends = stops if end is None else (end, *stops)
        if not ends:
            self._responses.warn(
                "a request of vLLM names no end token (ignore_eos, or a model without one): its response has another "
                "length"
            )
            return None
        length = self._responses.length(request.prompt_token_ids or (), self._responses.rank)
        other = next(token for token in itertools.count() if token not in ends)
        # Before so many tokens vLLM samples no end token.
        return _Stated(max(length, parameters.min_tokens + 1 if parameters.min_tokens else 1), ends[0], other)
