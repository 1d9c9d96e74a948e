"""Where this package is installed: its folder, the hook library and the Python stub in it."""

from __future__ import annotations

from pathlib import Path

EMU = Path(__file__).parents[1]
HOOK_LIBRARY = EMU / "lib" / "libcuda.so.1"
PYTHON_STUB = EMU / "lib" / "python-stub"
