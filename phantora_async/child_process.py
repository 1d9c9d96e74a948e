"""Runs other commands as child processes, which an interrupt ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

END_S = 60.0
"""The seconds that a run that is interrupted may take to end."""


@contextlib.contextmanager
def child(
    command: Sequence[str | Path], end: Callable[[subprocess.Popen[str]], None], **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process that has ended when the block is left: `end` is called if it still runs then.

    That holds for an interrupt while the process is being started, too. `options` are those of `subprocess.Popen`.
    """
    process: subprocess.Popen[str] | None = None
    try:
        with interrupts_held():
            process = subprocess.Popen(command, text=True, **options)
        yield process
    finally:
        if process is not None and process.poll() is None:
            end(process)


def interrupt_run(process: subprocess.Popen[str]) -> None:
    """Ends a `phantora-async run` as Ctrl-C does: it writes its report and leaves nothing behind.

    It must have a session of its own: otherwise it also gets the terminal's interrupt, and a second one kills ranks.
    """
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # the second one kills the ranks
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """A context in which SIGINT and SIGTERM wait until it is left.

    `subprocess.Popen` forgets a process that it has started if an interrupt comes before it returns. Masking signals
    would not do: the process would inherit the mask.
    """
    with interrupts_seen():
        yield


@contextlib.contextmanager
def interrupts_seen() -> Iterator[list[int]]:
    """Holds interrupts like ``interrupts_held``, and gives a block that waits the signals that have come so far."""
    came: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    held = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in held:
            signal.signal(number, hold)
    except ValueError:  # only the main thread sets handlers, and only it is interrupted
        held = {}
    try:
        yield came
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for signal_number in came:
            signal.raise_signal(signal_number)
