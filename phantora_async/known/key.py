"""The key of a run: all that is known of it before it starts, and that decides its result.

Two runs with one key still differ if a file has changed that the script or a library reads: `inputs` compares those.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import resource
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from emu.contract import process_setup
from formats.files import MOST_DATA_NBYTES, read_bytes
from phantora_async.config import Config

FORMAT = 1
_ROOMS = ("formats", "emu", "netsim", "profiles", "phantora_async")
_OTHER = frozenset(
    (
        *("options", "remarks", "claimed", "report", "shown_ranks", "ui", "listen", "trace", "record"),
        *("known", "warm", "compile_cache", "kernel_times"),
    )
)
"""The fields of ``Config`` that decide nothing, or whose content is in other parts of the key."""
_NO_OPTIONS = ("known", "again", "warm", "shared_start", "run_dir", "report", "show_ranks", "progress")
_FILES = ("cluster", "gpu", "faults", "kernel_times", "moe", "data_shapes")
"""Options that may name files whose content is an input."""


def key_of(config: Config) -> str:
    """The key of the run in this environment."""
    given = {name: value for name, value in config.options.given().items() if name not in _NO_OPTIONS}
    resolved = {one.name: getattr(config, one.name) for one in dataclasses.fields(config) if one.name not in _OTHER}
    content = json.dumps(
        _canonical(
            [
                FORMAT,
                _package(),
                given,
                resolved,
                _contents(given),
                [_content(str(table.file)) for table in config.kernel_times],
                os.getcwd(),
                {name: value for name, value in os.environ.items() if name not in process_setup.CHANGING},
                machine(),
            ]
        )
    )
    return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()[:40]


def _canonical(value: Any) -> Any:
    """The value as lists, texts and numbers: equal ones become equal JSON. Raises TypeError for an object that shows an
    address in place of a value.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *((one.name, _canonical(getattr(value, one.name))) for one in _fields(value))]
    if isinstance(value, Mapping):
        return ["mapping", *sorted(([_canonical(name), _canonical(one)] for name, one in value.items()), key=repr)]
    if isinstance(value, frozenset | set):
        return ["set", *sorted(map(_canonical, value), key=repr)]
    if isinstance(value, list | tuple):
        return ["list", *map(_canonical, value)]
    text = repr(value)
    if " at 0x" in text:
        raise TypeError(f"{text} cannot be part of a key")
    return text


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


def machine() -> list[Any]:
    """All that a program can see of this machine and of what a process inherits, apart from files."""
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = sorted(os.sched_getaffinity(0))
    return [platform.node(), *os.uname(), _processor(), memory, cores, limits, os.geteuid(), os.getegid(), _umask()]


def _umask() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return -1


def _processor() -> str:
    """The first processor's description, without what changes from moment to moment."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(line for line in first.splitlines() if not line.startswith(("cpu MHz", "bogomips")))


def _contents(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in _FILES:
        values = given.get(name, ())
        for text in [values] if isinstance(values, str | os.PathLike) else values:
            path = os.fspath(text).rpartition(":")[2]
            found[f"{name} {text}"] = _content(path)
    return found


def _content(path: str) -> str:
    """The digest of a file's content; "" if there is none."""
    try:
        return hashlib.sha256(read_bytes(Path(path), MOST_DATA_NBYTES)).hexdigest()
    except OSError:
        return ""


@cache
def _package() -> str:
    """A digest of the names, sizes and times of this package's files: what it predicts may change with each of them."""
    root = Path(__file__).parents[2]
    found: list[tuple[str, int, int]] = []
    folders = [str(root / room) for room in _ROOMS]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in ("__pycache__", "objects"):
                        folders.append(entry.path)
                else:
                    state = entry.stat()
                    found.append((entry.path, state.st_size, state.st_mtime_ns))
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()
