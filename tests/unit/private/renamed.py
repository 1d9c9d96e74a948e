"""Takes away one private name after the other, each in a forked child, and installs everything. Prints, a line of JSON
each: the name, the purposes that were left out, and the exception if one was raised. Run as a program.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch.distributed.tensor

from emu.clock import rendezvous, rpc_timeouts, timeouts
from emu.clock.virtual_clock import VirtualClock
from emu.compiler import (
    compile_time,
    graph_cache,
    held_entries,
    kernels_once,
    loaded_code,
    skipped_work,
    split_graphs,
    triton_cache,
)
from emu.contract.policies import loading_policy
from emu.interpreter import call_sites, thread_names, triton_programs
from emu.interpreter.memory_holders import MemoryHolders
from emu.interpreter.nvtx_ranges import NvtxRanges
from emu.interpreter.peak_memory import PeakMemory
from emu.loading.iterators import DataLoading
from emu.private import table
from emu.private.changes import changes
from emu.private.finding import State, look
from emu.private.names import Name
from emu.sharding import propagation
from emu.start import interpreter_paths
from emu.weights import installation


def install_everything(folder: Path) -> None:
    hook, peaks = MagicMock(), PeakMemory()
    clock = VirtualClock(hook)
    os.environ[graph_cache.FOLDER] = str(folder)
    held_entries.install("0", ["script.py"])
    graph_cache.install("0")
    split_graphs.install()
    kernels_once.install()
    loaded_code.install()
    skipped_work.install()
    triton_cache.install()
    compile_time.install(hook, peaks)
    timeouts.install()
    rpc_timeouts.install()
    rendezvous.install()
    DataLoading(hook, clock, loading_policy.parse("free"), 1.0).install()
    NvtxRanges(hook).install()
    triton_programs.install(hook, MagicMock())
    call_sites.note_backward_passes(hook)
    thread_names.install(hook)
    propagation.install(hook, MagicMock())
    installation.install(MagicMock(), folder, 1, hook)
    interpreter_paths.install(sys.executable, str(folder))
    peaks.install()
    MemoryHolders(hook).install()
    for key in table.PURPOSES:
        changes.usable(key)


def remove(name: Name) -> bool:
    """Removes a name. Returns False if it is a part of a type that nothing can take away."""
    owner: Any = importlib.import_module(name.module)
    *path, attribute = name.path.split(".")
    for part in path:
        owner = getattr(owner, part)
    try:
        delattr(owner, attribute)
    except (AttributeError, TypeError):
        if not isinstance(owner, type) or attribute not in vars(owner):
            return False
        gc.get_referents(vars(owner))[0].pop(attribute)
    return True


def in_child(run: Callable[[], dict[str, Any]]) -> None:
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            told = run()
        except BaseException:
            told = {"raised": traceback.format_exc()}
        print(json.dumps(told), flush=True)
        os._exit(0)
    os.wait()


def without(name: Name, folder: Path) -> dict[str, Any]:
    gone = remove(name)
    install_everything(folder)
    return {"name": name.full, "removed": gone, "left_out": changes.left_out}


def main(folder: Path) -> None:
    names = {name.full: name for purpose in table.PURPOSES.values() for name in purpose.names}
    found = [look(name) for name in names.values()]  # imports all modules, once for all children
    for one in found:
        if one.state is State.OK:  # else it is of another version, or of a package that is not installed
            in_child(lambda name=one.name: without(name, folder))  # type: ignore[misc]


if __name__ == "__main__":
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the warnings
    assert torch.distributed.is_available()
    main(Path(sys.argv[1]))
