"""The trace that `run --trace` asks for: the file and its form, the ranks, the steps."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from phantora_async.errors import EnvironmentUnusable, UsageError

PERFETTO_SUFFIXES = (".perfetto-trace", ".pftrace", ".perfetto")
CHROME_SUFFIXES = (".pt.trace.json", ".json")
FORMS = f"FILE{PERFETTO_SUFFIXES[0]} or {PERFETTO_SUFFIXES[1]} (Perfetto), FILE.json or FOLDER/ (Chrome JSON)"
_LAST_STEP = (1 << 64) - 1
_NUMBER = r"\d{1,18}"


@dataclass(frozen=True, slots=True)
class TraceRequest:
    path: Path
    perfetto: bool
    """True: one file in Perfetto's format. False: Chrome JSON, a file for each rank."""
    ranks: tuple[tuple[int, int], ...]
    """The traced ranks as ranges, both ends included."""
    first_step: int = 1
    last_step: int = _LAST_STEP

    def chosen(self) -> frozenset[int]:
        return frozenset(rank for first, last in self.ranks for rank in range(first, last + 1))

    def file(self, rank: int) -> Path:
        """The path of the Chrome JSON of one rank."""
        if self.path.is_dir():
            return self.path / f"rank{rank}.json"
        suffix = next(suffix for suffix in CHROME_SUFFIXES if self.path.name.endswith(suffix))
        return self.path.with_name(f"{self.path.name.removesuffix(suffix)}.rank{rank}{suffix}")

    def files(self) -> list[Path]:
        """All files that the trace consists of."""
        return [self.path] if self.perfetto else [self.file(rank) for rank in sorted(self.chosen())]

    def device_file_lines(self) -> list[str]:
        """The lines of the hook library's device file that describe the trace."""
        return [
            *(f"trace_ranks={first}-{last}" for first, last in self.ranks),
            f"trace_first_step={self.first_step}",
            f"trace_last_step={self.last_step}",
        ]


def resolve(file: str | None, ranks: str | None, steps: str | None, world_size: int) -> TraceRequest | None:
    """The trace that these options ask for. Raises UsageError, also if its files cannot be written."""
    if file is None:
        for option, given in (("--trace-ranks", ranks), ("--trace-steps", steps)):
            if given is not None:
                raise UsageError(f"{option} without --trace", "add --trace FILE")
        return None
    path = Path(file).absolute()
    if file.endswith(os.sep):
        _make_folder(file, path)
    perfetto = path.name.endswith(PERFETTO_SUFFIXES) and not path.is_dir()
    if not perfetto and not path.name.endswith(CHROME_SUFFIXES) and not path.is_dir():
        raise UsageError(f"--trace {file}: its suffix names no form of trace", f"forms: {FORMS}")
    if perfetto and importlib.util.find_spec("perfetto") is None:
        raise EnvironmentUnusable(
            f"--trace {file}: the package perfetto is missing", "pip install perfetto, or choose the form FILE.json"
        )
    first, last = _steps(steps)
    request = TraceRequest(path, perfetto, _ranks(ranks, world_size), first, last)
    for written in request.files():
        _check_writable(file, written)
    return request


def _make_folder(given: str, path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--trace {given}: {path} cannot be made: {error.strerror}") from None


def _check_writable(given: str, path: Path) -> None:
    """Opens the file as the run will, without removing its content: that is kept until the run starts."""
    existed = path.exists()
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        if not existed:
            path.unlink()
    except OSError as error:
        raise UsageError(f"--trace {given}: {path} cannot be written: {error.strerror}") from None


def _ranks(text: str | None, world_size: int) -> tuple[tuple[int, int], ...]:
    if text is None or text == "all":
        return ((0, world_size - 1),)
    ranges = []
    for part in text.split(","):
        found = re.fullmatch(rf"({_NUMBER})(?:-({_NUMBER}))?", part.strip())
        if found is None:
            raise UsageError(f"--trace-ranks {text}: expected ranks such as 0,8-15, or all")
        first = int(found[1])
        last = int(found[2] or first)
        if not first <= last < world_size:
            raise UsageError(f"--trace-ranks {text}: this run has ranks 0 to {world_size - 1}")
        ranges.append((first, last))
    return tuple(ranges)


def _steps(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, _LAST_STEP
    found = re.fullmatch(rf"({_NUMBER})(?:(-)({_NUMBER})?)?", text.strip())
    first = int(found[1]) if found else 0
    if found is None or first < 1 or (found[3] and int(found[3]) < first):
        raise UsageError(f"--trace-steps {text}: expected steps such as 3 or 3-5 or 3-; the first step is 1")
    return first, int(found[3]) if found[3] else _LAST_STEP if found[2] else first
