"""Where this package is installed: its folder, and the hook library in it."""

from __future__ import annotations

from pathlib import Path

EMU = Path(__file__).parents[1]
HOOK_LIBRARY = EMU / "lib" / "libcuda.so.1"
