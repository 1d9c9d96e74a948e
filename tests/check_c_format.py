"""`clang-format --dry-run` over the C sources; exits non-zero where a file differs."""

import subprocess
import sys
from pathlib import Path

FOLDERS = ("emu/hook", "emu/private", "emu/stub", "netsim/native", "phantora_async/virtual_time/native", "tests")
sources = sorted(str(path) for folder in FOLDERS for path in Path(folder).rglob("*.[ch]"))
sys.exit(subprocess.run(["clang-format", "--dry-run", "--Werror", *sources], check=False).returncode)
