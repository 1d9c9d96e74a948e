"""vLLM's scheduler, which appends sampled tokens to requests and tests whether they stop: tells when requests arrive,
have tokens and end, and how many blocks of keys and values they hold. With `--lengths` tokens become those that the
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
from . import vllm_clocks, vllm_workers
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


@dataclass(slots=True)
class _Followed:
    """A request between its arrival and its end."""

    number: int | None
    """The response's number, see ``Responses.arrived``; None: another rank of the engine tells of it."""
    stated: _Stated | None


def follow(responses: Responses) -> None:
    """Tells of vLLM's responses from now on, and makes them have their lengths. Called once, in the forker."""
    scheduler = Scheduling(responses, vllm_clocks.follow(responses))

    def change(names: Names) -> None:
        names.change("Scheduler.add_request", scheduler.adding)
        names.change("Scheduler.finish_requests", scheduler.finishing)
        names.change("Scheduler._update_request_with_output", scheduler.appending)
        names.change("Scheduler.schedule", scheduler.handing_on)
        names.change("Scheduler.update_from_output", scheduler.hearing)

    changes.when_imported(PURPOSE, change)
    vllm_workers.follow(responses)


class Scheduling:
    """The functions in the place of the scheduler's."""

    def __init__(self, responses: Responses, clocks: vllm_clocks.Clocks) -> None:
        self._responses, self._clocks = responses, clocks
        self._followed: WeakKeyDictionary[Any, _Followed] = WeakKeyDictionary()
        self._running = 0
        self._steps = 0
        """The steps that were scheduled for workers."""
        self._heard_of = 0
        """The last of them whose output has come back."""

    def adding(self, add: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(add)
        def add_followed(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            self._clocks.note()
            if not self._responses.is_rank:
                self._responses.keep_untold()
            if request not in self._followed:
                self._followed[request] = self._begin(scheduler, request)
            return add(scheduler, request, *args, **kwargs)

        return add_followed

    def finishing(self, finish: Callable[..., Any]) -> Callable[..., Any]:
        """Requests end from outside: the client has gone, or has found a stop string in the text."""

        @functools.wraps(finish)
        def finish_followed(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            result = finish(scheduler, *args, **kwargs)
            for request in [one for one in self._followed if one.is_finished()]:
                number = self._followed.pop(request).number
                if number is not None:
                    self._responses.dropped(number, request.num_output_tokens)
            return result

        return finish_followed

    def appending(self, append: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(append)
        def append_stated(scheduler: Any, request: Any, new_token_ids: list[int], *args: Any, **kwargs: Any) -> Any:
            followed = self._followed.get(request)
            if followed is None:
                return append(scheduler, request, new_token_ids, *args, **kwargs)
            stated, before = followed.stated, request.num_output_tokens
            if stated is not None:
                new_token_ids[:] = [stated.token(before + 1 + place) for place in range(len(new_token_ids))]
            result = append(scheduler, request, new_token_ids, *args, **kwargs)
            length, stopped, number = request.num_output_tokens, result[1], followed.number
            if number is not None and not before and length:
                self._responses.first(number)
            if stopped:
                del self._followed[request]
            if stopped and number is not None:
                self._responses.ended(number, length)
                if stated is not None:
                    self._responses.complete(_PROGRAM, [(length, length >= stated.length)], together=False)
            return result

        return append_stated

    def telling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Tells how many requests run after the method, and how many blocks are in use, where that has changed."""

        @functools.wraps(method)
        def tell(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(scheduler, *args, **kwargs)
            running = len(scheduler.running)
            # Between two steps, places of requests that have stopped are taken by those that wait.
            if running != self._running and (running >= self._running or not len(scheduler.waiting)):
                self._running = running
                self._responses.running(running)
            pool = scheduler.kv_cache_manager.block_pool
            # One block stands for none.
            self._responses.kv_blocks(pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(), pool.num_gpu_blocks - 1)
            return result

        return tell

    def handing_on(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        """A scheduler in a process without a GPU sends its step to workers: they tell what there is to tell."""
        told = self.telling(schedule)

        @functools.wraps(schedule)
        def schedule_followed(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            output = told(scheduler, *args, **kwargs)
            if not self._responses.is_rank:
                self._steps += 1
                vllm_workers.hand_on(output, self._steps, self._heard_of, self._responses.take_untold())
            return output

        return schedule_followed

    def hearing(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """The output of a step has come back from the workers."""
        told = self.telling(update)

        @functools.wraps(update)
        def update_followed(scheduler: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._heard_of = max(self._heard_of, vllm_workers.step_of(scheduler_output))
            return told(scheduler, scheduler_output, *args, **kwargs)

        return update_followed

    def _begin(self, scheduler: Any, request: Any) -> _Followed:
        engine, rank = self._engine(scheduler), self._responses.rank
        tells = rank == engine or not self._responses.is_rank
        number = self._responses.arrived(len(request.prompt_token_ids or ())) if tells else None
        return _Followed(number, self._stated(request, engine))

    def _engine(self, scheduler: Any) -> int:
        """Returns the rank that tells of the engine's requests. Where the program was started once for each rank, all
        ranks among which a model is divided have a scheduler, with the same requests. A scheduler in a process without
        a GPU stands for its engine's copy of the model, which has a number.
        """
        parallel, rank = scheduler.parallel_config, self._responses.rank
        if not self._responses.is_rank:
            return int(parallel.data_parallel_index)
        if parallel.distributed_executor_backend != "external_launcher":
            return rank
        return int(rank - rank % (parallel.world_size // parallel.data_parallel_size))

    def _stated(self, request: Any, engine: int) -> _Stated | None:
        """Draws the length of a request; None if no policy states it, or it has no end token. `engine`: the ranks of an
        engine draw the same.
        """
        policy = self._responses.policy
        if policy is None or request.sampling_params is None:
            return None
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
        length = self._responses.length(policy, request.prompt_token_ids or (), engine)
        other = next(token for token in itertools.count() if token not in ends)
        # Before so many tokens vLLM samples no end token.
        return _Stated(max(length, parameters.min_tokens + 1 if parameters.min_tokens else 1), ends[0], other)
