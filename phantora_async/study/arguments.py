"""Finds arguments of a script that are worth a try, as far as its text shows which ones it takes.

Calls of ``add_argument`` are read, nothing is executed. Suggested are other numbers for batch sizes, accumulation,
micro batches, buckets and ranks of tensor or pipeline parallelism; bf16 where it is one of the choices or the default
is FP32; sizes of a vocabulary that tensor cores take; and switches whose names say that they make a step shorter or
longer: those that the run was without are given, and those that it had are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from formats.files import MOST_SOURCE_NBYTES, read_text

BATCH = {"batch", "batchsize", "microbatch", "mbs", "bs"}
NO_BATCH = {"eval", "evaluation", "val", "valid", "validation", "test", "global", "total", "number", "num", "steps"}
"""Words that exclude a number: with them it does not say how much a rank does at a time."""
ACCUMULATION = {"accum", "accumulate", "accumulation", "accumulations"}
BY_WORK = "batch"
"""The kind of batch sizes and of accumulation: each may change the other's meaning, so that no two go together."""
PARTS = {"microbatches", "chunks"}
"""Words for the number of parts in which a batch goes through a pipeline."""
PARALLEL = {"tp", "pp", "cp", "tensor", "pipeline"}
"""Words for the number of ranks that share one replica of the model."""
OF_TENSORS = {"tp", "tensor"}
"""The words of PARALLEL that mean the number of ranks which have the same tokens."""
VOCABULARY = {"vocab", "vocabulary"}
ALIGNED = 64
"""Sizes that are multiples of this have products on tensor cores without padding."""
BUCKET_MB = 25
"""The size of a bucket that DistributedDataParallel has by itself."""
BF16 = ("bf16", "bfloat16")
IN_BF16 = {"fp32": "bf16", "f32": "bf16", "float32": "bfloat16"}
"""The name of bf16 in the place of one of FP32."""
EITHER = {"recompute", "recomputation", "checkpointing", "compile", "compiled"}
"""Words of switches that are tried without and with."""
FASTER = {"bf16", "amp", "tf32", "fused", "foreach", "flash", "sdpa", "overlap", "prefetch"}
SLOWER = {"offload", "offloading", "deterministic", "anomaly", "debug", "sync", "synchronize", "eager", "unfused"}


@dataclass(frozen=True, slots=True)
class Worth:
    text: str
    """The text to be added to the arguments of the run; of equal options the last one counts."""
    work: float = 1.0
    """The factor by which a step has more work."""
    without: tuple[str, ...] = ()
    """The words that are left out of the arguments of the run."""
    work_by_flops: bool = False
    """True if the floating-point operations of a step say how much more work it has."""
    kind: str = ""
    """Changes of one kind exclude each other."""
    copies: float = 1.0
    """The factor by which each token is on more ranks: those of tensor parallelism have the same ones."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A call of ``add_argument``."""

    flags: Sequence[str]
    flag: str
    words: frozenset[str]
    number: bool
    had: str | None
    """The text of the run's value; None: not known."""
    choices: Sequence[object]
    action: str

    @property
    def count(self) -> int:
        """The value, if it is a whole number above 0; else 0."""
        had = self.had
        return int(had) if self.number and had is not None and had.isascii() and had.isdigit() else 0


def worth_trying(script: Path, given: Sequence[str], ranks: int = 1, of_server: int = 1) -> list[Worth]:
    """The arguments to try; empty if the script has none of that kind. `ranks`: those of the run; `of_server`: the most
    on one server. Raises ValueError if the script cannot be read.
    """
    try:
        tree = ast.parse(read_text(script, MOST_SOURCE_NBYTES, ValueError))
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"{script}: no Python that can be read: {error}") from None
    options = [one for call in ast.walk(tree) if isinstance(call, ast.Call) for one in _option(call, given)]
    found = [one for option in options for one in _of(option, given, ranks, of_server)]
    return [*found, *_larger_micro_batches(options)]


