"""A rank is what torchrun's worker is: its environment, its `__main__`, its ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from emu.start.script import ScriptEnd
from phantora_async.config import Config
from phantora_async.errors import EnvironmentUnusable
from phantora_async.launch.launcher import Launcher
from phantora_async.launch.runtime import HOOK
from phantora_async.session import INTERRUPTS, Session

from .conftest import Jobs, configure

pytestmark = pytest.mark.torch


ARGUMENTS = ("--lr", "3e-4", "x" * 100_000, "y" * 100_000, "new\nline \udcff")
"""They may be long and have any bytes."""


def test_environment_and_main(job: Jobs, tmp_path: Path) -> None:
    ran = job(
        textwrap.dedent(
            """
            import json, os, sys, pickle
            class Mine: pass
            assert pickle.loads(pickle.dumps(Mine())).__class__ is Mine
            assert sys.stdin.read() == ""
            keys = "RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR"
            found = {key: os.environ[key] for key in keys.split()}
            found |= {"argv": sys.argv, "path": sys.path[0], "name": __name__, "file": __file__}
            found |= {"modules": [n for n in sys.modules if n.split(".")[0] == "emu"]}
            print(json.dumps(found))
            """
        ),
        *ARGUMENTS,
        options=("-n", "3", "--nproc-per-node", "2"),
    )
    assert ran.exits == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    found = [json.loads(ran.log(rank).splitlines()[0]) for rank in range(3)]
    assert [(f["RANK"], f["LOCAL_RANK"], f["GROUP_RANK"], f["LOCAL_WORLD_SIZE"]) for f in found] == [
        ("0", "0", "0", "2"),
        ("1", "1", "0", "2"),
        ("2", "0", "1", "1"),
    ]
    first = found[0]
    assert (first["WORLD_SIZE"], first["GROUP_WORLD_SIZE"], first["MASTER_ADDR"]) == ("3", "2", "node000")
    assert (first["argv"], first["name"]) == (["script.py", *ARGUMENTS], "__main__")
    assert (first["path"], first["file"]) == (str(tmp_path), str(tmp_path / "script.py"))
    assert first["modules"] == [], "a script's own package of that name must not be hidden"


def test_a_script_that_seeds_nothing_does_the_same_in_every_run(job: Jobs) -> None:
    script = """
        import random, numpy, torch
        objects = [type("C", (), {})() for _ in range(100)]
        order = [objects.index(thing) for thing in set(objects)]
        print(random.random(), numpy.random.rand(), torch.rand(1).item(), hash("x"), order)
        """
    first, second = (job(textwrap.dedent(script), options=("-n", "2")) for _ in range(2))
    assert [first.log(rank) for rank in (0, 1)] == [second.log(rank) for rank in (0, 1)]
    drawn = [first.log(rank).split()[:3] for rank in (0, 1)]
    assert drawn[0] == drawn[1], "ranks share a model that they build without a seed"


def test_module_and_package(job: Jobs, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("import sys\nfrom . import train\nprint(__name__, __spec__.name, sys.argv[1:])\n")
    ran = job("", options=("-m", "package.train", "--lr", "1"))
    assert ran.exits == {0: (0, 0)}
    assert "__main__ package.train ['--lr', '1', 'script.py']" in ran.log(0)
    assert job("", options=("-m", "package.missing")).exits == {0: (1, 0)}


ENDS = (
    ("import sys; sys.exit(3)", 3, ""),
    ("import sys; sys.exit()", 0, ""),
    ("import sys; sys.exit('no data')", 1, "no data"),
    ("raise ValueError('no such luck')", 1, "ValueError: no such luck"),
    ("import os; os._exit(5)", 5, ""),
    ("def broken(:", 1, "SyntaxError"),
    ("import threading, sys\nthreading.Timer(0.3, lambda: print('late')).start()\nsys.exit(4)", 4, "late"),
    ("import atexit; atexit.register(print, 'handler ran')", 0, "handler ran"),
    ("import sys; sys.excepthook = lambda *a: print('hooked', a[1]); raise KeyError(1)", 1, "hooked 1"),
    ("import sys; sys.excepthook = lambda *a: 1 / 0; raise KeyError(1)", 1, "Original exception was:"),
    ("import sys; del sys.excepthook; raise KeyError(1)", 1, "KeyError: 1"),
    ("class E(Exception):\n  def __str__(self): raise ValueError\nraise E", 1, "E: <exception str() failed>"),
    ("class C:\n  def __str__(self): raise ValueError\nraise SystemExit(C())", 1, ""),
    ("import sys; sys.stdout.close(); raise ValueError('closed')", 1, "ValueError: closed"),
    ("import sys; sys.stdout = None; raise ValueError('none')", 1, "ValueError: none"),
    ("import sys; sys.stdout = sys.stderr = None; sys.exit('nowhere to say it')", 1, ""),
    ("import os, tempfile; at = tempfile.mkdtemp(); os.chdir(at); os.rmdir(at); raise ValueError('gone')", 1, "gone"),
    ("import sys; sys.exit(1 << 70)", 255, ""),
    ("import atexit; atexit.register(lambda: 1 / 0)", 0, "ZeroDivisionError"),
)
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def test_ends_as_python_does(job: Jobs) -> None:
    """One rank for each way to end."""
    sources = [*(source for source, _, _ in ENDS), KILLED]
    ran = job(f"import os\nexec({sources!r}[int(os.environ['RANK'])])", options=("-n", str(len(sources))))
    assert ran.exits[len(ENDS)] == (0, signal.SIGSEGV)
    for rank, (source, code, shown) in enumerate(ENDS):
        assert ran.exits[rank] == (code, 0), (source, ran.log(rank))
        assert shown in ran.log(rank)
        assert "/emu/" not in ran.log(rank), "only the script's own frames"
    assert ran.events[-1]["event"] == "done"


def test_worker_processes(job: Jobs) -> None:
    """A rank's children are plain processes: real time, no coordinator."""
    ran = job(
        textwrap.dedent(
            """
            import multiprocessing, time, torch
            def work(queue):
                began = time.monotonic()
                time.sleep(0.2)
                queue.put(time.monotonic() - began)
            queue = multiprocessing.get_context("fork").Queue()
            worker = multiprocessing.get_context("fork").Process(target=work, args=(queue,))
            worker.start()
            assert queue.get() > 0.19
            worker.join()
            data = torch.utils.data.TensorDataset(torch.arange(8))
            loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2)
            assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
            """
        )
    )
    assert ran.exits == {0: (0, 0)}, ran.log(0)


