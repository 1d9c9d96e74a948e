"""Measures how far the cost model is from real kernels: `python -m profiles.tools.trace_error [--gpu NAME] [--worst N]
TRACE...`.

Reads torch.profiler traces (record_shapes=True), prices every kernel and library call as the hook would name it, and
prints real and modelled time per family and per trace, alone and beside NCCL.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from profiles.cost import CostModel
from profiles.descriptions.gpu import load_gpu
from profiles.models.dispatch import estimate
from profiles.signature import Kernel, format_signature, parse
from profiles.timings.trace import TracedWork, by_category, load, works

ALONE, BESIDE = 0.01, 0.99


def modelled_us(model: CostModel, work: TracedWork) -> float:
    """The modelled time in µs, without the gaps between the kernels of one call, as traces have them. Work that NCCL
    accompanied for part of its time runs at each rate for that part.
    """
    found = estimate(model.gpu, parse(work.signature))
    return 1 / ((1 - work.overlap) / found.solo_ns + work.overlap / found.contended_ns) / 1e3


def row(title: str, model: CostModel, found: list[TracedWork]) -> str:
    real = sum(one.for_us for one in found)
    guess = sum(modelled_us(model, one) for one in found)
    off = sum(abs(modelled_us(model, one) - one.for_us) for one in found)
    errors = f"{guess / real - 1:+.1%} | {off / real:.1%}"
    return f"| {title} | {len(found)} | {real / 1e3:.2f} | {guess / 1e3:.2f} | {errors} |"


def report(model: CostModel, name: str, found: list[TracedWork]) -> None:
    print(f"\n{name}\n\n| family | calls | real ms | model ms | error of sum | mean error |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for category, members in by_category(found):
        print(row(category, model, members))
    alone = [one for one in found if one.overlap <= ALONE]
    beside = [one for one in found if one.overlap >= BESIDE]
    print(row("**all**", model, found))
    if beside:
        print(row("alone", model, alone))
        print(row("beside NCCL", model, beside))
        for category, members in by_category(beside):
            print(row(f"beside NCCL: {category}", model, members))


def worst(model: CostModel, found: list[TracedWork], count: int) -> None:
    groups: dict[tuple[str, bool], list[TracedWork]] = defaultdict(list)
    for one in found:
        if one.overlap <= ALONE or one.overlap >= BESIDE:
            groups[one.signature, one.overlap > 0.5].append(one)
    rows = []
    for (signature, beside), members in groups.items():
        real = sum(one.for_us for one in members)
        guess = sum(modelled_us(model, one) for one in members)
        rows.append((abs(guess - real), real / len(members), guess / len(members), len(members), beside, signature))
    for _, real, guess, times, beside, signature in sorted(rows, reverse=True)[:count]:
        mark = "*" if beside else " "
        print(f"{times:4d} x {real:8.1f} us, model {guess:8.1f} ({guess / real - 1:+.0%}){mark} {shorten(signature)}")


def shorten(signature: str) -> str:
    what = parse(signature)
    if isinstance(what, Kernel):
        name = what.name.replace("at::native::", "").replace("(anonymous namespace)::", "")
        what = replace(what, name=name[:110])
    return format_signature(what)[:260]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m profiles.tools.trace_error", description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N signatures most off in sum")
    arguments = parser.parse_args()
    model = CostModel(load_gpu(arguments.gpu))
    for path in arguments.traces:
        found = works(load(path))
        report(model, path.name.split(".")[0], found)
        if arguments.worst:
            print()
            worst(model, found, arguments.worst)


if __name__ == "__main__":
    main()
