"""Lines of the program in what people read: as ranks announce them, and as stacks show them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from emu.contract import installed, records, stack_request
from phantora_async.ingest.call_sites import Line, Site, from_record, innermost, texts
from phantora_async.liveness.rank_stacks import MOST_NBYTES, Stacks, crash_site, main_thread

PACKAGES = "/opt/venv/lib/python3.12/site-packages"
OURS = f"{installed.EMU}/start/rank.py"
DUMP = f"""\
Thread 0x00007f0001 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait
  File "/home/user/data.py", line 3 in background

Current thread 0x00007f0002 (most recent call first):
  File "/usr/lib/python3.12/queue.py", line 171 in get
  File "{PACKAGES}/library/load.py", line 20 in fetch
  File "/home/user/train.py", line 17 in load
  File "/home/user/train.py", line 40 in <module>
  File "{OURS}", line 150 in _run_file
"""


def announced(line: int, via_line: int, *texts: str) -> Site | None:
    (record,), _ = records.decode_up(records.Site.encode(0, 1, line, via_line, 0, payload="\n".join(texts).encode()))
    assert isinstance(record, records.Site)
    return from_record(record)


def test_an_announced_site_reads_as_file_line_and_function() -> None:
    site = announced(42, 120, "/home/user/train.py", "step", f"{PACKAGES}/torch/distributed/fsdp/x.py", "gather")
    assert str(site) == "/home/user/train.py:42 in step (via torch/distributed/fsdp/x.py:120 in gather)"
    assert str(announced(7, 0, f"{os.getcwd()}/sub/train.py", "<module>", "", "")) == "sub/train.py:7"
    assert str(announced(0, 9, "", "", f"{PACKAGES}/library/x.py", "main")) == "library/x.py:9 in main"
    assert announced(0, 0, "", "", "", "") is None


def test_the_same_site_is_named_once() -> None:
    one, two = Site(Line("/a.py", 1, "f")), Site(Line("/a.py", 2, "f"))
    assert texts([one, None, two, one]) == "/a.py:1 in f, /a.py:2 in f"


def test_a_stack_s_main_thread_and_the_user_s_line_in_it() -> None:
    lines = main_thread(DUMP)
    assert lines[0] == Line("/usr/lib/python3.12/queue.py", 171, "get")
    assert innermost(lines) == Site(
        Line("/home/user/train.py", 17, "load"), Line(f"{PACKAGES}/library/load.py", 20, "fetch")
    )
    assert main_thread("") == []


def test_a_stack_of_libraries_alone_shows_the_outermost_but_torch() -> None:
    run, train = Line(f"{PACKAGES}/framework/run.py", 5, "main"), Line(f"{PACKAGES}/framework/train.py", 8, "train")
    torch = Line(f"{PACKAGES}/torch/cuda/__init__.py", 900, "synchronize")
    assert innermost([torch, train, run, Line("<string>", 1, "<module>")]) == Site(run, train)
    assert innermost([torch, run]) == Site(run)
    assert innermost([torch]) is None


def test_a_rank_without_a_file_is_never_signalled(tmp_path: Path) -> None:
    stacks = Stacks(tmp_path)
    stacks.ask(0, os.getpid())  # the signal would end this process
    assert stacks.complete()
    assert stacks.where(0) is None
    assert stacks.keep(tmp_path) == {}


def test_a_stack_of_any_size_is_read_up_to_a_limit(tmp_path: Path) -> None:
    """The file is one that the rank's script can write to."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    path = Path(stack_request.path_of(str(folder), 0))
    path.touch()
    stacks = Stacks(folder)
    ended = subprocess.Popen(["true"])
    stacks.ask(0, ended.pid)
    ended.wait()
    path.write_text(DUMP)
    os.truncate(path, 1 << 40)
    assert str(stacks.where(0)).startswith("/home/user/train.py:17 in load")
    (kept,) = stacks.keep(tmp_path).values()
    assert kept.stat().st_size == MOST_NBYTES


def test_other_threads_are_told_at_lines_of_the_user(tmp_path: Path) -> None:
    """Not the one of a library, and not the emulation's own."""
    path = Path(stack_request.path_of(str(tmp_path), 0))
    path.touch()
    stacks = Stacks(tmp_path)
    ended = subprocess.Popen(["true"])
    stacks.ask(0, ended.pid)
    ended.wait()
    others = "".join(
        f'Thread 0x00007f000{number} (most recent call first):\n  File "{file}", line 5 in run\n\n'
        for number, file in enumerate((f"{PACKAGES}/tqdm/monitor.py", OURS), start=3)
    )
    path.write_text(others + DUMP)
    assert stacks.beside(0) == [Site(Line("/home/user/data.py", 3, "background"))]
    assert str(stacks.where(0)).startswith("/home/user/train.py:17 in load")
    assert stacks.beside(1) == []


def test_a_fault_s_place_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(f"step 1\nFatal Python error: Segmentation fault\n\n{DUMP}")
    site = crash_site(log)
    assert site is not None
    assert str(site.line) == "/home/user/train.py:17 in load"
    log.write_text("step 1\n")
    assert crash_site(log) is None
    assert crash_site(tmp_path / "none.log") is None
