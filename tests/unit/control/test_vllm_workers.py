"""vLLM's workers in processes of their own tell of the requests of a scheduler in a process without a GPU."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from emu.contract.policies.length_policy import parse
from emu.contract.records import ResponseEventKind
from emu.control.generation.responses import Responses
from emu.control.generation.vllm_clocks import Clocks
from emu.control.generation.vllm_scheduler import Scheduling
from emu.control.generation.vllm_workers import Workers

ARRIVED, FIRST, ENDED, DROPPED = ResponseEventKind


class Log:
    """Stands for the hook library, and for the events of a GPU: keeps what is told and waited for, in its order."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def response(self, event: int, number: int, tokens: int) -> None:
        self.said.append((event, number, tokens))

    def batch(self, responses: int) -> None:
        self.said.append(("batch", responses))

    def kv_blocks(self, used: int, blocks: int) -> None:
        self.said.append(("blocks", used, blocks))

    def generation(self, *totals: Any) -> None:
        self.said.append(("totals", *totals))


@dataclass
class Event:
    log: Log
    step: int

    def synchronize(self) -> None:
        self.log.said.append(f"output {self.step}")


@dataclass
class Output:
    copy_event: Event


@dataclass
class Parallel:
    distributed_executor_backend: str = "mp"
    world_size: int = 4
    tensor_parallel_size: int = 2
    prefill_context_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_index: int = 0


@dataclass
class Worker:
    rank: int
    parallel_config: Parallel = field(default_factory=Parallel)


@dataclass
class Parameters:
    eos_token_id: int = 2
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0


@dataclass(eq=False)
class Request:
    prompt_token_ids: list[int]
    sampling_params: Parameters = field(default_factory=Parameters)
    num_output_tokens: int = 0


@dataclass
class Step:
    """What vLLM's scheduler sends to its workers."""

    name: str = ""


class Engine:
    """A scheduler in a process without a GPU, and the workers of two stages with two ranks each."""

    num_gpu_blocks = 11

    def __init__(self, policy: str | None = None) -> None:
        nowhere: Any = object()
        responses = Responses(nowhere, parse(policy) if policy else None)
        scheduling = Scheduling(responses, Clocks(responses))
        scheduling._clocks._said = True
        self.parallel_config = Parallel()
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.kv_cache_manager = self.block_pool = self
        self._schedule = scheduling.handing_on(lambda engine: Step())
        self._update = scheduling.hearing(lambda engine, step: None)
        self._add = scheduling.adding(lambda engine, request: engine.running.append(request))
        self._append = scheduling.appending(lambda engine, request, tokens: self._count(request, tokens))
        self.logs = [Log() for _ in range(4)]
        self._executing = []
        for log in self.logs:
            worker: Any = Responses(log)  # type: ignore[arg-type]
            worker.is_rank = True
            workers = Workers(worker)
            self._executing.append(
                (workers.executing(lambda *_: None), workers.sampling(lambda _, event: Output(event)))
            )
        self._steps = 0

    def get_num_free_blocks(self) -> int:
        return 10 - len(self.running)

    def _count(self, request: Request, tokens: list[int]) -> tuple[list[int], bool]:
        request.num_output_tokens += len(tokens)
        ends = 2 in tokens
        if ends:
            self.running.remove(request)
        return tokens, ends

    def add(self, request: Request) -> None:
        self._add(self, request)

    def step(self) -> Step:
        """Schedules a step, which the workers execute. They sample without waiting."""
        step: Step = self._schedule(self)
        self._steps += 1
        for rank, (execute, sample) in enumerate(self._executing):
            worker = Worker(rank)
            execute(worker, pickle.loads(pickle.dumps(step)))
            if rank >= 2:
                sample(worker, Event(self.logs[rank], self._steps))
        return step

    def hear(self, step: Step, request: Request, token: int = 0) -> None:
        """The output of a step comes back: a token of the request."""
        self._append(self, request, [token])
        self._update(self, step)


def test_a_worker_waits_for_the_outputs_that_the_scheduler_has_and_then_tells() -> None:
    engine, request = Engine(), Request([5, 6, 7])
    engine.add(request)
    first = engine.step()
    assert engine.logs[2].said == [(ARRIVED, 0, 3), ("batch", 1), ("blocks", 1, 10)]
    engine.logs[2].said.clear()
    second = engine.step()
    assert engine.logs[2].said == [], "the scheduler has no output yet"
    engine.hear(first, request)
    engine.step()
    assert engine.logs[2].said == ["output 1", (FIRST, 0, 1)]
    engine.logs[2].said.clear()
    engine.hear(second, request, token=2)
    engine.step()
    assert engine.logs[2].said == ["output 2", (ENDED, 0, 2), ("batch", 0), ("blocks", 0, 10)]


def test_one_worker_of_an_engine_tells_and_others_only_wait_for_their_outputs() -> None:
    engine, request = Engine(), Request([5])
    engine.add(request)
    engine.hear(engine.step(), request)
    engine.step()
    assert [log.said for log in engine.logs[:2]] == [[], []], "the first stage has no output"
    assert engine.logs[3].said == ["output 1"]


def test_lengths_are_stated_where_the_scheduler_is_and_told_by_the_worker() -> None:
    engine, request = Engine("fixed:2"), Request([5])
    engine.add(request)
    for _ in range(2):
        engine.hear(engine.step(), request)
    engine.step()
    assert request.num_output_tokens == 2
    assert (ENDED, 0, 2) in engine.logs[2].said
    assert ("totals", 1, 1, 1, 2, 2, 2, "vLLM") in engine.logs[2].said


def test_a_step_of_the_own_process_carries_nothing() -> None:
    """The scheduler of a rank tells itself."""
    log = Log()
    responses = Responses(log)  # type: ignore[arg-type]
    responses.is_rank = True
    engine = Engine()
    scheduling = Scheduling(responses, Clocks(responses))
    step = scheduling.handing_on(lambda engine: Step())(engine)
    assert vars(step) == {"name": ""}
    Workers(responses).executing(lambda *_: None)(Worker(2), step)
    assert log.said == [("blocks", 0, 10)]
