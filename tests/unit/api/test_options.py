"""One list of options: the command line's flags and the Python API's keywords come to the same run."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import phantora_async
from phantora_async.cli import Parser
from phantora_async.commands import run as command
from phantora_async.errors import UsageError
from phantora_async.options import OPTIONS, Kind, Option, RunOptions

ROOT = Path(__file__).parents[3]
EXAMPLES: dict[Kind, Any] = {
    Kind.COUNT: 3,
    Kind.SECONDS: 2.5,
    Kind.TEXT: "text",
    Kind.PATH: "some/path",
    Kind.TEXTS: ("one", "two"),
    Kind.PORT: 8080,
}


def example(name: str, option: Option) -> Any:
    if option.kind is Kind.SWITCH:
        return not default(name)
    return option.choices[-1] if option.choices else EXAMPLES[option.kind]


def default(name: str) -> Any:
    return {field.name: field.default for field in dataclasses.fields(RunOptions)}[name]


def parsed(*line: str) -> RunOptions:
    parser = Parser()
    command.add_arguments(parser)
    return command.options_of(parser.parse_args(list(line))).checked()


def as_words(flag: str, option: Option, value: Any) -> list[str]:
    if option.kind is Kind.SWITCH:
        return [flag]
    values = value if option.kind is Kind.TEXTS else [value]
    return [word for one in values for word in (flag, str(one))]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_flag_and_a_keyword_say_the_same(name: str) -> None:
    option = OPTIONS[name]
    value = example(name, option)
    assert value != default(name)
    expected = RunOptions("train.py", ["-n", "1"], **{name: value}).checked()
    assert expected.given() == {name: value}
    for flag in option.flags:
        assert parsed(*as_words(flag, option, value), "train.py", "-n", "1") == expected


def test_nothing_given_is_the_same_on_both_sides() -> None:
    assert parsed("train.py") == RunOptions("train.py").checked()
    assert RunOptions("train.py").checked().given() == {}


def test_the_command_line_has_no_options_of_its_own() -> None:
    parser = Parser()
    command.add_arguments(parser)
    own = {"remarks", "verbose"}  # what the command makes of torchrun's options; how much of the report it prints
    assert {action.dest for action in parser._actions} == {*OPTIONS, "script", "arguments", "help"} | own


def test_run_takes_the_options_as_keywords() -> None:
    names = list(inspect.signature(phantora_async.run).parameters)
    assert names == ["script", "arguments", *(name for name, option in OPTIONS.items() if not option.hidden)]
    with pytest.raises(TypeError, match="worldsize"):
        phantora_async.run("train.py", worldsize=3)  # type: ignore[call-arg]


def test_the_documents_list_every_keyword() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\S+)` \|", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert rows == [(name, option.flags[0]) for name, option in OPTIONS.items() if not option.hidden]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": "16"}, "world_size: expected a whole number, found '16'"),
        ({"world_size": True}, "world_size: expected a whole number, found True"),
        ({"preload": "torchvision"}, "preload: expected a list of texts, found 'torchvision'"),
        ({"host": "slow"}, "host: expected one of modelled, measured, none, found 'slow'"),
        ({"auto_preload": 1}, "auto_preload: expected True or False, found 1"),
        ({"trace": 3}, "trace: expected a path, found 3"),
        ({"arguments": ["--lr", 0.1]}, "arguments: expected a list of texts, found ['--lr', 0.1]"),
        ({"until": "x" * 100}, None),
        ({"loop_turns": None}, "loop_turns: expected a whole number, found None"),
        ({"script": 7}, "script: expected a path, found 7"),
    ],
)
def test_values_of_another_type_are_refused(options: dict[str, Any], message: str | None) -> None:
    given = RunOptions(**{"script": "train.py", **options})
    if message is None:
        assert given.checked().until == "x" * 100
        return
    with pytest.raises(UsageError, match=re.escape(message)):
        given.checked()


def test_paths_may_be_paths() -> None:
    options = RunOptions(Path("a") / "train.py", cluster=Path("mine.toml"), preload=["x"]).checked()
    assert (options.script, options.cluster, options.preload) == ("a/train.py", "mine.toml", ("x",))


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, typing; before = {*sys.modules}; import phantora_async; print({*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ast.literal_eval(done.stdout) <= {"phantora_async", "__future__"}


def test_the_public_names_exist() -> None:
    for name in phantora_async.__all__:
        assert getattr(phantora_async, name).__doc__, name
    assert set(phantora_async.__all__) <= set(dir(phantora_async))
    with pytest.raises(AttributeError, match="no attribute 'fly'"):
        phantora_async.fly  # noqa: B018
