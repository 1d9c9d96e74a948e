"""`clang-format --dry-run` over the C sources; exits non-zero where a file differs."""

import subprocess
import sys
from pathlib import Path

sources = sorted(str(path) for path in Path("emu/hook").rglob("*.[ch]"))
sys.exit(subprocess.run(["clang-format", "--dry-run", "--Werror", *sources], check=False).returncode)
