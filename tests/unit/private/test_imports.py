"""Changes to modules that may never be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(program: str) -> str:
    """Runs the program in a process of its own: finders stay installed."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_module_is_changed_when_it_is_imported() -> None:
    program = """
import sys
from emu.private.imports import when_imported
when_imported("colorsys", lambda module: setattr(module, "ONE_THIRD", 3))
when_imported("colorsys", lambda module: print("changed", module.__name__))
assert "colorsys" not in sys.modules
from colorsys import ONE_THIRD, rgb_to_hsv
print(ONE_THIRD, rgb_to_hsv(0, 0, 0))
import colorsys
"""
    assert run(program) == "changed colorsys\n3 (0.0, 0.0, 0)\n"


def test_a_module_that_is_imported_already_is_changed_now() -> None:
    program = """
import colorsys
from emu.private.imports import when_imported
when_imported("colorsys", lambda module: print("changed", module.__name__))
print("then")
"""
    assert run(program) == "changed colorsys\nthen\n"


def test_a_module_that_does_not_exist_is_not_found() -> None:
    program = """
from emu.private.imports import when_imported
when_imported("no_such_module", print)
try:
    import no_such_module
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(program) == "no_such_module\n"
