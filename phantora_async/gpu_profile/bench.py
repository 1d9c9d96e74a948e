"""The process that executes work on this machine's GPU: `emu.gpubench` in the interpreter that has PyTorch."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from emu.contract.installed import EMU, program
from phantora_async.child_process import interrupts_held
from phantora_async.errors import EnvironmentUnusable

Json = dict[str, Any]
_ENDED = "the process that executes it ended"
_LOST = ("CUDA error", "device-side assert", "unspecified launch failure", "CUDNN_STATUS_EXECUTION_FAILED")
"""In an error: the process cannot use the GPU any more."""


class Bench(Protocol):
    """What measures. A test's stand-in has these, too."""

    def ask(self, request: Json) -> Json: ...


class GpuBench:
    """Started at the first question; started again when a piece of work has broken it."""

    def __init__(self, python: Path) -> None:
        self._command = [str(python), "-X", "faulthandler", "-c", program("gpubench.__main__"), str(EMU)]
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by close()

    def ask(self, request: Json) -> Json:
        """The answer, or {"error": ...}, also where the process has ended of it. Raises EnvironmentUnusable if it
        cannot be started.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
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

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with interrupts_held():
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
                    start_new_session=True,  # Ctrl-C is for the parent; without it this one reads the end of its input
                    env={name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
                )  # fmt: skip
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()[-2000:]


def is_broken(answer: Json) -> bool:
    """Something of what was asked has ended the process, or has left it without a GPU."""
    return any(sign in json.dumps(answer) for sign in (_ENDED, *_LOST))


@contextlib.contextmanager
def gpu_bench(python: Path) -> Iterator[GpuBench]:
    bench = GpuBench(python)
    try:
        yield bench
    finally:
        bench.close()


def about(bench: Bench) -> dict[str, str]:
    """The GPU and its software. Raises EnvironmentUnusable without a GPU."""
    answer = bench.ask({"do": "about"})
    if "error" in answer:
        raise EnvironmentUnusable(
            f"no GPU to measure: {answer['error']}", "run this on a machine with an NVIDIA GPU and PyTorch for CUDA"
        )
    return {name: str(value) for name, value in answer["about"].items()} | {"driver": driver()}


def driver() -> str:
    """Its version, as the kernel module tells it; empty if it does not."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    numbers: Sequence[str] = [word for word in text.split() if word[:1].isdigit() and word.count(".") >= 1]
    return numbers[0] if numbers else ""
