"""Mistakes of a user's: one clear message, exit code 2, no traceback of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, needs_torch


def phantora(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phantora_async", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("run", "-n", "2", "missing.py"), "missing.py"),
        (("run", "-n", "0", "ok.py"), "-n"),
        (("run", "-n", "2", "--gpu", "h300", "ok.py"), "h200"),
        (("run", "-n", "2", "--cluster", "dgx", "ok.py"), "dgx-h200"),
        (("run", "-n", "2", "--gpu", "truncated.toml", "ok.py"), "truncated.toml"),
        (("run", "-n", "2", "--cluster", "adaptive.toml", "ok.py"), "adaptive"),
        (("run", "-n", "2", "--run-dir", "ok.py/sub", "ok.py"), "ok.py"),
        (("run", "-n", "2", "--python", "/no/such/python", "ok.py"), "/no/such/python"),
        (("run", "-n", "2"), "script"),
        (("fly",), "fly"),
    ],
)
def test_message_and_exit_code(tmp_path: Path, args: tuple[str, ...], expected: str) -> None:
    (tmp_path / "ok.py").write_text("print('ran')\n")
    (tmp_path / "truncated.toml").write_text('name = "x"\n[memory')
    (tmp_path / "adaptive.toml").write_text('base = "dgx-h200"\n[network]\nrouting = "adaptive"\n')
    done = phantora(*args, cwd=tmp_path)
    assert done.returncode == 2, done
    assert expected in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "ran" not in done.stdout


def test_a_cpu_only_torch_says_what_to_install(tmp_path: Path) -> None:
    """The forker sees what `import torch` finds: a stand-in package plays the CPU wheel's part."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '2.13.0+cpu'\n")
    (package / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    (tmp_path / "ok.py").write_text("print('ran')\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    done = phantora("run", "-n", "1", "--python", str(wrapper), "ok.py", cwd=tmp_path)
    assert done.returncode not in (0, 1)
    assert "CUDA build" in done.stderr
    assert "pip install torch" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_help_names_the_exit_codes(tmp_path: Path) -> None:
    done = phantora("run", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "exit codes" in done.stdout.lower()


def run_one(script: str, *options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs one rank of the script ``ok.py``."""
    needs_torch()
    (cwd / "ok.py").write_text(script)
    return phantora("run", "-n", "1", *options, "ok.py", cwd=cwd)


@pytest.mark.torch
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_a_full_disk_takes_the_report_and_no_more(tmp_path: Path) -> None:
    done = run_one("print('ran')\n", "--report", "/dev/full", cwd=tmp_path)
    assert done.returncode == 74, done
    assert "cannot write the report /dev/full: No space left on device" in done.stderr
    assert "ran" in done.stdout
    assert "simulated" in done.stdout, "what was simulated is not lost"
    assert Path("/dev/full").is_char_device()


@pytest.mark.torch
def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    """The names are those of the script, its argument and the run directory."""
    needs_torch()
    script, run_dir = tmp_path / os.fsdecode(b"a\xff.py"), tmp_path / os.fsdecode(b"r\xe9")
    script.write_text("import torch\nprint('got', torch.ones(4, device='cuda').sum().item())\n")
    arguments = ("--run-dir", str(run_dir), str(script), os.fsdecode(b"\xfe"))
    done = phantora("run", "-n", "1", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done
    assert "got 4.0" in done.stdout
    shown = phantora("report", str(run_dir), "--html", "page.html", cwd=tmp_path)
    assert shown.returncode == 0, shown
    assert json.loads((run_dir / "report.json").read_text())["run"]["script"].endswith("a\\udcff.py")


@pytest.mark.torch
def test_a_report_can_go_to_a_pipe(tmp_path: Path) -> None:
    done = run_one("print('ran')\n", "--report", "/dev/stderr", cwd=tmp_path)
    assert done.returncode == 0, done
    assert '"simulated": {' in done.stderr


@pytest.mark.torch
def test_a_script_that_cannot_write_its_log_says_so(tmp_path: Path) -> None:
    script = "import os\nfull = os.open('/dev/full', os.O_WRONLY)\nos.dup2(full, 1)\nos.dup2(full, 2)\nprint('lost')\n"
    done = run_one(script, cwd=tmp_path)
    assert done.returncode == 1, done
    assert "No space left on device (ok.py:5)" in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch; torch._C._cuda_getDeviceCount()", "have asked for GPUs"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "threads"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_module_that_ranks_cannot_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    needs_torch()
    (tmp_path / "shared.py").write_text(f"{text}\n")
    (tmp_path / "ok.py").write_text("print('ran')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    done = phantora("run", "--preload", "shared", "--python", RANKS_PYTHON, "ok.py", cwd=tmp_path)
    assert done.returncode == 69, done
    assert expected in done.stderr
    assert "ran" not in done.stdout
