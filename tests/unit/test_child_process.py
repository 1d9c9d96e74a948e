"""Commands that this one runs: an interrupt ends them, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from phantora_async.child_process import child, interrupts_held, kill

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_process_that_still_runs_is_ended_with_the_block() -> None:
    with child(SLEEPS, kill) as process:
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_has_ended_is_left_alone() -> None:
    with child([sys.executable, "-c", "print(5)"], kill, stdout=subprocess.PIPE) as process:
        assert process.communicate()[0] == "5\n"
    assert process.returncode == 0


def test_an_interrupt_while_the_process_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), child(SLEEPS, kill):
        pytest.fail("the interrupt was lost")
    assert started[0].returncode == -signal.SIGKILL


def test_processes_do_not_inherit_what_holds_interrupts() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    with child([sys.executable, "-c", code], kill, stdout=subprocess.PIPE) as process:
        assert process.communicate()[0] == "True\n"


def test_interrupts_that_were_ignored_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


INTERRUPTED_AT_EACH_LINE = """
import os, sys, uvloop
from phantora_async.session import INTERRUPTS, Session

def interrupt(frame, event, _):
    if event == "line" and ended:
        for number in INTERRUPTS:
            os.kill(os.getpid(), number)
    return interrupt

async def run():
    session = Session.__new__(Session)
    session._interrupt = lambda *_: None
    sys.settrace(lambda frame, *event: interrupt(frame, *event) if frame.f_code.co_name == "_signals" else None)
    with session._signals(None, None):
        ended.append(True)
    sys.settrace(None)

ended = []
uvloop.run(run())
print("the report")
"""


def test_an_interrupt_when_the_run_has_ended_does_not_end_the_command() -> None:
    """Between any two lines of what ends to listen for it."""
    command = [sys.executable, "-c", INTERRUPTED_AT_EACH_LINE]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout == "the report\n"


def test_another_thread_may_start_processes() -> None:
    codes: list[int] = []

    def run() -> None:
        with child([sys.executable, "-c", "raise SystemExit(3)"], kill) as process:
            codes.append(process.wait())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert codes == [3]
