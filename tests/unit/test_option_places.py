"""An option of `run` is declared once and resolved once, and nothing between hands it on by its name."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

from emu.contract import job
from phantora_async import run_spec
from phantora_async.config import Config, resolve
from phantora_async.options import OPTIONS, RunOptions
from phantora_async.recording.recording import Setup

ROOT = Path(__file__).parents[2]
VIEWS = [
    kind
    for module in (job, run_spec)
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, job.SharedView) and kind.__module__ == module.__name__
]
DECLARING = [RunOptions, Config, Setup, *VIEWS]
RESOLVED = {
    "fault": ["faults"],
    "fold": ["folding"],
    "host": ["host_mode"],
    "max_allocated": ["most_allocated_nbytes"],
    "max_memory": ["most_reserved_nbytes"],
    "max_step_time": ["most_step_ns"],
    "moe": ["routing"],
    "nnodes": ["servers"],
    "real_steps": ["all_steps"],
    "replicas": ["share_timelines", "each_if_they_differ"],
    "shared_weights": ["share_weights"],
    "show_ranks": ["shown_ranks"],
    "stall_timeout": ["stall_timeout_s"],
    "until": ["until_ns"],
    "value": ["values"],
    "write": ["writable"],
}
"""The names of resolved values where they differ from the option's."""
HOLDERS = ("given", "options", "config", "spec", "job")
"""The names under which modules hold the options, or a view of them."""
OTHER_JOBS = {"phantora_async/gate/job_file.py", "phantora_async/spending/job.py"}
"""Modules that have another class of this name."""
DECLARED = ["option", "resolution", "view"]
FURTHER = {
    "faults": 1,  # a recording keeps their texts
    "kernel_times": 1,  # the session adds those that are measured during the run
    "run_dir": 3,  # it is claimed, and its path is in three messages
    "write": 1,  # the folder of compiled code is writable, too
}
"""Files beyond the three in which an option may stand, with the reason. A change that needs more gives its own."""
MOST_FILES = 435
"""The files in which options are declared, handed on or read, summed over the options. It may rise with a reason. The
last: whether a run is known by content follows from options that it leaves out or compares, and is asked where runs
begin, are recorded and kept; lengths of responses are drawn in ranks, reported, and keep ranks from being folded, a
server counts its ranks, a search for a trial's memory records nothing, published runs name interpreters, a launcher
asks a kept interpreter, which is that of the run; a run of a session says whether it shares its start; a launcher's
servers have copies of the scripts beside its interpreter.
"""


@dataclasses.dataclass
class Places:
    """The files that name an option."""

    handed_on: set[str] = dataclasses.field(default_factory=set)
    """Those that declare it, or give its value to the constructor of a view."""
    read: set[str] = dataclasses.field(default_factory=set)


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _names(source: str) -> Iterator[tuple[str, bool]]:
    """The fields of options and views that a module names; true: it declares them or hands them on."""
    made = {kind.__name__ for kind in DECLARING if kind is not RunOptions} | {"view"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _last(node.func) in made:
            yield from ((keyword.arg, True) for keyword in node.keywords if keyword.arg)
        elif isinstance(node, ast.ClassDef) and node.name in {kind.__name__ for kind in DECLARING}:
            yield from ((_last(one.target), True) for one in node.body if isinstance(one, ast.AnnAssign))
        elif isinstance(node, ast.Attribute) and _last(node.value).strip("_") in HOLDERS:
            yield node.attr, False


@functools.cache
def places() -> dict[str, Places]:
    options = {one: name for name in OPTIONS for one in (name, *RESOLVED.get(name, ()))}
    found = {name: Places() for name in OPTIONS}
    for room in ("emu", "phantora_async"):
        for path in (ROOT / room).rglob("*.py"):
            module = str(path.relative_to(ROOT))
            for one, handed_on in _names(path.read_text()) if module not in OTHER_JOBS else ():
                if one in options:
                    where = found[options[one]]
                    (where.handed_on if handed_on else where.read).add(module)
    return found


def test_names_of_resolved_values_are_fields() -> None:
    fields = {one.name for one in dataclasses.fields(Config)}
    assert {name for names in RESOLVED.values() for name in names} <= fields


def test_an_option_stands_where_it_is_declared_where_it_is_resolved_and_in_one_view() -> None:
    found = {name: sorted(one.handed_on) for name, one in places().items()}
    assert {name: files for name, files in found.items() if len(files) > len(DECLARED) + FURTHER.get(name, 0)} == {}


def test_no_more_files_name_options() -> None:
    assert sum(len(one.handed_on | one.read) for one in places().values()) <= MOST_FILES


def test_a_value_has_one_declaration() -> None:
    names = [name for kind in Config.__mro__ for name in inspect.get_annotations(kind)]
    assert sorted(names) == sorted(one.name for one in dataclasses.fields(Config))


def test_every_value_of_a_run_is_resolved() -> None:
    """Defaults of views are for replays, which have no options."""
    (made,) = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(resolve)))
        if isinstance(node, ast.Call) and _last(node.func) == "Config"
    ]
    assert [keyword.arg for keyword in made.keywords if keyword.arg is None] == []
    assert {keyword.arg for keyword in made.keywords} == {one.name for one in dataclasses.fields(Config)}
