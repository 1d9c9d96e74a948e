"""Checks what a run needs of this machine: processors, memory, disk, limits and packages."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from emu.contract import installed
from phantora_async.compile_cache import default_folder, why_unusable
from phantora_async.config import RUNS
from phantora_async.errors import EnvironmentUnusable
from phantora_async.launch import limits, warm_interpreters
from phantora_async.launch.runtime import temporary_folder
from phantora_async.wording import short

OK, NOTE, FAILS = "ok", "note", "fails"
RANK_NBYTES = 150 << 20
"""The memory of one rank of a small script in bytes, with its part of what all ranks share among a few."""
LEAST_NBYTES = 2 << 30
LEAST_DISK_NBYTES = 256 << 20
OPTIONAL = {
    "matplotlib": "pictures of reports (report.plot, validate, bench)",
    "pandas": "tables of reports (run.to_pandas)",
    "perfetto": "traces in Perfetto's form",
    "ray": "runs on a Ray cluster (run --on ray)",
    "cryptography": "runs over several machines (join, --listen)",
}
"""Optional packages, each with what needs it."""
_LIMITS = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address space": resource.RLIMIT_AS,
    "file size": resource.RLIMIT_FSIZE,
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the output: what was checked, what was found, and if that is good enough for a run."""

    name: str
    found: str
    state: str = OK
    advice: str = ""


def checks(ranks: int) -> list[Check]:
    """All checks of this machine for a run of so many ranks. Nothing is changed."""
    return [
        Check("phantora-async", _version("phantora-async") or "not installed as a package"),
        _platform(),
        *_built(),
        _processors(),
        _memory(ranks),
        _temporary(),
        _folder("run directories", RUNS.absolute(), "choose another one: --run-dir DIR"),
        _cache(),
        _shared_memory(),
        _limits(ranks),
        *_warm(),
        _browser(),
        *map(_package, OPTIONAL),
    ]


def _platform() -> Check:
    text = f"{platform.system()} {platform.release()}, {platform.machine()}"
    good = platform.system() == "Linux" and platform.machine() == "x86_64"
    return Check("system", text, OK if good else FAILS, "" if good else "ranks need Linux on x86-64")


def _built() -> list[Check]:
    missing = [
        path
        for path in (installed.HOOK_LIBRARY, installed.PYTHON_STUB, installed.RECEIVE_LIBRARY)
        if not path.is_file()
    ]
    if not missing:
        return [Check("hook library", short(installed.HOOK_LIBRARY))]
    advice = "reinstall the package; in a source checkout: python emu/hook/build.py"
    return [Check("hook library", f"{short(path)} is missing", FAILS, advice) for path in missing]


def _processors() -> Check:
    usable = len(os.sched_getaffinity(0))
    return Check("processors", f"{usable} of {os.cpu_count()}")


def _memory(ranks: int) -> Check:
    free, needed = psutil.virtual_memory().available, max(LEAST_NBYTES, ranks * RANK_NBYTES)
    text = f"{free / 2**30:.1f} GiB available"
    if free >= needed:
        return Check("memory", text)
    return Check("memory", text, NOTE, f"{ranks} ranks of a small script need about {needed / 2**30:.1f} GiB")


def _temporary() -> Check:
    try:
        folder = temporary_folder()
    except EnvironmentUnusable as error:
        return Check("temporary files", error.text, FAILS, error.hint)
    return _disk("temporary files", folder, FAILS, "set TMPDIR")


def _folder(name: str, folder: Path, advice: str) -> Check:
    """Checks the folder, which a run that needs it makes."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(name, f"{short(there)} cannot be written to", NOTE, advice)
    return _disk(name, there, NOTE, advice)


def _disk(name: str, folder: Path, state: str, advice: str) -> Check:
    free = shutil.disk_usage(folder).free
    text = f"{short(folder)}, {free / 2**30:.1f} GiB free"
    return Check(name, text) if free >= LEAST_DISK_NBYTES else Check(name, text, state, advice)


def _cache() -> Check:
    folder = default_folder()
    reason = why_unusable(folder) if folder.exists() else ""
    if reason:
        advice = "torch.compile starts from nothing in each run; choose another folder: --compile-cache DIR"
        return Check("compiled code", f"{short(folder)}: {reason}", NOTE, advice)
    return _folder("compiled code", folder, "choose another folder: --compile-cache DIR")


def _shared_memory() -> Check:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        return Check("/dev/shm", str(error.strerror), NOTE, "workers of data loaders may need it")
    text = f"{free / 2**30:.1f} GiB free"
    good = free >= LEAST_DISK_NBYTES
    return Check("/dev/shm", text, OK if good else NOTE, "" if good else "workers of data loaders may need more")


def _limits(ranks: int) -> Check:
    text = ", ".join(f"{name} {_amount(resource.getrlimit(kind)[0])}" for name, kind in _LIMITS.items())
    before = {kind: resource.getrlimit(kind) for kind in (*_LIMITS.values(), resource.RLIMIT_CPU)}
    try:
        limits.check(ranks)
    except EnvironmentUnusable as error:
        return Check("limits (ulimit)", f"{text}: {error.text}", FAILS, error.hint)
    finally:
        for kind, values in before.items():
            resource.setrlimit(kind, values)
    return Check("limits (ulimit)", text)


def _amount(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _warm() -> list[Check]:
    return [Check("warm interpreter", warm.text) for warm in warm_interpreters.find()]


def _browser() -> Check:
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    return Check("browser", found or "no Chromium (only tests of pages need it)")


def _package(name: str) -> Check:
    use = OPTIONAL[name]
    if importlib.util.find_spec(name) is None:
        return Check(name, f"not installed; for {use}")
    return Check(name, _version(name) or "installed")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def of_isolation(reason: str) -> list[Check]:
    """The check of isolation. `reason`: why servers cannot be isolated, "" if they can."""
    if not reason:
        return [Check("isolation", "full: user, mount, uts, pid, ipc and net namespaces")]
    advice = "emulated servers share this machine's network, processes and /tmp; docs/servers.md says what is needed"
    return [Check("isolation", f"none: {reason}", NOTE, advice)]


BUILD_EXTENSION = "build it, without nvcc: sh examples/build_transformer_engine.sh PYTHON (docs/libraries.md)"


def of_ranks(found: dict[str, Any]) -> list[Check]:
    """The checks of the ranks' interpreter. `found`: its answer."""
    if "failure" in found:
        return [Check("ranks", str(found["failure"]), FAILS, str(found["hint"]))]
    compiler = found["compiler"]
    advice = "" if compiler else "torch.compile and Triton's kernels need one: install gcc, or set CC"
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    unbuilt = "transformer_engine" in found["packages"] and "transformer_engine_torch" not in found["packages"]
    return [
        Check("ranks' Python", f"{found['python']}, {found['executable']}"),
        Check("ranks' PyTorch", f"{found['torch']}, CUDA {found['cuda']}"),
        Check("C compiler", compiler or "none", OK if compiler else NOTE, advice),
        Check("ranks' packages", packages or "none of those that matter"),
        *([Check("Transformer Engine", "without its PyTorch extension", NOTE, BUILD_EXTENSION)] if unbuilt else []),
    ]
