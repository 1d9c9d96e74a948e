"""Work of torch's compilers that no result needs: it is left out, or done once where torch repeats it.

The time that checking guards takes on this machine is measured for logs alone, after the processor's caches are
flushed. Each part of a graph that DistributedDataParallel splits is copied in case its compiler does not use
AOTAutograd: here it is copied in that case only. The libraries that Triton links are hashed for each cached graph: here
once for as long as the file stays the same. Dynamo describes where each operator of a graph was called twice: the line
for logs, which reads the whole file, is described when a log asks; the place of a call in its line is looked for once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ..private.changes import Names, changes


def install() -> None:
    """Leaves out work of torch's compilers that no result needs. Called once, in the forker, before torch compiles."""
    changes.when_imported("times of guards", lambda names: names.change("profile_guard_manager", _unmeasured))
    changes.when_imported("copies of split graphs", lambda names: names.change("deepcopy_to_fake_tensor", _if_called))
    changes.when_imported("Triton's libraries", _libraries)
    changes.when_imported("lines of operators", lambda names: names.change("get_line_of_code_header", _if_logged))
    changes.when_imported("places in lines", _places)


def _unmeasured(profile: Any) -> Any:
    @functools.wraps(profile)
    def profile_guard_manager(*arguments: Any) -> float:
        return 0.0

    return profile_guard_manager


def _if_called(copy: Any) -> Any:
    @functools.wraps(copy)
    def deepcopy_to_fake_tensor(graph: Any, fake_mode: Any) -> Any:
        return CopyIfCalled(copy, graph, fake_mode)

    return deepcopy_to_fake_tensor


class CopyIfCalled:
    """A copy of a graph's module, made when it is first called. Until then the graph's single result may have become a
    tuple, as compilers want it: the call returns it as it was.
    """

    def __init__(self, copy: Any, module: Any, fake_mode: Any) -> None:
        self._copy = functools.partial(copy, module, fake_mode)
        self._is_tuple = [isinstance(node.args[0], tuple) for node in module.graph.nodes if node.op == "output"]
        self.graph = module.graph
        """The graph, which logs read."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        returned = self._copy()(*arguments, **named)
        is_single = not any(self._is_tuple)
        return returned[0] if is_single and isinstance(returned, tuple) else returned


def _libraries(names: Names) -> None:
    names.change("_extern_libs_key", functools.partial(_once, {}))


def _once(keys: dict[tuple[tuple[str, str, int, int], ...], str], hash_libraries: Any) -> Any:
    @functools.wraps(hash_libraries)
    def _extern_libs_key(backend: Any) -> str:
        files = tuple(
            (name, path, *_state(path)) for name, path in sorted(getattr(backend.parse_options({}), "extern_libs", ()))
        )
        if files not in keys:
            keys[files] = hash_libraries(backend)
        return keys[files]

    return _extern_libs_key


def _state(path: str) -> tuple[int, int]:
    """Returns a file's time and size, which differ if the file does; (0, 0) if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


class _Header:
    """A line of code and the function that it belongs to, as text that is made when it is asked for."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def __str__(self) -> str:
        return self._describe()


def _if_logged(describe: Any) -> Any:
    @functools.wraps(describe)
    def get_line_of_code_header(self: Any, lineno: int | None = None) -> _Header:
        return _Header(functools.partial(describe, self, self.lineno if lineno is None else lineno))

    return get_line_of_code_header


def _places(names: Names) -> None:
    names.change("_extract_caret_anchors_from_line_segment", functools.partial(_remembered, names.get("_TLS")))


def _remembered(thread: Any, find: Any) -> Any:
    """`thread`: has a context while torch compiles. A program's own tracebacks take host time: as much as always, see
    emu/interpreter/frame_counter.py.
    """
    found = functools.cache(find)

    @functools.wraps(find)
    def place(segment: str) -> Any:
        return (find if getattr(thread, "tracing_context", None) is None else found)(segment)

    return place
