"""The loop in which a rank polls is named with its line, from the rank's stack and the program's text."""

from __future__ import annotations

import os
from pathlib import Path

from emu.contract import installed
from phantora_async.diagnosis.polling_loops import describe_loops, innermost_loop
from phantora_async.ingest.call_sites import Line

PROGRAM = """\
import os, time
for epoch in range(2):
    while not os.path.exists("a"):
        time.sleep(1)
    print(epoch)

def waits():
    while True:
        if os.path.exists("b"):
            break
        time.sleep(1)

for name in "ab":
    def looks():
        time.sleep(1)
"""


def test_the_innermost_loop_around_a_stack_is_found(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    sleeps = Line(f"{installed.EMU}/time/sleep.py", 3, "sleep")

    def loop_of(*lines: int) -> int | None:
        loop = innermost_loop([sleeps, *(Line(str(program), line, "f") for line in lines)])
        return loop.line if loop else None

    assert loop_of(4) == 3
    assert loop_of(5) == 2
    assert loop_of(11) == 8
    assert loop_of(15) is None  # the loop ran when the function was defined
    assert loop_of(15, 5) == 2  # it is called from a loop
    assert loop_of(1) is None


def test_ranks_of_one_loop_are_named_together(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    stacks = {1: 4, 2: 4, 3: 11, 4: 1}

    def lines(rank: int) -> list[Line]:
        return [Line(str(program), stacks[rank], "waits")] if rank in stacks else []

    assert describe_loops([1, 2, 3, 4, 5], lines).splitlines() == [
        f"  ranks 1-2: in turns look and sleep in the loop at {Line(str(program), 3, 'waits')}",
        f"  rank 3: in turns look and sleep in the loop at {Line(str(program), 8, 'waits')}",
    ]


def test_a_program_without_text_has_no_loops(tmp_path: Path) -> None:
    assert innermost_loop([Line(str(tmp_path / "gone.py"), 3, "f"), Line("<string>", 1, "<module>")]) is None


def test_a_rank_may_name_any_file(tmp_path: Path) -> None:
    """A pipe is not waited for, and a text that Python cannot parse has no loops."""
    pipe, deep = tmp_path / "pipe.py", tmp_path / "deep.py"
    os.mkfifo(pipe)
    deep.write_text("-" * 100_000 + "1\n")
    assert innermost_loop([Line(str(pipe), 1, "f"), Line(str(deep), 1, "f")]) is None
