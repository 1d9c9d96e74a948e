"""Places of this installation: this package's folder, the hook library and the Python stub in it; and how another
interpreter runs a part of it.
"""

from __future__ import annotations

from pathlib import Path

EMU = Path(__file__).parents[1]
HOOK_LIBRARY = EMU / "lib" / "libcuda.so.1"
PYTHON_STUB = EMU / "lib" / "python-stub"
RECEIVE_LIBRARY = EMU / "lib" / "libphantora_receive.so.1"
PRELOAD = "LD_PRELOAD"
"""Environment variable: what the dynamic linker loads before a program's own libraries."""
SERVER_SOCKET = "PHANTORA_SERVER"
"""Environment variable of all processes of an emulated server: the socket on which stubs ask it for interpreters."""


def program(module: str) -> str:
    """Returns a program for `python -c`, with `EMU` as the first argument: `main()` of a module of this package. The
    package is loaded as the launcher loads it (phantora_async/launch/launcher.py): by its location, and nothing else of
    this installation.
    """
    return f"""\
import sys
if sys.path[0] == "": del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
folder = sys.argv.pop(1)
spec = spec_from_file_location("_phantora_emu", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules[spec.name] = module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
from _phantora_emu.{module} import main
main()
"""
