"""docs/data/test-lists.json, which keeps the verdicts, and docs/data/test-lists.md, which is written from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import verdict
from .lists import TestList
from .verdict import Verdict

DATA = Path(__file__).parents[3] / "docs" / "data" / "test-lists.json"
PATH = DATA.with_suffix(".md")
HEAD = """\
# Test lists of the frameworks

Tests that frameworks run on their own GPUs, unmodified, on emulated ones: `python -m tests.frameworks.lists NAME` runs
a list, `--write` keeps the verdicts here. Skipped is what the test itself skips here.

A test that passes needs no computed kernels. Of those that fail, a test needs them ("values") if a comparison of
numbers failed in it, and its run has read values that no kernel computed. "packages": something is not installed here
or would have to be downloaded. "other" is everything else, with the line that says what. In torchtitan's lists no test
compares numbers: it passes if the training ends with exit code 0. Seconds are of a busy machine with two cores.

In PyTorch's list, the tests that fail as "other" pass with the NCCL backend that PyTorch 2.15 had before
(`TORCH_DIST_USE_NCCL2=0`, the second table). With the later one, the profiler's events have other names ("all_reduce"
in place of "nccl:all_reduce"), object collectives refuse another device than the group's, and a barrier does not hold
the host. Names and refusals are PyTorch's own C++ code, which runs here as it does on GPUs, so these tests should fail
there, too; that was not tried. What needs computed kernels compares tensors of 16,000 to 1,048,576
elements: smaller ones, of at most 4,096, are computed anyway.

Of Accelerate's scripts, test_ops takes a type's number from an integer tensor that `torch.empty` has made and of which
it writes four elements: memory that nobody wrote has no known values here. test_notebook starts ranks of which one is
to fail, and a run ends here when a rank has failed.

torchtitan's models have FlexAttention, of which Inductor compares 6 kernels forwards and 12 backwards. Here it asks the
cost model instead of a GPU, but each has to be compiled for that: 117 s on a busy machine with two cores, of which LLVM
took 31 %, Triton's passes 28 %, its frontend 10 %, ptxas 12 %, and their prices 19 %. One rank does it for all, and
what was chosen is in the compile cache for later runs. With it there, `last_save_model_only_bf16` takes 72 s of
processor time for its four ranks, `2d_eager_no_sp` 91 s, and the two trainings of `full_checkpoint` 149 s: what they
wait for beyond that is a processor. `cp`, `pp_dp_1f1b` and `pp_tp_gpipe` had a machine with some twenty times as many
busy processes as cores. Two tests lack a package here: FlashAttention 3, which has to be built, and torchao, whose
releases 0.17 and 0.18 do not import beside Triton 3.9. `model_only_hf_checkpoint` loads from a relative path, which
torchtitan at this commit refuses itself.

The models and the data set of TRL's tests have random contents here, below the names that the tests have for them.

Megatron-core's tests make process groups and leave them to PyTorch. In the tenth test of a run each of the eight ranks
had 172 watchdog threads, one for each group, and these took 56 to 62 % of a rank's processor time (`perf record` of two
ranks).
"""


@dataclass(frozen=True, slots=True)
class Results:
    """The verdicts of a list's tests that were run, and on which versions. `known`: how many tests the list has;
    `every`: the run took each Nth of them.
    """

    versions: str
    date: str
    known: int
    tests: Mapping[str, Verdict] = field(default_factory=dict)
    every: int = 1


def read(text: str) -> dict[str, Results]:
    return {
        name: Results(**(kept | {"tests": {test: Verdict(**one) for test, one in kept["tests"].items()}}))
        for name, kept in json.loads(text).items()
    }


def written(results: Mapping[str, Results]) -> str:
    kept = {name: asdict(one) for name, one in sorted(results.items())}
    for one in kept.values():
        one["tests"] = {test: one["tests"][test] for test in sorted(one["tests"])}
    return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"


def render(lists: Sequence[TestList], results: Mapping[str, Results]) -> str:
    parts = [HEAD]
    for tests in lists:
        if (found := results.get(tests.name)) is not None:
            parts.append("\n".join(_section(tests, found)) + "\n")
    return "\n".join(parts)


def _section(tests: TestList, results: Results) -> Iterator[str]:
    yield f"## {tests.title}"
    yield ""
    counts = Counter(_verdict(one) for one in results.tests.values())
    counted = ", ".join(
        f"{counts[name]} {name}" for name in sorted(counts, key=lambda name: (name != verdict.PASSES, name))
    )
    sample = f"--every {results.every} " if results.every > 1 else ""
    yield f"`python -m tests.frameworks.lists {sample}{tests.name}`, {results.versions}, {results.date}."
    yield f"{len(results.tests)} of {results.known} tests were run: {counted}."
    yield ""
    yield "| test | verdict | needs computed kernels | what it says | seconds |"
    yield "| --- | --- | --- | --- | ---: |"
    places = {verdict.parts(name)[0] for name in results.tests}
    for name, one in sorted(results.tests.items()):
        shown = verdict.parts(name)[1] if len(places) == 1 else name
        needs = (
            "yes" if one.cause == verdict.VALUES else "no" if one.state == verdict.PASSES or not tests.numbers else ""
        )
        says = " ".join(one.says.replace("|", "/").replace("`", "'").split())[:160]
        yield f"| `{shown}` | {_verdict(one)} | {needs} | {says} | {one.seconds:.0f} |"


def _verdict(one: Verdict) -> str:
    return f"{one.state}: {one.cause}" if one.cause else one.state
