"""Compares random programs by the thousand: `python -m tests.unit.virtual_time.many COUNT [FIRST_SEED]`.

It draws them itself, because Hypothesis takes longer to draw a program than the engine to execute it. Many durations
are multiples of 10 ns, so that ranks meet at one instant. A program that differs is printed, and ends the run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from phantora_async.virtual_time import HostState, Stop, Timeline

from .programs import MOST, Program, eager, fixed, network, never, on_demand, paces_for, play, write
from .reference import Reference
from .scripted import Arrivals, FixedNetwork, Script, new_fact_builder, number
from .test_reference import duration_ns, is_in_reference, reference_of

NAMES = (
    *("segment", "segment", "event", "wait for event", "sync", "clock", "elapsed", "collective", "collective", "send"),
    *("exchange", "query", "poll", "loop", "step", "batch", "destroy", "abort"),
)
Drawn = tuple[str, dict[str, Any]]


def _after(chance: random.Random, most: int) -> int:
    return 10 * chance.randint(0, most // 10) if chance.random() < 0.7 else chance.randint(0, most)


def _action(chance: random.Random) -> tuple[Any, ...]:
    stream = chance.randint(1, 3)
    name = chance.choice(NAMES)
    rest: dict[str, Callable[[], tuple[Any, ...]]] = {
        "segment": lambda: (stream, _after(chance, 900), _after(chance, 300), _after(chance, 500)),
        "event": lambda: (stream, chance.randint(1, 3)),
        "wait for event": lambda: (stream, _after(chance, 60)),
        "sync": lambda: (chance.randint(0, 3),),
        "clock": lambda: (_after(chance, 50),),
        "elapsed": lambda: (stream,),
        "collective": lambda: (
            *(chance.randint(0, 4), chance.randint(0, 2), chance.randint(0, 300), stream),
            [_after(chance, chance.choice((0, 30, 400))) for _ in range(MOST)],
        ),
        "send": lambda: (chance.randint(0, 4), stream, chance.randint(1, 300)),
        "exchange": lambda: (chance.randint(0, 4), stream, chance.randint(1, 300)),
        "query": lambda: (stream,),
        "poll": lambda: (stream, chance.choice((3, 20)), chance.choice((0, 40, 2001))),
        "loop": lambda: (
            *(stream, _after(chance, 9000), chance.randint(1, 9), chance.randint(0, 1500), chance.randint(0, 2)),
        ),
        "step": tuple,
        "batch": lambda: (chance.randint(0, 3), _after(chance, 90)),
        "destroy": lambda: (_after(chance, 500),),
        "abort": lambda: (chance.randint(0, 4), _after(chance, chance.choice((0, 300)))),
    }
    return name, *rest[name]()


def _program(chance: random.Random, most: int) -> Program:
    return [(chance.randint(0, MOST - 1), _action(chance)) for _ in range(chance.randint(1, most))]


def _faults(chance: random.Random) -> list[str]:
    texts = []
    for _ in range(chance.choice((0, 0, 1, 3))):
        rank, at_ns, for_ns = chance.randint(0, MOST - 1), chance.randint(0, 3000), chance.randint(1, 5000)
        share = chance.choice(("0.1", "0.5", "0.777777"))
        texts.append(
            chance.choice(
                (
                    f"gpu {rank} at {share}x from {at_ns}ns for {for_ns}ns",
                    f"host {rank} at {share}x from {at_ns}ns for {for_ns}ns",
                    f"host {rank} jitter 20% every 1us seed {chance.randint(0, 9)}",
                    f"gpu {rank} ecc retry {for_ns}ns at {at_ns}ns",
                    f"gpu {rank} dead at {at_ns}ns",
                    f"gpu {rank} dead at {at_ns}ns for {for_ns}ns",
                    f"node {rank} dead at {at_ns}ns",
                )
            )
        )
    return texts


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in a if a[name] != b[name]]


def any_order(chance: random.Random) -> Drawn:
    """Records in any order and portions, ahead or not, give what records in order give."""
    size, depth, seed = chance.randint(1, MOST), chance.randint(1, 8), chance.randint(0, 2**32)
    program, faults = _program(chance, 30), _faults(chance)
    ahead, (make_network, scale) = chance.choice((eager, on_demand)), chance.choice(((fixed, 1), (network, 20_000)))
    drawn = {"size": size, "depth": depth, "seed": seed, "program": program, "faults": faults}
    drawn |= {"ahead": ahead.__name__, "network": make_network.__name__}
    paces = paces_for(size, faults)
    expected = play(write(size, program, scale), make_network, None, never, depth, paces=paces)
    played = play(write(size, program, scale), make_network, seed, ahead, depth, paces=paces)
    return ", ".join(_differences(expected.outcome, played.outcome)), drawn


def reference(chance: random.Random) -> Drawn:
    """The engine does what the reference does."""
    size, depth, seed = chance.randint(1, MOST), chance.randint(1, 8), chance.randint(0, 2**32)
    program = [one for one in _program(chance, 30) if is_in_reference(one[1])]
    drawn = {"size": size, "depth": depth, "seed": seed, "program": program}
    expected: Reference = reference_of(write(size, program, 1), depth)
    outcome = play(write(size, program, 1), lambda: FixedNetwork(duration_ns), seed, eager, depth).outcome
    of_reference = {
        "answers": {rank: host.answers for rank, host in enumerate(expected.hosts) if host.answers},
        "begun": sorted(expected.begun),
        "clocks": [host.clock_ns for host in expected.hosts],
        "finished": [host.finished for host in expected.hosts],
        "instants": [(done_ns, host_ns) for _, host_ns, done_ns in expected.hosts[0].ends],
    }
    outcome["finished"] = [one == HostState.FINISHED for one in outcome["states"]]
    outcome["instants"] = [tuple(one) for one in outcome["instants"]]
    return ", ".join(_differences(of_reference, outcome)), drawn


def _play_lives(lives: list[list[Script]], failed: int, seed: int | None, ahead: bool, depth: int) -> dict[str, Any]:
    """All ranks' processes end with that of `failed` and start again with the next scripts."""
    chance, ranks = random.Random(seed), range(len(lives[0]))
    timeline, fact_builder = Timeline(len(ranks), FixedNetwork(duration_ns), depth), new_fact_builder(len(ranks))
    starts = []
    for life, scripts in enumerate(lives):
        answers: dict[int, list[int]] = {}  # those to processes that end may leave or not
        if life:
            starts.append(timeline.restart(failed, ranks))
            timeline.take_answers()
            fact_builder.restart(ranks, timeline.hosts[failed].steps)
        arrivals = Arrivals(scripts, timeline, fact_builder)
        while any(arrivals.left(rank) and not arrivals.waits(rank) for rank in ranks):
            for rank in ranks if seed is None else chance.sample(ranks, len(ranks)):
                if arrivals.waits(rank):
                    continue
                arrivals.feed(rank, arrivals.left(rank) if seed is None else chance.randint(0, 6))
                if seed is not None and chance.random() < 0.7:
                    timeline.run(chance.choice((1, 5, 40, 1000)), ahead and chance.random() < 0.7)
        while timeline.run(1000, ahead) is Stop.BUDGET:
            continue
        for rank, answer in timeline.take_answers():
            answers.setdefault(rank, []).append(number(answer))
    snapshot = timeline.snapshot()
    return {
        "answers": answers,
        "starts": starts,
        "clocks": [one.clock_ns for one in snapshot.ranks],
        "states": [one.state for one in snapshot.ranks],
        "shares": [one.shares for one in snapshot.ranks],
        "instants": snapshot.step_instants,
        "now": snapshot.now_ns,
    }