def _option(call: ast.Call, given: Sequence[str]) -> Iterator[_Option]:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
        return
    flags = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    flag = next((one for one in flags if one.startswith("--")), None)
    if flag is None:
        return
    named = {one.arg: one.value for one in call.keywords}
    kind, action, choices = named.get("type"), named.get("action"), named.get("choices")
    default = named.get("default")
    had = _value(flags, given)
    if had is None and isinstance(default, ast.Constant):
        had = str(default.value)
    listed = choices.elts if isinstance(choices, ast.List | ast.Tuple) else []
    yield _Option(
        flags,
        flag,
        frozenset(re.split(r"[-_.]", flag.strip("-").lower())),
        isinstance(kind, ast.Name) and kind.id in ("int", "float"),
        had,
        [one.value for one in listed if isinstance(one, ast.Constant)],
        str(action.value) if isinstance(action, ast.Constant) else getattr(action, "attr", getattr(action, "id", "")),
    )


def _of(one: _Option, given: Sequence[str], ranks: int, of_server: int) -> Iterator[Worth]:
    flag, words, count = one.flag, one.words, one.count
    if count and ((words & BATCH and not words & NO_BATCH) or words & ACCUMULATION):
        yield from _twice_and_half(flag, count, BY_WORK)
    elif count and words & PARTS:
        yield from _twice_and_half(flag, count, flag)
    elif count and words & PARALLEL:
        others = sorted({1, count // 2, 2 * count, of_server} - {0, count})
        fitting = [other for other in others if other <= ranks and ranks % other == 0]
        same = bool(words & OF_TENSORS)
        yield from (
            Worth(f"{flag} {other}", kind=flag, work_by_flops=True, copies=other / count if same else 1.0)
            for other in fitting
        )
    elif count and words & VOCABULARY and count % ALIGNED:
        yield Worth(f"{flag} {-(-count // ALIGNED) * ALIGNED}", kind=flag)
    elif one.number and "bucket" in words and one.had is not None and one.had != str(BUCKET_MB):
        yield Worth(f"{flag} {BUCKET_MB}", kind="buckets")
    elif one.choices:
        yield from (Worth(f"{flag} {to}", kind="type") for to in BF16 if to in one.choices and one.had not in BF16)
    elif one.had in IN_BF16:
        yield Worth(f"{flag} {IN_BF16[one.had]}", kind="type")
    yield from _switched(one, given)


def _switched(one: _Option, given: Sequence[str]) -> Iterator[Worth]:
    """Yields the other position of a switch whose name says that it makes a step shorter or longer."""
    used = tuple(flag for flag in one.flags if flag in given)
    if one.action == "store_true":
        if used and one.words & (EITHER | SLOWER):
            yield Worth(f"without {used[0]}", without=used)
        elif not used and one.words & (EITHER | FASTER) and not one.words & SLOWER:
            yield Worth(one.flag)
    elif one.action == "BooleanOptionalAction" and one.words & (EITHER | FASTER | SLOWER):
        no = f"--no-{one.flag[2:]}"
        on = one.had == "True" or bool(used)
        if no in given:
            on = False
        if on and one.words & (EITHER | SLOWER):
            yield Worth(no)
        elif not on and one.words & (EITHER | FASTER) and not one.words & SLOWER:
            yield Worth(one.flag)


def _larger_micro_batches(options: Sequence[_Option]) -> Iterator[Worth]:
    """Yields fewer and larger micro batches: a step has the same work, and fewer launches."""
    batch = next((one for one in options if one.count and one.words & BATCH and not one.words & NO_BATCH), None)
    times = next((one for one in options if one.count and one.words & ACCUMULATION), None)
    if batch is not None and times is not None and times.count % 2 == 0:
        yield Worth(f"{batch.flag} {2 * batch.count} {times.flag} {times.count // 2}", kind=BY_WORK)


def _twice_and_half(flag: str, had: int, kind: str) -> Iterator[Worth]:
    yield Worth(f"{flag} {2 * had}", 2.0 if kind == BY_WORK else 1.0, kind=kind)
    if had % 2 == 0:
        yield Worth(f"{flag} {had // 2}", 0.5 if kind == BY_WORK else 1.0, kind=kind)


def _value(flags: Sequence[str], given: Sequence[str]) -> str | None:
    """The value of the option that was given last."""
    found = None
    for number, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name in flags:
            found = value if equals else next(iter(given[number + 1 :]), None)
    return found
