"""Resolves where a run writes: its directory, its report, its recording, and the cache of compiled code."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from phantora_async import compile_cache, run_dir
from phantora_async.errors import UsageError
from phantora_async.options import PathText, RunOptions
from phantora_async.run_dir import RunDir
from phantora_async.wording import short

RUNS = Path("phantora-runs")
"""The folder in which run directories are made by default."""
RECORDED = "recorded"
"""The folder of the recording in the run's directory, if one is needed and the user named none."""
RECORDING_FILES = ("recording", ".recording", "run.json")
"""The files of an earlier recording in its folder."""


def run_dir_of(text: str | None, script: str, ranks: int) -> RunDir:
    if text is not None:
        return run_dir.claim(Path(text).absolute(), ranks)
    stem = re.sub(r"[^\w.-]", "_", Path(script).stem)[:40] or "run"
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{stem}"
    folders = ((RUNS / f"{name}{f'-{end}' if end else ''}").absolute() for end in count())
    return run_dir.claim(next(folder for folder in folders if not folder.exists()), ranks)


def link_logs(folder: Path, servers: tuple[int, ...]) -> None:
    """Makes each rank's log a link to its server's log, to which ranks write that a launcher starts."""
    first = 0
    for server, gpus in enumerate(servers):
        for rank in range(first, first + gpus):
            (folder / f"rank{rank}.log").symlink_to(f"server{server}.log")
        first += gpus


def report_of(text: str | None, folder: Path) -> Path:
    path = Path(text).absolute() if text is not None else folder / "report.json"
    if not path.parent.is_dir() or path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--report {path}: this file cannot be written")
    return path


def writable_of(given: Sequence[PathText]) -> tuple[str, ...]:
    """The real paths that isolated servers may write. Raises UsageError."""
    for path in given:
        if not os.path.exists(path):
            raise UsageError(f"--write {short(Path(path))}: there is no such folder or file", "make it before")
    return tuple(os.path.realpath(path) for path in given)


def record_of(given: RunOptions) -> Path | None:
    """Makes the folder of the recording and returns it; None if there is to be no recording."""
    if given.record is None:
        return None
    folder = Path(given.record).absolute()
    check_recordable(given, "--record")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = sorted(entry.name for entry in os.scandir(folder) if entry.name not in RECORDING_FILES)
    except OSError as error:
        raise UsageError(f"--record {folder}: {error.strerror or error}", "choose another folder") from None
    if others:
        raise UsageError(f"--record {folder}: it has other files, {others[0]} for example", "choose another folder")
    return folder


def check_recordable(given: RunOptions, option: str) -> None:
    """Raises UsageError if the run cannot be recorded. `option`: the one that needs a recording."""
    if given.host == "measured":
        raise UsageError(
            f"{option} and --host measured exclude each other: measured times belong to one run alone",
            "leave out one of the two",
        )


def compile_cache_of(given: str | None) -> tuple[Path | None, tuple[str, ...]]:
    """The folder of compiled code, if it can be used; else None and a remark."""
    if given == compile_cache.OFF:
        return None, ()
    folder = Path(given).expanduser().absolute() if given else compile_cache.default_folder()
    reason = compile_cache.why_unusable(folder)
    if not reason:
        return folder, ()
    return None, (
        f"torch.compile starts from nothing in this run: its cache {short(folder)} cannot be used ({reason}); "
        "choose another folder with --compile-cache DIR",
    )