def test_termination_is_asked_for_then_forced(job: Jobs, tmp_path: Path) -> None:
    for rank in (1, 2):
        os.mkfifo(tmp_path / f"ready{rank}")

    def stop(launcher: Launcher, event: dict[str, Any]) -> None:
        if event["event"] == "exited":
            launcher.terminate()

    ran = job(
        textwrap.dedent(
            """
            import os, signal, threading
            rank = int(os.environ["RANK"])
            if rank == 0:
                for other in (1, 2):
                    open(f"ready{other}").close()  # which waits for the other rank to open it
                raise SystemExit(9)
            if rank == 2:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(f"ready{rank}", "w").close()
            while True:
                threading.Event().wait(1)
            """
        ),
        options=("-n", "3"),
        on_event=stop,
    )
    assert ran.exits == {0: (9, 0), 1: (0, signal.SIGTERM), 2: (0, signal.SIGKILL)}


def test_the_text_of_an_exception_is_cut() -> None:
    assert ScriptEnd(1, "x" * 10**6).last_words == "x" * 2000 + " ..."
    assert ScriptEnd(1, "x" * 2000).last_words == "x" * 2000


def test_a_refusal_of_the_hook_library_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not HOOK.exists():
        pytest.skip("needs the built hook library")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")
    monkeypatch.setattr(Config, "device_file_lines", lambda config: ["nonsense=1"])
    config = configure(tmp_path, "script.py")
    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    try:
        with pytest.raises(EnvironmentUnusable) as caught:
            asyncio.run(Session(config).run())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert "the hook library rejects" in caught.value.message
    assert "nonsense" in caught.value.details
