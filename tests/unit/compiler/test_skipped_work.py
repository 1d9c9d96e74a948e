"""Work of torch's compilers that is left out, or done once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.compiler import skipped_work


def test_guards_are_not_timed() -> None:
    def profile(manager: Any, values: Any, iterations: int) -> float:
        raise AssertionError("the processor's caches are flushed")

    assert skipped_work._unmeasured(profile)("manager", {}, 1) == 0.0


class Module:
    """A part of a graph: it returns a tuple once a compiler has changed it."""

    def __init__(self, result: Any) -> None:
        self.output = SimpleNamespace(op="output", args=(result,))
        self.graph = SimpleNamespace(nodes=[SimpleNamespace(op="placeholder", args=()), self.output])

    def __call__(self, x: int) -> Any:
        result = self.output.args[0]
        return tuple(x for _ in result) if isinstance(result, tuple) else x


@pytest.mark.parametrize(("result", "returned"), [("a", 3), (("a",), (3,)), (("a", "b"), (3, 3))])
def test_a_part_of_a_graph_is_copied_when_the_copy_is_called(result: Any, returned: Any) -> None:
    copied = []

    def copy(module: Any, fake_mode: Any) -> Any:
        copied.append((module, fake_mode))
        return module

    module = Module(result)
    part = skipped_work._if_called(copy)(module, "mode")
    assert (part.graph, copied) == (module.graph, [])
    if not isinstance(result, tuple):
        module.output.args = ((result,),)  # as DistributedDataParallel's compiler does
    assert part(3) == returned
    assert copied == [(module, "mode")]


def test_libraries_are_hashed_once_while_they_stay_the_same(tmp_path: Path) -> None:
    library, hashed = tmp_path / "libdevice.bc", []
    library.write_bytes(b"first")

    def hash_libraries(backend: Any) -> str:
        hashed.append(library.read_bytes())
        return f"libdevice-{library.read_text()}"

    key = skipped_work._once({}, hash_libraries)
    options = SimpleNamespace(extern_libs=(("libdevice", str(library)),))
    backend = SimpleNamespace(parse_options=lambda given: options)
    assert [key(backend), key(backend)] == ["libdevice-first"] * 2
    assert hashed == [b"first"]
    library.write_bytes(b"second one")
    assert key(backend) == "libdevice-second one"
    assert len(hashed) == 2


def test_lines_of_operators_are_described_when_a_log_asks() -> None:
    asked = []

    def describe(translator: Any, lineno: int | None = None) -> str:
        asked.append(lineno)
        return f"model.py:{lineno} in forward"

    translator = SimpleNamespace(lineno=3)
    header = skipped_work._if_logged(describe)
    first, second = header(translator), header(translator, lineno=7)
    translator.lineno = 4
    assert asked == []
    assert (f"TRACE starts_line {first}", str(second)) == (
        "TRACE starts_line model.py:3 in forward",
        "model.py:7 in forward",
    )


def test_a_place_in_a_line_is_looked_for_once_while_torch_compiles() -> None:
    looked_at = []

    def find(segment: str) -> int:
        looked_at.append(segment)
        return len(segment)

    thread = SimpleNamespace()
    place = skipped_work._remembered(thread, find)
    assert [place("x + y"), place("x + y")] == [5, 5]
    assert len(looked_at) == 2
    thread.tracing_context = "of a graph"
    assert [place("x + y"), place("x + y"), place("f(x)")] == [5, 5, 4]
    assert looked_at[2:] == ["x + y", "f(x)"]
