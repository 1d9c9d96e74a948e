"""Tokens that vLLM's scheduler appends to requests: the end token where a response has its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from emu.contract.policies.length_policy import parse
from emu.contract.records import ResponseEventKind
from emu.control.generation.responses import Responses
from emu.control.generation.vllm_clocks import MIXED, Clocks
from emu.control.generation.vllm_scheduler import Scheduling


class Told:
    """Stands for the hook library: keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.totals: tuple[Any, ...] = ()
        self.warnings: list[str] = []
        self.events: list[tuple[int, int, int]] = []
        self.blocks: list[tuple[int, int]] = []

    def response(self, event: int, number: int, tokens: int) -> None:
        self.events.append((event, number, tokens))

    def kv_blocks(self, used: int, blocks: int) -> None:
        self.blocks.append((used, blocks))

    def batch(self, responses: int) -> None:
        self.batches.append(responses)

    def generation(self, *totals: Any) -> None:
        self.totals = totals

    def warn_once(self, name: str, text: str) -> None:
        self.warnings.append(text)


def of_a_rank(told: Told, policy: str | None = None) -> Responses:
    responses = Responses(told, parse(policy) if policy else None)  # type: ignore[arg-type]
    responses.is_rank = True
    return responses


CLOCKS = Clocks(of_a_rank(Told()))


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

    aborted: bool = False

    def is_finished(self) -> bool:
        return self.aborted


class Pool:
    """The blocks of keys and values, of which one stands for none."""

    num_gpu_blocks = 11

    def __init__(self) -> None:
        self.free = 10

    def get_num_free_blocks(self) -> int:
        return self.free


@dataclass
class Parallel:
    distributed_executor_backend: str | None = None
    world_size: int = 1
    data_parallel_size: int = 1


class Scheduler:
    """Appends tokens and tests for the end, as vLLM's scheduler does."""

    def __init__(self, most: int = 100, parallel: Parallel | None = None) -> None:
        self.most = most
        self.parallel_config = parallel or Parallel()
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.block_pool = Pool()
        self.kv_cache_manager = self

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def finish(self, request: Request) -> None:
        request.aborted = True

    def append(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        for token in new_token_ids:
            request.output.append(token)
            stops = (request.sampling_params.eos_token_id, *request.sampling_params.stop_token_ids)
            if token in stops or len(request.output) >= self.most:
                return new_token_ids, True
        return new_token_ids, False


def generate(
    request: Request,
    policy: str | None,
    *,
    most: int = 100,
    tokens: int = 1,
    rank: int = 0,
    parallel: Parallel | None = None,
) -> Told:
    told = Told()
    responses = of_a_rank(told, policy)
    responses.rank = rank
    scheduling = Scheduling(responses, Clocks(responses))
    append = scheduling.appending(Scheduler.append)
    scheduler = Scheduler(most, parallel)
    scheduling.adding(Scheduler.add)(scheduler, request)
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


ARRIVED, FIRST, ENDED, DROPPED = ResponseEventKind


def test_a_request_arrives_has_a_first_token_and_ends() -> None:
    told = generate(Request(Parameters(), [5, 6, 7]), "fixed:4")
    assert told.events == [(ARRIVED, 0, 3), (FIRST, 0, 1), (ENDED, 0, 4)]


def test_without_a_policy_tokens_stay_and_are_told_of() -> None:
    request = Request(Parameters(), [5])
    told = generate(request, None, most=3)
    assert request.output == [0, 0, 0]
    assert told.events == [(ARRIVED, 0, 1), (FIRST, 0, 1), (ENDED, 0, 3)]
    assert told.totals == ()


def test_of_ranks_that_share_a_model_one_tells_of_the_requests() -> None:
    """The program was started once for each of eight ranks; two have a model together, in two engines of two copies."""
    parallel = Parallel("external_launcher", world_size=4, data_parallel_size=2)
    requests = [Request(Parameters(), [5, 6]) for _ in range(8)]
    told = [generate(one, "lognormal:40,0.8", rank=rank, parallel=parallel) for rank, one in enumerate(requests)]
    lengths = [len(one.output) for one in requests]
    assert lengths[0::2] == lengths[1::2], "else one would wait for ever in the other's next collective"
    assert len(set(lengths)) == 4
    events = [(ARRIVED, 0, 2), (FIRST, 0, 1)]
    assert [one.events for one in told] == [
        [] if rank % 2 else [*events, (ENDED, 0, length)] for rank, length in enumerate(lengths)
    ]
    assert [one.totals != () for one in told] == [True, False] * 4


def test_numbers_are_given_again_and_a_request_that_its_client_ends_is_dropped() -> None:
    told, scheduler = Told(), Scheduler()
    scheduling = Scheduling(of_a_rank(told), CLOCKS)
    add, finish = scheduling.adding(Scheduler.add), scheduling.finishing(Scheduler.finish)
    first, second, third = (Request(Parameters(), [1] * tokens) for tokens in (2, 3, 4))
    add(scheduler, first)
    add(scheduler, second)
    finish(scheduler, first)
    add(scheduler, third)
    assert told.events == [(ARRIVED, 0, 2), (ARRIVED, 1, 3), (DROPPED, 0, 0), (ARRIVED, 0, 4)]


def test_blocks_in_use_are_told_where_they_change() -> None:
    told, scheduler = Told(), Scheduler()

    def take(scheduler: Scheduler, free: int) -> None:
        scheduler.block_pool.free = free

    tell = Scheduling(of_a_rank(told), CLOCKS).telling(take)
    for free in (10, 7, 7, 9):
        tell(scheduler, free)
    assert told.blocks == [(0, 10), (3, 10), (1, 10)]


def test_places_that_others_take_at_once_are_not_empty() -> None:
    told = Told()
    scheduler = Scheduler()

    def run(running: int, waiting: int) -> None:
        scheduler.running, scheduler.waiting = [REQUEST] * running, [REQUEST] * waiting

    tell = Scheduling(of_a_rank(told, "fixed:2"), CLOCKS).telling(
        lambda scheduler, running, waiting: run(running, waiting)
    )
    for running, waiting in ((0, 6), (4, 2), (3, 2), (4, 1), (3, 1), (4, 0), (3, 0), (3, 0), (0, 0), (2, 0)):
        tell(scheduler, running, waiting)
    assert told.batches == [4, 3, 0, 2]


REQUEST = Request(Parameters(), [5])


def test_a_process_without_a_gpu_says_once_that_its_times_are_real(capsys: pytest.CaptureFixture[str]) -> None:
    clocks = Clocks(Responses(Told(), None))  # type: ignore[arg-type]
    made: list[object] = []
    for client in (1, 2):
        clocks.connecting(lambda client, engine: made.append((client, engine)))(client, engine="other process")
    assert made == [(1, "other process"), (2, "other process")]
    assert clocks.beginning(lambda requests: 2 * requests)(8) == 16, "vllm bench serve"
    assert capsys.readouterr().err == MIXED + "\n"


def test_a_rank_has_one_clock_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    responses = Responses(Told(), None)  # type: ignore[arg-type]
    responses.is_rank = True
    clocks = Clocks(responses)
    Scheduling(responses, clocks).adding(Scheduler.add)(Scheduler(), Request(Parameters(), [5, 6]))
    clocks.connecting(lambda client: None)(1)
    assert capsys.readouterr().err == ""
