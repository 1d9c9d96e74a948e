"""Values that nobody computes: the routing policy of `--moe`, what loading data takes, and what `--value` states."""

from __future__ import annotations

from pathlib import Path

from emu.contract import loading_policy, routing_policy, stated_values
from emu.contract.loading_policy import LoadingPolicy
from emu.contract.routing_policy import RoutingPolicy
from emu.contract.stated_values import StatedValue
from formats.files import MOST_DATA_NBYTES, MOST_SOURCE_NBYTES, read_bytes
from phantora_async.errors import UsageError


def routing_of(text: str) -> RoutingPolicy:
    """A trace's path becomes absolute: the ranks' forker reads it again."""
    kind, _, rest = text.partition(":")
    if kind == routing_policy.TRACE and rest:
        text = f"{kind}:{Path(rest).absolute()}"
    try:
        if kind == routing_policy.TRACE and rest:
            read_bytes(Path(rest), MOST_DATA_NBYTES)  # it is no pipe, and of a size that can be read
        return routing_policy.parse(text)
    except OSError as error:
        raise UsageError(f"--moe {text}: {error.strerror or error}", "name a file that can be read") from None
    except ValueError as error:
        raise UsageError(f"--moe {text}: {error}", f"forms: --moe {routing_policy.FORMS}") from None


def loading_of(text: str) -> LoadingPolicy:
    try:
        return loading_policy.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def stated_value_of(text: str, script: str) -> StatedValue:
    """`script`: the file that a line without a file belongs to; "" if there is none."""
    try:
        value = stated_values.parse(text)
    except stated_values.ValueProblem as problem:
        raise UsageError(f"--value {text}: {problem}", f"forms: --value {stated_values.FORMS}") from None
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