def restarts(chance: random.Random) -> Drawn:
    """Ranks start again once or twice, with what was simulated ahead or without."""
    size, depth, seed = chance.randint(2, MOST), chance.randint(1, 8), chance.randint(0, 2**32)
    failed = chance.randrange(size)
    programs = [_program(chance, 15) for _ in range(chance.choice((2, 2, 3)))]
    cuts = [chance.randint(0, 12) for _ in programs]
    drawn = {"size": size, "depth": depth, "seed": seed, "failed": failed, "programs": programs, "cuts": cuts}

    def lives() -> list[list[Script]]:
        every = [write(size, program, 1, life) for life, program in enumerate(programs)]
        for scripts, cut in zip(every[:-1], cuts, strict=False):
            del scripts[failed].records[len(scripts[failed].records) - cut - 1 :]  # it never says BYE
        return every

    expected, played = (_play_lives(lives(), failed, one, one is not None, depth) for one in (None, seed))
    return ", ".join(_differences(expected, played)), drawn


def main() -> int:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for seed in range(first, first + count):
        check = (any_order, any_order, reference, restarts)[seed % 4]
        differs, drawn = check(random.Random(seed))
        if differs:
            print(f"seed {seed}: {check.__name__} differs in {differs}: {drawn}")
            return 1
        if (done := seed + 1 - first) % 1000 == 0:
            print(f"{done} programs agree", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
