"""Calls tell where in the program they were made."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from emu.interpreter.frame_layout import FrameLayout, UnknownLayout, find_layout

LIBRARY = "/nowhere/site-packages/library/module.py"
TORCH = "/nowhere/site-packages/torch"
USER = "/home/user/train.py"


def function(name: str, file: str, line: int) -> Any:
    """Returns ``name(rest)``, which calls the first of `rest` with the others, in that line of that file."""
    space: dict[str, Any] = {}
    source = "\n" * (line - 2) + f"def {name}(rest):\n    rest[0](rest[1:]) if rest[1:] else rest[0]()"
    exec(compile(source, file, "exec"), space)
    return space[name]


def tell(hook: Any) -> None:
    found = find_layout().offsets()
    array = (ctypes.c_int32 * len(found))(*found)
    stdlib = os.path.dirname(os.__file__)
    assert hook.c.phantora_sites(array, b"/ours", stdlib.encode(), TORCH.encode()) == 0


def waits_of(told: Any) -> list[tuple[Any, ...]]:
    """Returns for every wait: line, the library's line, file, function, the library's file and function."""
    return [wait[:6] for wait in with_callers(told)]


def with_callers(told: Any) -> list[tuple[Any, ...]]:
    """Returns for every wait what ``waits_of`` returns, then the line, file and function of the user's caller."""
    sites = {}
    for site in told.of(records.SITE):
        user, function, library, its, *caller = site.payload.rstrip(b"\0").decode().split("\n")
        sites[site.number] = (site.line, site.via_line, user, function, library, its, site.caller_line, *caller)
    assert sorted(sites) == list(range(1, len(sites) + 1))
    return [sites[wait.site] for wait in told.of(records.HOST_WAIT)]


# A thread of autograd's, by its name: PR_SET_NAME is 15.
space: dict[str, Any] = {"prctl": ctypes.CDLL(None).prctl}
exec(compile("def name_thread(rest):\n    prctl(15, b'pt_autograd_0', 0, 0, 0)\n    rest[0]()", LIBRARY, "exec"), space)
name_thread = space["name_thread"]


def on_autograd_s_thread(rest: Any) -> None:
    """Calls the first of `rest` with the others, on a thread with the name of autograd's."""
    name_thread([lambda: rest[0](rest[1:])])


STEP = function("step", USER, 42)
GATHER = function("gather", LIBRARY, 7)
PLUMB = function("plumb", f"{TORCH}/utils.py", 9)
SHARD = function("shard", f"{TORCH}/distributed/fsdp/x.py", 5)


def test_a_call_tells_the_user_s_line_and_the_library_s(running) -> None:
    def program(hook: Any) -> None:
        tell(hook)
        sync = hook.c.cudaDeviceSynchronize
        STEP([sync])
        STEP([GATHER, PLUMB, sync])
        STEP([GATHER, SHARD, PLUMB, sync])
        STEP([sync])

    told = running(program)
    assert waits_of(told) == [
        (42, 0, USER, "step", "", ""),
        (42, 7, USER, "step", LIBRARY, "gather"),
        (42, 5, USER, "step", f"{TORCH}/distributed/fsdp/x.py", "shard"),
        (42, 0, USER, "step", "", ""),
    ]
    first, *_, last = told.of(records.HOST_WAIT)
    assert first.site != last.site  # the test has called step in two lines


def test_the_user_s_line_that_called_a_helper_is_told(running) -> None:
    helper, main = function("helper", USER, 13), function("main", "/home/user/main.py", 5)

    def program(hook: Any) -> None:
        tell(hook)
        sync = hook.c.cudaDeviceSynchronize
        for step in (STEP, main):
            step([GATHER, helper, GATHER, sync])

    told = running(program)
    assert with_callers(told) == [
        (13, 7, USER, "helper", LIBRARY, "gather", 42, USER, "step"),
        (13, 7, USER, "helper", LIBRARY, "gather", 5, "/home/user/main.py", "main"),
    ]


def test_what_a_backward_pass_runs_of_the_user_s_was_called_where_it_was_started(running) -> None:
    block, forward = function("block", USER, 25), function("forward", USER, 16)

    def program(hook: Any) -> None:
        tell(hook)
        STEP([hook.c.phantora_backward])
        thread = threading.Thread(target=on_autograd_s_thread, args=([block, forward, hook.c.cudaDeviceSynchronize],))
        thread.start()
        thread.join()

    assert with_callers(running(program)) == [(16, 0, USER, "forward", "", "", 42, USER, "step")]


def test_names_beyond_ascii_arrive(running) -> None:
    def program(hook: Any) -> None:
        tell(hook)
        function("prüfe", "/home/jürgen/läuft_好_😀.py", 3)([hook.c.cudaDeviceSynchronize])

    assert waits_of(running(program)) == [(3, 0, "/home/jürgen/läuft_好_😀.py", "prüfe", "", "")]


def test_a_program_of_libraries_alone_tells_the_outermost(running) -> None:
    main = function("main", "/nowhere/site-packages/framework/main.py", 11)

    def program(hook: Any) -> None:
        tell(hook)
        thread = threading.Thread(target=main, args=([GATHER, hook.c.cudaDeviceSynchronize],))
        thread.start()
        thread.join()

    framework = (11, 7, "/nowhere/site-packages/framework/main.py", "main", LIBRARY, "gather")
    assert waits_of(running(program)) == [framework]


def test_a_backward_pass_is_where_it_was_asked_for(running) -> None:
    def on_autograd_s_thread(call: Any) -> None:
        """Runs the call on a thread on which there is no frame of the user's, as there is none on autograd's."""
        thread = threading.Thread(target=GATHER, args=([name_thread, call],))
        thread.start()
        thread.join()

    def program(hook: Any) -> None:
        tell(hook)
        STEP([hook.c.phantora_backward])
        on_autograd_s_thread(hook.c.cudaDeviceSynchronize)

    assert waits_of(running(program)) == [(42, 3, USER, "step", LIBRARY, "name_thread")]


def test_without_a_layout_nothing_is_told(running) -> None:
    told = running(lambda hook: hook.c.cudaDeviceSynchronize())
    assert [wait.site for wait in told.of(records.HOST_WAIT)] == [0]
    assert not told.of(records.SITE)


def test_the_first_local_variable_is_found() -> None:
    assert find_layout().frame_locals >= 0


def test_the_layout_is_the_same_on_every_thread_and_depth() -> None:
    def deep(depth: int) -> FrameLayout:
        return deep(depth - 1) if depth else find_layout()

    found = []
    thread = threading.Thread(target=lambda: found.append(deep(7)))
    thread.start()
    thread.join()
    assert found == [find_layout()]


def test_an_unfamiliar_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "emu.interpreter.frame_layout._OBJECT_FRAME", 16
    )  # f_back, as if frames were laid out otherwise
    with pytest.raises(UnknownLayout):
        find_layout()


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_other_interpreters(version: str) -> None:
    """The frames of other interpreters are read, as far as this machine has them."""
    python = shutil.which(f"python{version}")
    if python is None or version == ".".join(map(str, sys.version_info[:2])):
        pytest.skip(f"no other python{version} here")
    if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"python{version} does not start here")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from emu.interpreter import frame_layout as f; f.find_layout()"
    root = str(Path(__file__).parents[3])
    subprocess.run([python, "-c", code, root], check=True)
