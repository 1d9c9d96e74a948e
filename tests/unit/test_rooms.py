"""The import rules, package by package: data goes one way, and each folder says what it is for."""

from __future__ import annotations

import ast
import functools
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("formats", "emu", "netsim", "profiles", "phantora_async")
MAY_IMPORT = {
    # Readers of formats that more than one room reads: of their own each would have a copy.
    "formats": [],
    # Everything inside an emulated server.
    "emu": [],
    "emu.contract.definitions": ["formats.c_lists"],
    "emu.contract.policies": [],
    "emu.contract": ["formats.c_lists", "emu.contract.policies"],
    "emu.private": ["formats.c_lists"],
    "emu.interpreter.hook_library": ["emu.contract"],
    "emu.interpreter": ["formats.ttir", "emu.contract", "emu.interpreter.hook_library", "emu.private"],
    "emu.clock": ["emu.interpreter", "emu.private"],
    "emu.folding": ["emu.contract", "emu.interpreter.hook_library", "emu.interpreter.code_owner", "emu.private"],
    "emu.control.random_numbers": [
        "emu.interpreter",
        "emu.interpreter.hook_library",
        "emu.private",
        "emu.control.computed_op",
        "emu.control.control_tensors",
        "emu.control.host_views",
        "emu.control.references",
    ],
    "emu.reads": ["emu.contract", "emu.interpreter", "emu.interpreter.hook_library", "emu.private"],
    "emu.control.data_sizes": [
        "emu.contract.policies",
        "emu.interpreter",
        "emu.interpreter.hook_library",
        "emu.private",
        "emu.control.computed_op",
        "emu.control.control_tensors",
        "emu.control.device_ops",
        "emu.control.host_reads",
        "emu.control.host_views",
        "emu.control.read_warnings",
    ],
    "emu.control.generation": [
        "emu.contract",
        "emu.contract.policies",
        "emu.interpreter.hook_library",
        "emu.private",
        "emu.control.computed_op",
        "emu.control.control_tensors",
        "emu.control.host_views",
    ],
    "emu.control.routing": [
        "emu.contract.policies",
        "emu.interpreter",
        "emu.interpreter.hook_library",
        "emu.private",
        "emu.control.computed_op",
        "emu.control.control_tensors",
        "emu.control.host_views",
    ],
    "emu.control.sparse": [
        "emu.private",
        "emu.control.computed_op",
        "emu.control.control_tensors",
        "emu.control.data_sizes",
        "emu.control.host_reads",
        "emu.control.host_views",
    ],
    "emu.control.extensions": [
        "emu.private",
        "emu.control.computed_op",
        "emu.control.control_tensors",
        "emu.control.host_views",
        "emu.control.routing.groups",
    ],
    "emu.control": [
        "emu.contract.policies",
        "emu.interpreter",
        "emu.interpreter.hook_library",
        "emu.reads",
        "emu.private",
        "emu.control.data_sizes",
        "emu.control.extensions",
        "emu.control.generation",
        "emu.control.random_numbers",
        "emu.control.routing",
        "emu.control.sparse",
    ],
    "emu.compiler": ["emu.contract", "emu.interpreter", "emu.interpreter.hook_library", "emu.private"],
    "emu.hostbench": ["emu.interpreter", "emu.interpreter.hook_library"],
    "emu.real_run": ["emu.contract", "emu.start.early_end", "emu.start.program", "emu.start.script"],
    "emu.gpubench": ["emu.contract", "emu.private"],
    "emu.servers": ["emu.contract", "emu.smi"],
    "emu.smi": [],
    "emu.keeping": ["emu.contract"],
    "emu.weights": ["emu.interpreter", "emu.interpreter.hook_library", "emu.keeping", "emu.private"],
    "emu.unread": ["emu.interpreter.hook_library"],
    "emu.preload": ["emu.contract", "emu.private"],
    "emu.loading": [
        "emu.clock",
        "emu.contract",
        "emu.contract.policies",
        "emu.interpreter",
        "emu.interpreter.hook_library",
        "emu.private",
    ],
    "emu.sharding": ["emu.interpreter", "emu.interpreter.hook_library", "emu.keeping", "emu.private"],
    "emu.compiled": [
        "formats.ttir",
        "emu.control.control_tensors",
        "emu.control.host_views",
        "emu.interpreter",
        "emu.interpreter.hook_library",
    ],
    "emu.start": [
        "emu.contract.definitions",
        "emu.contract",
        "emu.contract.policies",
        "emu.interpreter",
        "emu.interpreter.hook_library",
        "emu.clock",
        "emu.compiled",
        "emu.control",
        "emu.compiler",
        "emu.keeping",
        "emu.loading",
        "emu.preload",
        "emu.private",
        "emu.reads",
        "emu.servers",
        "emu.sharding",
        "emu.smi",
        "emu.weights",
        "emu.folding",
        "emu.unread",
    ],
    # The network simulator.
    "netsim.native": ["netsim.errors"],
    "netsim.topology": ["formats", "netsim.errors", "netsim.fields", "netsim.units"],
    "netsim.simulation": ["netsim.errors", "netsim.units", "netsim.native", "netsim.topology"],
    "netsim.collectives": [
        "formats",
        "netsim.errors",
        "netsim.fields",
        "netsim.units",
        "netsim.simulation",
        "netsim.topology",
    ],
    "netsim": ["formats", "netsim.collectives", "netsim.simulation", "netsim.topology"],
    "netsim.tools": ["formats", "netsim", "netsim.collectives", "netsim.simulation", "netsim.topology"],
    "netsim.bench": ["netsim", "netsim.simulation", "netsim.topology"],
    # GPU and cluster descriptions, cost models.
    "profiles.kernel_names": [],
    "profiles.signature": ["formats.c_lists", "profiles.errors"],
    "profiles.descriptions": ["formats", "profiles.errors"],
    "profiles.sources": ["formats", "profiles.descriptions", "profiles.errors"],
    "profiles.triton": ["formats.ttir"],
    "profiles.models.products": [
        "profiles.models.power",
        "profiles.descriptions",
        "profiles.kernel_names",
        "profiles.signature",
        "profiles.models.machine",
    ],
    "profiles.models.kernels": [
        "profiles.descriptions",
        "profiles.kernel_names",
        "profiles.signature",
        "profiles.models.machine",
        "profiles.models.products",
    ],
    "profiles.models": [
        "formats.c_lists",
        "formats.ttir",
        "profiles.descriptions",
        "profiles.errors",
        "profiles.kernel_names",
        "profiles.signature",
        "profiles.triton",
        "profiles.models.kernels",
        "profiles.models.products",
    ],
    "profiles.timings": [
        "formats",
        "profiles.descriptions",
        "profiles.errors",
        "profiles.kernel_names",
        "profiles.models",
        "profiles.models.kernels",
        "profiles.models.products",
        "profiles.signature",
    ],
    "profiles": [
        "formats.c_lists",
        "profiles.descriptions",
        "profiles.kernel_names",
        "profiles.models",
        "profiles.signature",
        "profiles.timings",
    ],
    "profiles.tools": [
        "profiles",
        "profiles.descriptions",
        "profiles.models",
        "profiles.signature",
        "profiles.timings",
    ],
    # The product, from records to reports.
    "phantora_async.faults": [
        "formats",
        "emu.contract",
        "netsim",
        "profiles",
        "phantora_async.errors",
        "phantora_async.wording",
    ],
    # One table of figures, which every reader of a report uses.
    "phantora_async.figures": ["phantora_async.wording"],
    "phantora_async.over_time": ["netsim", "netsim.collectives", "phantora_async.figures"],
    "phantora_async.folding": [
        "emu.contract",
        "profiles",
        "profiles.signature",
        "phantora_async.errors",
        "phantora_async.wording",
        "phantora_async.ingest",
        "phantora_async.virtual_time",
    ],
    "phantora_async.virtual_time.native": [],
    "phantora_async.virtual_time": [
        "phantora_async.figures",
        "emu.contract",
        "phantora_async.errors",
        "phantora_async.over_time",
        "phantora_async.virtual_time.native",
        "phantora_async.faults",
    ],
    "phantora_async.ingest": [
        "emu.contract",
        "netsim.collectives",
        "profiles",
        "phantora_async.errors",
        "phantora_async.wording",
        "phantora_async.virtual_time",
    ],
    "phantora_async.liveness": [
        "emu.contract.definitions",
        "emu.contract",
        "phantora_async.wording",
        "phantora_async.ingest",
        "phantora_async.virtual_time",
    ],
    "phantora_async.diagnosis": [
        "emu.contract",
        "formats",
        "phantora_async.errors",
        "phantora_async.wording",
        "phantora_async.ingest",
        "phantora_async.virtual_time",
    ],
    "phantora_async.spending": ["phantora_async.figures", "profiles", "phantora_async.errors"],
    "phantora_async.report": [
        "phantora_async.figures",
        "formats",
        "emu.contract",
        "emu.contract.policies",
        "netsim",
        "netsim.collectives",
        "profiles",
        "phantora_async.run_spec",
        "phantora_async.spending",
        "phantora_async.wording",
        "phantora_async.ingest",
        "phantora_async.over_time",
        "phantora_async.virtual_time",
        "phantora_async.faults",
    ],
    "phantora_async.pages": [
        "phantora_async.figures",
        "phantora_async.entrance",
        "phantora_async.errors",
        "phantora_async.report",
        "phantora_async.wording",
    ],
    "phantora_async.trace": [
        "emu.contract",
        "netsim.collectives",
        "profiles",
        "phantora_async.errors",
        "phantora_async.run_spec",
        "phantora_async.trace_request",
        "phantora_async.wording",
        "phantora_async.ingest",
        "phantora_async.virtual_time",
    ],
    "phantora_async.reasons": [
        "phantora_async.figures",
        "profiles.models.clock",
        "emu.contract",
        "profiles",
        "profiles.timings",
        "phantora_async.over_time",
        "phantora_async.run_spec",
        "phantora_async.ingest",
        "phantora_async.virtual_time",
        "phantora_async.faults",
    ],
    "phantora_async.recording": [
        "formats",
        "emu.contract",
        "emu.contract.policies",
        "netsim",
        "profiles",
        "phantora_async.errors",
        "phantora_async.run_spec",
        "phantora_async.ingest",
        "phantora_async.virtual_time",
    ],
    "phantora_async.replaying": [
        "profiles.models.clock",
        "formats",
        "emu.contract",
        "netsim",
        "profiles",
        "phantora_async.errors",
        "phantora_async.run_spec",
        "phantora_async.coordinator",
        "phantora_async.ingest",
        "phantora_async.kernel_times",
        "phantora_async.over_time",
        "phantora_async.recording",
        "phantora_async.report",
        "phantora_async.virtual_time",
        "phantora_async.virtual_time.native",
        "phantora_async.faults",
        "phantora_async.wording",
        "phantora_async.version",
    ],
    "phantora_async.coordinator.ranks": [
        "emu.contract",
        "phantora_async.entrance",
        "phantora_async.errors",
        "phantora_async.ingest",
        "phantora_async.reasons",
        "phantora_async.recording",
        "phantora_async.virtual_time",
        "phantora_async.folding",
    ],
    "phantora_async.coordinator": [
        "emu.contract",
        "netsim",
        "netsim.collectives",
        "profiles",
        "phantora_async.entrance",
        "phantora_async.errors",
        "phantora_async.run_spec",
        "phantora_async.trace_request",
        "phantora_async.wording",
        "phantora_async.trace",
        "phantora_async.diagnosis",
        "phantora_async.ingest",
        "phantora_async.liveness",
        "phantora_async.over_time",
        "phantora_async.reasons",
        "phantora_async.recording",
        "phantora_async.report",
        "phantora_async.virtual_time",
        "phantora_async.coordinator.ranks",
        "phantora_async.faults",
        "phantora_async.folding",
    ],
    "phantora_async.remote": [
        "emu.contract",
        "phantora_async.entrance",
        "phantora_async.errors",
        "phantora_async.ingest",
        "phantora_async.liveness",
    ],
    "phantora_async.on_ray": ["phantora_async.errors", "phantora_async.remote.wire"],
    "phantora_async.known": [
        "emu.contract",
        "formats",
        "phantora_async.compile_cache",
        "phantora_async.config",
    ],
    "phantora_async.config": [
        "formats",
        "emu.contract",
        "emu.contract.policies",
        "netsim",
        "profiles",
        "phantora_async.budget",
        "phantora_async.compile_cache",
        "phantora_async.errors",
        "phantora_async.kernel_times",
        "phantora_async.options",
        "phantora_async.remote.wire",
        "phantora_async.run_dir",
        "phantora_async.run_spec",
        "phantora_async.trace_request",
        "phantora_async.virtual_time.policy",
        "phantora_async.wording",
        "phantora_async.faults",
        "phantora_async.folding",
    ],
    "phantora_async": [
        "phantora_async.figures",
        "formats",
        "emu.contract",
        "emu.contract.policies",
        "netsim",
        "profiles",
        "phantora_async.api",
        "phantora_async.comparison",
        "phantora_async.config",
        "phantora_async.coordinator",
        "phantora_async.gpu_profile",
        "phantora_async.known",
        "phantora_async.launch",
        "phantora_async.liveness",
        "phantora_async.gate",
        "phantora_async.pages",
        "phantora_async.remote",
        "phantora_async.study",
        "phantora_async.virtual_time",
        "phantora_async.virtual_time.policy",
        "phantora_async.faults",
    ],
    "phantora_async.launch": [
        "emu.contract",
        "phantora_async.compile_cache",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.liveness",
        "phantora_async.on_ray",
        "phantora_async.remote",
        "phantora_async.faults",
        "phantora_async.virtual_time",
        "phantora_async.wording",
    ],
    "phantora_async.comparison": [
        "phantora_async.figures",
        "phantora_async.errors",
        "phantora_async.options",
        "phantora_async.wording",
        "phantora_async.report",
    ],
    "phantora_async.api": [
        "phantora_async.figures",
        "formats",
        "emu.contract",
        "phantora_async.bench",
        "phantora_async.budget",
        "phantora_async.comparison",
        "phantora_async.compile_cache",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.known",
        "phantora_async.launch",
        "phantora_async.options",
        "phantora_async.recording",
        "phantora_async.replaying",
        "phantora_async.run_spec",
        "phantora_async.report",
        "phantora_async.session",
        "phantora_async.trace_request",
        "phantora_async.wording",
        "phantora_async.garbage",
        "phantora_async.version",
    ],
    "phantora_async.goodput": ["phantora_async.figures"],
    "phantora_async.gate": [
        "formats",
        "profiles",
        "phantora_async.api",
        "phantora_async.budget",
        "phantora_async.comparison",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.figures",
        "phantora_async.options",
        "phantora_async.wording",
    ],
    "phantora_async.study.trials": [
        "formats",
        "emu.contract",
        "profiles",
        "phantora_async.budget",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.figures",
        "phantora_async.gate",
        "phantora_async.options",
        "phantora_async.replaying",
        "phantora_async.spending",
        "phantora_async.wording",
    ],
    "phantora_async.study.outcome": [
        "formats",
        "profiles",
        "phantora_async.budget",
        "phantora_async.errors",
        "phantora_async.pages",
        "phantora_async.spending",
        "phantora_async.study.trials",
        "phantora_async.wording",
    ],
    "phantora_async.study": [
        "formats",
        "emu.contract",
        "profiles",
        "phantora_async.api",
        "phantora_async.budget",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.figures",
        "phantora_async.options",
        "phantora_async.recording",
        "phantora_async.replaying",
        "phantora_async.report",
        "phantora_async.spending",
        "phantora_async.study.outcome",
        "phantora_async.study.trials",
        "phantora_async.virtual_time",
        "phantora_async.wording",
    ],
    "phantora_async.validation": [
        "phantora_async.figures",
        "formats",
        "netsim.collectives",
        "netsim.tools",
        "profiles",
        "profiles.timings",
        "profiles.tools",
        "phantora_async.child_process",
        "phantora_async.errors",
        "phantora_async.wording",
    ],
    "phantora_async.host_profile": [
        "emu.contract",
        "profiles",
        "phantora_async.child_process",
        "phantora_async.errors",
    ],
    "phantora_async.gpu_profile": [
        "formats",
        "emu.contract",
        "profiles",
        "profiles.kernel_names",
        "profiles.signature",
        "profiles.timings",
        "phantora_async.child_process",
        "phantora_async.errors",
        "phantora_async.wording",
    ],
    "phantora_async.commands.profiling": [
        "formats",
        "profiles",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.gpu_profile",
        "phantora_async.host_profile",
        "phantora_async.local_gpus",
        "phantora_async.terminal",
        "phantora_async.wording",
    ],
    "phantora_async.commands": [
        "phantora_async.cli",
        "formats",
        "netsim",
        "netsim.collectives",
        "netsim.tools",
        "netsim.topology",
        "profiles",
        "profiles.sources",
        "phantora_async.api",
        "phantora_async.budget",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.gate",
        "phantora_async.goodput",
        "phantora_async.launch",
        "phantora_async.local_gpus",
        "phantora_async.options",
        "phantora_async.remote",
        "phantora_async.terminal",
        "phantora_async.wording",
        "phantora_async.report",
        "phantora_async.spending",
        "phantora_async.study",
        "phantora_async.study.outcome",
        "phantora_async.study.trials",
        "phantora_async.validation",
        "phantora_async.host_profile",
        "phantora_async.gpu_profile",
        "phantora_async.virtual_time",
        "phantora_async.bench",
        "phantora_async.pages",
        "phantora_async.commands.profiling",
        "phantora_async.doctor",
        "phantora_async.recording",
        "phantora_async.replaying",
    ],
    "phantora_async.doctor": [
        "emu.contract",
        "phantora_async.compile_cache",
        "phantora_async.config",
        "phantora_async.errors",
        "phantora_async.launch",
        "phantora_async.wording",
    ],
    "phantora_async.bench": [
        "formats",
        "emu.contract.definitions",
        "emu.contract",
        "phantora_async.child_process",
        "phantora_async.errors",
        "phantora_async.ingest",
        "phantora_async.liveness",
        "phantora_async.version",
    ],
}
"""Package -> what its modules may import besides each other: a package means the modules directly in it, a module means
this one alone. Each package stands below those that it imports."""
FROM_OTHER_ROOMS = {
    "phantora_async": ("emu.contract", "formats", "netsim", "profiles"),
    "emu": ("formats.c_lists", "formats.ttir"),
    "netsim": ("formats",),
    "profiles": ("formats",),
}
LINK = "emu.formats"
"""emu runs in other interpreters, where it finds nothing beside its own folder: `formats` is linked there."""
DOCSTRING_PARTS = ("Comes in:", "Goes out:", "May import:")
"""The parts of a package's docstring; its first paragraph says what lives there."""
SOURCES = (".py", ".c", ".h", ".def")


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def name_of(path: Path) -> str:
    """Returns the module's name: ``emu.start.rank`` for emu/start/rank.py, ``emu.start`` for emu/start/__init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for room in ROOMS for path in python_files(ROOT / room)}
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")
FOLDERS = sorted(
    {path.parent for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in SOURCES},
)


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def package_of(module: str) -> str:
    return module if module in PACKAGES else module.rpartition(".")[0]


def imports(module: str) -> Iterator[str]:
    """Yields the full names of what a module imports, wherever in its text: a module where it is one, else where the
    name is.
    """
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package_of(module).split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            base = base.removeprefix("emu.") if f"{base}.".startswith(f"{LINK}.") else base
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base


def room_of(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    assert package in MAY_IMPORT, f"{package} needs a line in MAY_IMPORT"
    allowed = {package, *MAY_IMPORT[package]}
    for module in (name for name in MODULES if package_of(name) == package):
        for imported in imports(module):
            if room_of(imported) in ROOMS:
                assert imported in allowed or package_of(imported) in allowed, f"{module} imports {imported}"


def test_the_table_s_names_exist() -> None:
    assert sorted(MAY_IMPORT) == PACKAGES
    assert [name for names in MAY_IMPORT.values() for name in names if name not in MODULES] == []


def test_rooms_import_one_way() -> None:
    for package, names in MAY_IMPORT.items():
        room = room_of(package)
        for name in names:
            assert room_of(name) == room or name.startswith(FROM_OTHER_ROOMS.get(room, ())), (package, name)


def test_packages_import_one_way() -> None:
    """Raises CycleError, which names the cycle."""
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()


def test_the_product_never_imports_torch() -> None:
    for module in MODULES:
        if room_of(module) == "phantora_async":
            assert "torch" not in {room_of(name) for name in imports(module)}, module


def test_the_product_needs_neither_laboratory_nor_tests() -> None:
    """A module of tests would not be in the wheel."""
    for module in MODULES:
        assert {"laboratory", "tests"}.isdisjoint(room_of(name) for name in imports(module)), module


def test_nobody_changes_the_class_of_an_object() -> None:
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [target.attr for target in targets if isinstance(target, ast.Attribute)]
            assert "__class__" not in names, f"{module}:{node.lineno}"  # type: ignore[attr-defined]


def test_emu_runs_in_another_interpreter() -> None:
    """It needs the standard library and torch (with Triton) only, and finds itself under another name."""
    allowed = {*sys.stdlib_module_names, "torch", "triton"}
    for path in python_files(ROOT / "emu"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {room_of(alias.name) for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert room_of(node.module or "") in allowed, path


def test_a_format_has_one_reader() -> None:
    assert [name for name in MODULES if "tomllib" in imports(name)] == ["formats.toml"]
    assert (ROOT / LINK.replace(".", "/")).resolve() == ROOT / "formats"
    for name in (name for name in MODULES if room_of(name) == "formats"):
        assert {room_of(imported) for imported in imports(name)} <= {*sys.stdlib_module_names, "formats"}, name


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_is_for(package: str) -> None:
    docstring = ast.get_docstring(tree_of(package)) or ""
    words = " ".join(docstring.split())
    assert [part for part in DOCSTRING_PARTS if part not in words] == [], docstring
