"""The process that executes work on this machine's GPU: `emu.gpubench` in the interpreter that has PyTorch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from emu.contract.installed import EMU, program
from phantora_async.child_process import interrupts_held, interrupts_seen
from phantora_async.errors import EnvironmentUnusable

Json = dict[str, Any]
_ENDED = "the process that executes it ended"
_LOST = ("CUDA error", "device-side assert", "unspecified launch failure", "CUDNN_STATUS_EXECUTION_FAILED")
"""Words of an error which mean that the process cannot use the GPU any more."""
START_LIMIT_S = 300.0
"""The seconds that the process may take to import PyTorch and to find the GPU."""
ANSWER_LIMIT_S = 60.0
"""The seconds that any other answer may take. A dozen pieces of work take a few seconds."""
MOST_LATE = 3
"""The number of answers that may come too late before nothing is asked any more."""
_POLL_MS = 200
_KILL_LIMIT_S = 5.0
_READ_NBYTES = 1 << 20
INTERRUPTED = "interrupted"
_LATE = "did not end within"


class Bench(Protocol):
    """The interface to the process that measures; tests replace it."""

    def ask(self, request: Json) -> Json: ...


class GpuBench:
    """Runs `emu.gpubench` in a process: it starts at the first question, and again when a piece of work has broken
    it.
    """

    def __init__(self, python: Path) -> None:
        self._command = [str(python), "-X", "faulthandler", "-c", program("gpubench.__main__"), str(EMU)]
        self._process: subprocess.Popen[bytes] | None = None
        self._fresh = True
        """The process has not answered yet."""
        self._late = 0
        self._given_up = ""
        """The reason why nothing is asked any more."""
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by close()

    def ask(self, request: Json) -> Json:
        """Returns the answer to the request. It is {"error": ...} also when the process has ended because of it or does
        not answer in time, and after an interrupt. Raises EnvironmentUnusable if it cannot be started.
        """
        if self._given_up:
            return {"error": self._given_up}
        process, starts = self._running(), request["do"] == "about"
        limit_s = START_LIMIT_S if self._fresh else ANSWER_LIMIT_S
        try:
            line = _exchange(process, json.dumps(request).encode() + b"\n", limit_s)
        except _Interrupted:
            self._stop()
            self._given_up = INTERRUPTED
            return {"error": INTERRUPTED}
        except TimeoutError:
            self._stop()
            self._late += 1
            if self._late == MOST_LATE:
                self._given_up = f"{MOST_LATE} pieces of work {_LATE} {limit_s:g} s each, and nothing more is measured"
            if starts:
                raise EnvironmentUnusable(f"{self._command[0]} did not find a GPU within {limit_s:g} s") from None
            return {"error": self._given_up or f"it {_LATE} {limit_s:g} s"}
        self._fresh = False
        if not line:
            words = self._last_words()
            self._stop()
            if request["do"] == "about":
                raise EnvironmentUnusable(f"{self._command[0]} cannot measure a GPU", details=words)
            return {"error": f"{_ENDED}: {words.splitlines()[-1] if words else 'no message'}"}
        answer: Json = json.loads(line)
        if is_broken(answer):
            self._stop()
        return answer

    def close(self) -> None:
        self._stop()
        self._errors.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._fresh = True
            with interrupts_held():
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    start_new_session=True,  # Ctrl-C is for the parent; without it this one reads the end of its input
                    env={name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
                )
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it: it ends when that lets it go
                process.wait(_KILL_LIMIT_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()[-2000:]


def is_late(error: str) -> bool:
    """Returns true if the process was ended because it did not answer in time."""
    return _LATE in error


class _Interrupted(Exception):
    pass


def _exchange(process: subprocess.Popen[bytes], request: bytes, limit_s: float) -> bytes:
    """Sends the request and returns the line that answers; empty if the process has ended. Raises TimeoutError, and
    _Interrupted at an interrupt, which then takes effect.

    Neither side waits for the other to read: pipes hold 64 KiB, requests and answers of large lists are longer.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    into, out = process.stdin.fileno(), process.stdout.fileno()
    os.set_blocking(into, False)
    until_s, left, parts = time.monotonic() + limit_s, memoryview(request), bytearray()
    poll = select.poll()
    poll.register(out, select.POLLIN)
    poll.register(into, select.POLLOUT)
    with interrupts_seen() as came:
        while not parts.endswith(b"\n"):
            if came:
                raise _Interrupted
            if time.monotonic() > until_s:
                raise TimeoutError
            ready = dict(poll.poll(_POLL_MS))
            if left and into in ready:
                try:
                    left = left[os.write(into, left) :]
                except BrokenPipeError:
                    return b""
                if not left:
                    poll.unregister(into)
            if out in ready:
                part = os.read(out, _READ_NBYTES)
                if not part:
                    return b""
                parts += part
    return bytes(parts)


def is_broken(answer: Json) -> bool:
    """Returns true if some of the requested work has ended the process, or has left it without a GPU."""
    return any(sign in json.dumps(answer) for sign in (_ENDED, *_LOST))


@contextlib.contextmanager
def gpu_bench(python: Path) -> Iterator[GpuBench]:
    bench = GpuBench(python)
    try:
        yield bench
    finally:
        bench.close()


def about(bench: Bench) -> dict[str, str]:
    """Describes the GPU and its software. Raises EnvironmentUnusable without a GPU."""
    answer = bench.ask({"do": "about"})
    if "error" in answer:
        raise EnvironmentUnusable(
            f"no GPU to measure: {answer['error']}", "run this on a machine with an NVIDIA GPU and PyTorch for CUDA"
        )
    return {name: str(value) for name, value in answer["about"].items()} | {"driver": driver()}


def driver() -> str:
    """The driver's version, as the kernel module reports it; empty if it does not."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    numbers: Sequence[str] = [word for word in text.split() if word[:1].isdigit() and word.count(".") >= 1]
    return numbers[0] if numbers else ""
