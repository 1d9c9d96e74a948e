"""Runs one job as a user would, and says what of it was not as it must be."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from emu.start import exposed_ddp

from . import assets
from .job import Framework, Job, Outcome

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPTS = HERE / "scripts"
RANKS_PYTHON = os.environ.get("PHANTORA_TEST_PYTHON", sys.executable)
"""The interpreter that runs the ranks; `PYTHONPATH` may name a folder with more packages."""
CHECKOUTS = os.environ.get("PHANTORA_FRAMEWORK_CHECKOUTS", "")
"""A folder with clones of the repositories that some jobs need, under their names."""
_LOOK = """
import importlib.metadata, importlib.util, json, sys
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
modules, packages = json.loads(sys.argv[1])
missing, versions = [name for name in modules if not found(name)], {name: version(name) for name in packages}
print(json.dumps([missing, versions, sys.version_info[:2]]))
"""


@functools.cache
def looked(modules: tuple[str, ...], packages: tuple[str, ...]) -> tuple[list[str], dict[str, str], tuple[int, int]]:
    """Returns which of the modules the ranks' interpreter lacks, the versions of the packages that it has, and its
    own."""
    command = [RANKS_PYTHON, "-c", _LOOK, json.dumps([modules, packages])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    missing, versions, python = json.loads(done.stdout)
    return missing, versions, tuple(python)


def absent(job: Job) -> str:
    """Returns what the job needs and this machine lacks; empty if nothing."""
    framework = job.framework
    missing, _, python = looked(("torch", *framework.modules, *job.modules), ())
    if python < framework.python:
        return f"needs Python {framework.python[0]}.{framework.python[1]}"
    if missing:
        return f"needs {', '.join(missing)}"
    toolkit = Path(os.environ.get("CUDA_HOME", ""), "bin")
    for program in job.programs:
        if not shutil.which(program) and not shutil.which(program, path=toolkit):
            return f"needs {program}"
    if framework.checkout and not (Path(CHECKOUTS) / _folder(framework)).is_dir():
        return f"needs {_folder(framework)}, a clone of {framework.checkout}, in PHANTORA_FRAMEWORK_CHECKOUTS"
    return ""


def versions(framework: Framework) -> str:
    _, found, _ = looked((), (*framework.packages, "torch"))
    named = [f"{name} {version}" for name, version in found.items() if version]
    commit = [f"{framework.checkout.partition('/')[2]} {framework.commit}"] if framework.commit else []
    return ", ".join([*commit, *named])


def _folder(framework: Framework) -> str:
    return framework.folder or framework.checkout.partition("/")[2]


def words(job: Job) -> list[str]:
    """Returns the command, as it is written in the document."""
    return ["phantora-async", "run", "-n", str(job.ranks), *job.options, *job.framework.start, *job.arguments]


def run(job: Job, folder: Path) -> Outcome:
    """Runs the job in an empty folder."""
    lacks = absent(job)
    if lacks:
        return Outcome(absent=lacks)
    began = time.monotonic()
    if job.test:
        faults, output = _run_test(job)
        return Outcome(faults, "", versions(job.framework), wall_s=time.monotonic() - began, output=output)
    exit_code, output, report, logs = _run_job(job, folder)
    faults = _faults(job, exit_code, report, logs)
    simulated = report.get("simulated", {})
    return Outcome(
        faults=tuple(faults),
        versions=versions(job.framework),
        step_ns=int(simulated.get("step", {}).get("median_ns") or 0),
        peak_nbytes=int(simulated.get("memory", {}).get("max_allocated_nbytes") or 0),
        wall_s=time.monotonic() - began,
        output=output,
    )


def _run_test(job: Job) -> tuple[tuple[str, ...], str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", job.test]
    environment = os.environ | {"PHANTORA_EXPENSIVE": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    passed = done.returncode == 0 and re.search(r"\b[1-9]\d* passed", done.stdout)
    return () if passed else (f"the test did not pass (exit code {done.returncode})",), done.stdout


def _run_job(job: Job, folder: Path) -> tuple[int, str, dict[str, Any], str]:
    work, run_dir, report = folder / "work", folder / "run", folder / "report.json"
    if job.framework.checkout:
        clone = Path(CHECKOUTS) / _folder(job.framework)
        shutil.copytree(clone, work, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    assets.make(work)
    start = [str(SCRIPTS / word) if (SCRIPTS / word).is_file() else word for word in words(job)[4:]]
    command = [sys.executable, "-m", "phantora_async", "run", "-n", str(job.ranks), "--report", str(report)]
    command += ["--python", RANKS_PYTHON, "--run-dir", str(run_dir), *start]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=work,
        env=os.environ | {"COLUMNS": "160", "PYTHONPATH": path} | dict(job.framework.environment),
    )
    try:
        output, _ = process.communicate()
    except BaseException:  # the tests' time limit, or Ctrl-C
        os.killpg(process.pid, signal.SIGKILL)
        print(process.communicate()[0])
        raise
    logs = "\n".join(log.read_text(errors="replace") for log in sorted(run_dir.glob("rank*.log")))
    return process.returncode, output, json.loads(report.read_text()) if report.exists() else {}, logs


def _faults(job: Job, exit_code: int, report: dict[str, Any], logs: str) -> list[str]:
    faults = []
    if exit_code:
        faults.append(f"exit code {exit_code}")
    if "simulated" not in report:
        return [*faults, "no report"]
    simulated = report["simulated"]
    fewest = min(rank["steps"] for rank in simulated["ranks"])
    if fewest < job.steps:
        faults.append(f"{fewest} steps found on a rank, not {job.steps}")
    if not all(rank["memory"]["allocated_peak_nbytes"] for rank in simulated["ranks"]):
        faults.append("a rank's peak memory is not known")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", logs)
    faults += [f"no line has {line!r}" for line in job.shows if not re.search(line, plain)]
    for warning in simulated["warnings"]:
        if warning["text"] == exposed_ddp.TEXT:
            continue  # true of each job with DDP, and of the version of PyTorch
        if not any(re.search(expected, warning["text"]) for expected in job.warns):
            # The document names files without the folders of this machine.
            faults.append("warns: " + re.sub(r"(?<!\S)/\S*/(?=[^/\s]+/[^/\s]+\.py:)", "", warning["text"]))
    return faults
