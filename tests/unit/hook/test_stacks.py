"""A rank's stacks: it writes them whatever its threads do, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emu.contract import stack_request
from phantora_async.liveness.rank_stacks import main_thread

ROOT = Path(__file__).parents[3]
RANK = f"""
import ctypes, sys, threading
sys.path.insert(0, {str(ROOT)!r})
from emu.interpreter import frame_counter, stack_dump
from emu.interpreter.hook_library import Hook
hook = Hook(sys.argv[1])
frame_counter.install(hook)
stack_dump.register(hook, sys.argv[2], 0)
def function(depth):
    if depth:
        function(depth - 1)
def go_on():
    while True:
        function(3)
def enter_functions():
    print("ready", flush=True)
    go_on()
def other_threads():
    for _ in range(2):
        threading.Thread(target=go_on, daemon=True).start()
    enter_functions()
def keep_the_lock():
    ctypes.PyDLL(None).system(b"echo ready; read line")
sys.setswitchinterval(1e-4)
globals()[sys.argv[3]]()
print("goes on", flush=True)
"""


@contextmanager
def rank(library: Path, folder: Path, work: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, which says that it is at work, and the pipe that it writes stacks to."""
    pipe = stack_request.path_of(str(folder), 0)
    os.mkfifo(pipe)
    stacks = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(stacks, True)
    command = [sys.executable, "-c", RANK, str(library), str(folder), work]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process, stacks
        finally:
            process.kill()
            os.close(stacks)


END = "in <module>\n"


def answer(process: subprocess.Popen[str], stacks: int) -> str:
    """Returns the main thread's stack, which comes last; faulthandler writes it in pieces. A process that has not run
    for a second answers in both ways, and what is left of that is read next time.
    """
    os.kill(process.pid, stack_request.SIGNAL)
    text = ""
    while END not in text.partition("Current thread")[2]:
        more = os.read(stacks, 1 << 16)
        assert more, "it has crashed"
        text += more.decode()
    _, begin, stack = text.partition("Current thread")
    return begin + stack[: stack.index(END) + len(END)]


@pytest.mark.parametrize("work", ["enter_functions", "other_threads"])
def test_a_rank_that_enters_functions_all_the_time_is_not_disturbed(library: Path, tmp_path: Path, work: str) -> None:
    with rank(library, tmp_path, work) as (process, stacks):
        for _ in range(1000):
            lines = main_thread(answer(process, stacks))
            assert lines[-1].function == "<module>"
            assert lines[-2].function == work


def test_a_rank_whose_c_code_keeps_python_s_lock_answers(library: Path, tmp_path: Path) -> None:
    with rank(library, tmp_path, "keep_the_lock") as (process, stacks):
        assert process.stdin is not None
        assert process.stdout is not None
        assert main_thread(answer(process, stacks))[0].function == "keep_the_lock"
        process.stdin.write("x\n")
        process.stdin.flush()
        assert process.stdout.readline() == "goes on\n"
