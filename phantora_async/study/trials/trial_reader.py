"""Makes trials from a study: from the settings that all share, and those that one of them chooses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emu.contract.stated_values import Number, ValueProblem, evaluate
from formats.nearest import meant_or_known
from formats.toml import FileTable
from formats.values import shown
from phantora_async.budget import OPTIONS as BUDGETS
from phantora_async.budget import Limits
from phantora_async.errors import UsageError
from phantora_async.gate.job_file import OWN, STEPS_FOR_TIME, UNFOLDED, program_of
from phantora_async.options import OPTIONS, RunOptions
from phantora_async.study.trials.trial import REPLAYED, Trial, Value, identifier, name_of


class TrialReader:
    """Makes trials; the settings that they share are read once."""

    def __init__(self, folder: Path, top: FileTable, shared: FileTable) -> None:
        self._folder = folder
        self._top = top
        self._shared = shared
        self._values = shared.values()
        self._only = top.texts("only", [])
        self._tokens = top.value("tokens_per_step") if "tokens_per_step" in top else None
        for key in self._values:
            self._check_key(shared, key)
        limits = {key: self._values.pop(key) for key in BUDGETS if key in self._values}
        try:
            self.limits = Limits.of({key: _as_text(value) for key, value in limits.items()})
        except UsageError as error:
            raise shared.error(error.message.partition(":")[0], error.message.partition(": ")[2]) from None

    def _check_key(self, table: FileTable, key: str) -> None:
        if key in OWN:
            raise table.error(key, "not for a sweep: it has its own")
        if (
            key.startswith(("-", "$"))
            or key.endswith("=")
            or key in OPTIONS
            or key in (*REPLAYED, "script", "arguments")
        ):
            return
        names = ["script", "arguments", *(name for name in OPTIONS if name not in OWN), *REPLAYED]
        likely = meant_or_known(key, names)
        raise table.error(key, f"unknown key; {likely} (the script's own: --ARGUMENT, ARGUMENT=, $VARIABLE)")

    def trial(self, table: FileTable, chosen: Mapping[str, Any]) -> Trial | None:
        """The trial with these settings; None if the study excludes it."""
        for key, value in chosen.items():
            self._check_key(table, key)
            if key in BUDGETS:
                raise table.error(key, "a limit is one of all trials: it belongs to [run]")
            if not isinstance(value, str | int | float | list):
                raise table.error(key, f"expected a text, a number, true, false or a list, found {shown(value)}")
        values = {**self._values, **chosen}
        try:
            options, environment, replayed = self._parts(table, values)
        except UsageError as error:
            key, _, fault = error.message.partition(": ")
            place = table if key in chosen else self._shared
            raise (place.error(key, fault) if key in values else error) from None
        numbers = _numbers(values, options)
        if not all(self._holds(text, numbers) for text in self._only):
            return None
        tokens = None if self._tokens is None else self._evaluated("tokens_per_step", str(self._tokens), numbers)
        if tokens is not None and not 0 < tokens < 1e15:
            raise self._top.error("tokens_per_step", f"{tokens:g} for {name_of(chosen)}: expected a number above 0")
        return Trial(name_of(chosen), chosen, options, environment, replayed, tokens, may_fold="fold" not in values)

    def _holds(self, text: str, numbers: Mapping[str, Number]) -> bool:
        return bool(self._evaluated("only", text, numbers))

    def _evaluated(self, key: str, text: str, numbers: Mapping[str, Number]) -> float:
        try:
            return float(evaluate(text, numbers))
        except ValueProblem as error:
            raise self._top.error(key, f"{text!r}: {error}") from None

    def _parts(
        self, table: FileTable, values: Mapping[str, Value]
    ) -> tuple[RunOptions, dict[str, str], dict[str, tuple[str, ...]]]:
        own = {key: value for key, value in values.items() if key in OPTIONS and value != ""}
        program = {key: values[key] for key in ("script", "arguments") if key in values}
        script, given, named = program_of(self._folder, table, own | program)
        if named.get("fold") == UNFOLDED:
            del named["fold"]
        if isinstance(given, str) or not all(isinstance(one, str) for one in given):
            raise UsageError(f"arguments: expected a list of texts, found {shown(given)}")
        arguments = list(given)
        environment = {}
        for key, value in values.items():
            if key.startswith("$"):
                environment[key[1:]] = _text(key, value)
            elif key.endswith("="):
                arguments.append(f"{key}{_text(key, value)}")
            elif key.startswith("-") and value is not False:
                arguments += [key] if value is True else [key, _text(key, value)]
        if "steps" not in named and "until" not in named:
            named["steps"] = STEPS_FOR_TIME
        for key in ("kernel_times", "fault"):
            if isinstance(named.get(key), str):
                named[key] = _texts(key, named[key])
        options = RunOptions(script, arguments, show_ranks="none", progress=False, **named).checked()
        return options, environment, {key: _texts(key, values[key]) for key in REPLAYED if key in values}


def _numbers(values: Mapping[str, Value], options: RunOptions) -> dict[str, Number]:
    """The numbers that expressions may use, by name."""
    found: dict[str, Number] = {}
    if options.nnodes is not None and options.nproc_per_node is not None:
        found["world_size"] = options.nnodes * options.nproc_per_node
    found |= {identifier(key): value for key, value in values.items() if isinstance(value, bool | int | float)}
    return found


def _text(key: str, value: Value) -> str:
    if isinstance(value, list):
        raise UsageError(f"{key}: expected a text or a number, found {shown(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(key: str, value: Value) -> tuple[str, ...]:
    """The value as a list of texts. A text has blanks between them, a list of faults commas."""
    if isinstance(value, str):
        return tuple(one.strip() for one in (value.split(",") if key == "fault" else value.split()) if one.strip())
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise UsageError(f"{key}: expected texts, found {shown(value)}")


def _as_text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
