"""`clang-format --dry-run` over the C sources; exits non-zero where a file differs."""

import subprocess
import sys
from pathlib import Path

sources = sorted(str(path) for folder in ("emu/hook", "emu/stub") for path in Path(folder).rglob("*.[ch]"))
sys.exit(subprocess.run(["clang-format", "--dry-run", "--Werror", *sources], check=False).returncode)
