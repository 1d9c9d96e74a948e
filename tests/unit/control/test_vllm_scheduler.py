"""Tokens that vLLM's scheduler appends to requests: the end token where a response has its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emu.contract.policies.length_policy import parse
from emu.control.generation.responses import Responses
from emu.control.generation.vllm_scheduler import Scheduling


class Told:
    """Stands for the hook library: keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.totals: tuple[Any, ...] = ()
        self.warnings: list[str] = []

    def batch(self, responses: int) -> None:
        self.batches.append(responses)

    def generation(self, *totals: Any) -> None:
        self.totals = totals

    def warn_once(self, name: str, text: str) -> None:
        self.warnings.append(text)


@dataclass
class Parameters:
    eos_token_id: int | None = 2
    stop_token_ids: list[int] = field(default_factory=list)
    min_tokens: int = 0


@dataclass(eq=False)
class Request:
    sampling_params: Parameters
    prompt_token_ids: list[int]
    output: list[int] = field(default_factory=list)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output)


class Scheduler:
    """Appends tokens and tests for the end, as vLLM's scheduler does."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.running: list[Request] = []
        self.waiting: list[Request] = []

    def append(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        for token in new_token_ids:
            request.output.append(token)
            stops = (request.sampling_params.eos_token_id, *request.sampling_params.stop_token_ids)
            if token in stops or len(request.output) >= self.most:
                return new_token_ids, True
        return new_token_ids, False


def generate(request: Request, policy: str, *, most: int = 100, tokens: int = 1) -> Told:
    told = Told()
    responses = Responses(told, parse(policy))  # type: ignore[arg-type]
    append = Scheduling(responses).appending(Scheduler.append)
    scheduler = Scheduler(most)
    while not append(scheduler, request, [0] * tokens)[1]:
        pass
    responses.report()
    return told


def test_a_response_ends_at_its_length() -> None:
    request = Request(Parameters(), [5, 6])
    told = generate(request, "fixed:7")
    assert request.output == [0] * 6 + [2]
    assert told.totals == (1, 1, 1, 7, 7, 7, "vLLM")


def test_a_response_ends_among_tokens_that_are_sampled_together() -> None:
    request = Request(Parameters(), [5, 6])
    generate(request, "fixed:7", tokens=3)
    assert request.output == [0] * 6 + [2]


def test_no_token_before_the_end_ends_it() -> None:
    request = Request(Parameters(eos_token_id=0, stop_token_ids=[1, 3]), [5])
    generate(request, "fixed:4")
    assert request.output == [2, 2, 2, 0]


def test_a_stop_token_is_an_end_token() -> None:
    request = Request(Parameters(eos_token_id=None, stop_token_ids=[9]), [5])
    generate(request, "fixed:3")
    assert request.output == [0, 0, 9]


def test_no_end_token_is_sampled_before_the_least_tokens() -> None:
    request = Request(Parameters(min_tokens=5), [5])
    generate(request, "fixed:2")
    assert request.output == [0] * 5 + [2]


def test_what_the_request_allows_cuts_a_response() -> None:
    request = Request(Parameters(), [5])
    told = generate(request, "fixed:7", most=4)
    assert request.output == [0] * 4
    assert told.totals == (1, 1, 0, 4, 4, 4, "vLLM")


def test_a_request_without_an_end_token_is_left_as_it_is_and_warns() -> None:
    request = Request(Parameters(eos_token_id=None), [5])
    told = generate(request, "fixed:2", most=6)
    assert request.output == [0] * 6
    assert told.totals == ()
    assert "names no end token" in told.warnings[0]


def test_places_that_others_take_at_once_are_not_empty() -> None:
    told = Told()
    scheduler = Scheduler()

    def run(running: int, waiting: int) -> None:
        scheduler.running, scheduler.waiting = [REQUEST] * running, [REQUEST] * waiting

    tell = Scheduling(Responses(told, parse("fixed:2"))).telling(  # type: ignore[arg-type]
        lambda scheduler, running, waiting: run(running, waiting)
    )
    for running, waiting in ((0, 6), (4, 2), (3, 2), (4, 1), (3, 1), (4, 0), (3, 0), (3, 0), (0, 0), (2, 0)):
        tell(scheduler, running, waiting)
    assert told.batches == [4, 3, 0, 2]


REQUEST = Request(Parameters(), [5])
