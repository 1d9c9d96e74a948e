"""The table of a forker's preparation: each step has its reason, and finds what it needs."""

from __future__ import annotations

import ast
import inspect
import textwrap

from emu.start.prepare import IMPORT_STEPS, STEPS, Preparation


def _attributes(function: object) -> tuple[set[str], set[str]]:
    """The attributes of `self` that a method reads, and those that it sets."""
    read: set[str] = set()
    made: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):  # type: ignore[arg-type]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            (made if isinstance(node.ctx, ast.Store) else read).add(node.attr)
    return read, made


def test_each_step_has_one_place_and_a_reason() -> None:
    methods = {name for name, _ in inspect.getmembers(Preparation, inspect.isfunction) if not name.startswith("_")}
    steps = IMPORT_STEPS + STEPS
    assert sorted(step.do.__name__ for step in steps) == sorted(methods)
    assert [step.do.__name__ for step in steps if not step.why.endswith(".")] == []


def test_a_step_reads_only_what_earlier_steps_have_made() -> None:
    """The imports do not read the job: an interpreter that is kept serves other jobs, too."""
    there: set[str] = set()
    for step in IMPORT_STEPS + STEPS:
        if step is STEPS[0]:
            there |= {"job"}
        read, made = _attributes(step.do)
        assert read - made <= there, step.do.__name__
        assert made & there == set(), f"{step.do.__name__} makes something a second time"
        there |= made
    assert there == set(Preparation.__annotations__)
