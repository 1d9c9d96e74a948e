"""Handlers of modules that the forker has imported take no host time: at an interpreter's end, and around forks."""

from __future__ import annotations

import subprocess
import sys

BEFORE = """
import atexit, os
from types import SimpleNamespace
from emu.start.prepare import _leave_out_handlers
done = []
"""
AT_THE_END = """
atexit.register(lambda: print(*done))
atexit.register(done.append, "of a module that the forker has imported")
_leave_out_handlers(SimpleNamespace(aside=lambda by: done.append(f"aside {by},")))
atexit.register(done.append, "of the script,")
"""
AROUND_A_FORK = """
def register(whose):
    os.register_at_fork(
        before=lambda: done.append(f"{whose} before,"),
        after_in_parent=lambda: done.append(f"{whose} after,"),
        after_in_child=lambda: done.append(f"{whose} after,"),
    )
register("module")
_leave_out_handlers(SimpleNamespace(aside=lambda by: done.append(f"aside {by},")))
register("script")
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*done, flush=True)
os._exit(0)
"""


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", BEFORE + program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_at_the_end_those_of_the_script_run_before_nothing_counts_any_more() -> None:
    assert printed(AT_THE_END) == ["of the script, aside 1, of a module that the forker has imported"]


def test_around_a_fork_those_of_the_script_count() -> None:
    """The script's handlers count in the parent and in the child."""
    both = "script before, aside 1, module before, module after, aside -1, script after,"
    assert printed(AROUND_A_FORK) == [both, both]
