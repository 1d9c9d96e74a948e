"""Reads the options for values that nobody computes: the policies of `--moe`, `--data-shapes` and `--lengths`, the time
that loading takes, the values of `--value`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from emu.contract import stated_values
from emu.contract.policies import length_policy, loading_policy, routing_policy, shape_policy
from emu.contract.policies.length_policy import LengthPolicy
from emu.contract.policies.loading_policy import LoadingPolicy
from emu.contract.policies.routing_policy import RoutingPolicy
from emu.contract.policies.shape_policy import ShapePolicy
from emu.contract.stated_values import StatedValue
from formats.files import MOST_DATA_NBYTES, MOST_SOURCE_NBYTES, read_bytes
from formats.nearest import meant
from phantora_async.errors import UsageError

_Policy = TypeVar("_Policy")


def routing_of(text: str) -> RoutingPolicy:
    return _policy("--moe", text, routing_policy.KINDS, routing_policy.parse, routing_policy.FORMS)


def shapes_of(text: str) -> ShapePolicy:
    return _policy("--data-shapes", text, shape_policy.KINDS, shape_policy.parse, shape_policy.FORMS)


def lengths_of(text: str) -> LengthPolicy:
    return _policy("--lengths", text, length_policy.KINDS, length_policy.parse, length_policy.FORMS)


def _policy(option: str, text: str, kinds: Sequence[str], parse: Callable[[str], _Policy], forms: str) -> _Policy:
    """Reads a policy. The last of `kinds` is the one that reads a trace's file. Its path becomes absolute, because the
    ranks' forker reads it again.
    """
    kind, _, rest = text.partition(":")
    trace = kinds[-1]
    if kind == trace and rest:
        text = f"{kind}:{Path(rest).absolute()}"
    try:
        if kind == trace and rest:
            read_bytes(Path(rest), MOST_DATA_NBYTES)  # it is no pipe, and of a size that can be read
        return parse(text)
    except OSError as error:
        raise UsageError(f"{option} {text}: {error.strerror or error}", "name a file that can be read") from None
    except ValueError as error:
        likely = meant(kind, kinds) if kind not in kinds else ""
        raise UsageError(f"{option} {text}: {error}", likely or _hint(option, forms, error)) from None


def _hint(option: str, forms: str, error: Exception) -> str:
    return "" if forms in str(error) else f"forms: {option} {forms}"


def loading_of(text: str) -> LoadingPolicy:
    try:
        return loading_policy.parse(text)
    except ValueError as error:
        raise UsageError(str(error), meant(text, loading_policy.WORDS)) from None


def stated_value_of(text: str, script: str) -> StatedValue:
    """Reads a value of `--value`. `script`: the file that a line without a file belongs to; "" if there is none."""
    try:
        value = stated_values.parse(text)
    except stated_values.ValueProblem as problem:
        raise UsageError(f"--value {text}: {problem}", _hint("--value", stated_values.FORMS, problem)) from None
    if not value.file and not script:
        raise UsageError(f"--value {text}: which file?", "name it: --value FILE:LINE=EXPRESSION")
    value = value.for_script(str(Path(script).absolute()))
    for path in (Path(value.file), Path(script).parent / value.file):
        if path.is_file():
            try:
                lines = read_bytes(path, MOST_SOURCE_NBYTES).count(b"\n") + 1
            except OSError as error:
                raise UsageError(f"--value {text}: {value.file}: {error.strerror}") from None
            if value.line > lines:
                raise UsageError(f"--value {text}: {value.file} has {lines} lines")
            break
    return value
