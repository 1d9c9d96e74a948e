"""Asks the interpreter that is to run ranks whether it can."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from emu.contract import installed

LIMIT_S = 300.0
"""The seconds that the interpreter may take: longer than importing PyTorch takes on a slow machine."""


def ask(python: Path) -> dict[str, Any]:
    """The findings of `emu/start/doctor.py` in that interpreter; `failure` and `hint` if no rank can run."""
    command = [str(python), "-c", installed.program("start.doctor"), str(installed.EMU)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _failed(python, str(error))
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return _failed(python, done.stderr.strip()[-500:] or f"it ended with exit code {done.returncode}")
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except ValueError:
        return _failed(python, lines[-1][:200])
    return found


def _failed(python: Path, why: str) -> dict[str, Any]:
    return {"failure": f"{python} cannot be asked: {why}", "hint": "name another interpreter: --python PATH"}


def why_not_isolated() -> str:
    """The reason why emulated servers would share this machine's network and processes; "" if they would not."""
    command = [sys.executable, "-c", installed.program("servers.probe"), str(installed.EMU)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or (done.stderr.strip().splitlines()[-1:] or [""])[0]
