"""How messages write ranks, and habits of messages, help texts and comments that a program can check."""

from __future__ import annotations

import ast
import importlib
import re
from argparse import SUPPRESS
from collections.abc import Iterator
from pathlib import Path

import pytest

from phantora_async.cli import COMMANDS, Command, Parser
from phantora_async.wording import compact, named, size

ROOT = Path(__file__).parents[2]
ROOMS = ("phantora_async", "emu", "netsim", "profiles")


def test_numbers_of_ranks_read_well() -> None:
    assert compact([3, 1, 2, 7]) == "1-3,7"
    assert compact(range(0, 64, 8)) == "0-56:8"
    assert compact([0, 8]) == "0,8"
    assert named([5]) == "rank 5"
    assert named(range(4)) == "ranks 0-3"
    assert named([*range(3), *range(10, 41, 2)]) == "ranks 0-2,10,12,14,16,18,20,22,24,26,28,30,32,34,...,40"


def test_bytes_are_told_in_a_unit_of_which_there_is_one() -> None:
    assert size(30.51 * 2**30) == "30.51 GiB"
    assert size(20 << 20) == "20.0 MiB"
    assert size(4096) == "4.0 KiB"
    assert size(512) == "512 B"


def test_comments_say_what_a_thing_is() -> None:
    """Not that it is like its neighbour: a reader who comes by a search has not read that one."""
    leaning = re.compile(r'("""|/\* ?)(The same|Same|Like)\b[^\n]*')
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for room in (*ROOMS, "tests")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".c", ".h")
        for match in leaning.finditer(path.read_text())
    ]
    assert found == []


def test_messages_of_errors_are_no_sentences_with_a_full_stop() -> None:
    """They stand behind `error:` and `hint:`, and are followed by details."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {end}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for call in _raised(ast.parse(path.read_text()))
        for end in map(_end_of, call.args)
        if end.endswith((".", "!")) and not end.endswith("...")
    ]
    assert found == []


def _raised(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield node.exc


def _end_of(message: ast.expr) -> str:
    """Returns the last piece of a text that is written here; "" if it is none."""
    if isinstance(message, ast.JoinedStr) and message.values:
        message = message.values[-1]
    return str(message.value).rstrip() if isinstance(message, ast.Constant) and isinstance(message.value, str) else ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_of_options_is_one_phrase(command: Command) -> None:
    """It begins with a small letter or with a name in capitals, and has no full stop."""
    made = Parser(prog=command.name)
    importlib.import_module(command.module).add_arguments(made)
    for action in made._actions:
        text = action.help
        if text and text != SUPPRESS:
            assert not text.endswith("."), text
            assert "  " not in text, text
            assert re.match(r"[a-z%]|[A-Z]{2}|Python\b", text), text
