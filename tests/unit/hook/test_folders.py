"""The hook library's folders: what each may include and call, and that each says what lives in it."""

import graphlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import HOOK

FOLDERS = sorted({path.parent for path in HOOK.glob("*/*.[ch]")})
GROUND = ["core", "cuda"]
OP_STREAM = [*GROUND, "channel", "threads", "op_stream"]
DEVICE_MEMORY = [*OP_STREAM, "device", "memory"]
STREAMS = [*DEVICE_MEMORY, "costs", "data", "sources", "streams"]
WORK = [*STREAMS, "copies", "graphs", "kernels", "nvtx"]
MAY_INCLUDE = {
    # What all build on.
    "cuda": [],
    "core": ["cuda"],
    # The socket: knows no segment, trace, site or Python.
    "channel": ["core"],
    # Threads, and the host's time.
    "threads": [*GROUND, "channel"],
    # What a rank states, in order.
    "op_stream": ["core", "channel", "threads"],
    # What it states it about.
    "costs": ["core", "op_stream"],
    "device": GROUND,
    "nvtx": OP_STREAM,
    "memory": [*OP_STREAM, "device"],
    "sources": OP_STREAM,
    "data": [*DEVICE_MEMORY, "nvtx", "sources"],
    "streams": [*DEVICE_MEMORY, "costs", "data"],
    "graphs": [*STREAMS, "nvtx"],
    "kernels": [*STREAMS, "graphs", "nvtx"],
    "copies": [*STREAMS, "graphs", "kernels"],
    "holders": [*DEVICE_MEMORY, "data", "nvtx"],
    # One folder for each API.
    "cublas": [*WORK, "holders"],
    "cudart": WORK,
    "cudnn": WORK,
    "cufft": WORK,
    "cufile": WORK,
    "cupti": WORK,
    "cusolver": WORK,
    "cusparse": WORK,
    "driver": [*WORK, "cudart"],
    "nccl": [*WORK, "holders"],
    "nvml": WORK,
    # What puts all together.
    "calls": [
        *OP_STREAM,
        "kernels",
        "nvtx",
        "cublas",
        "cudart",
        "cudnn",
        "cufft",
        "cufile",
        "cupti",
        "cusolver",
        "cusparse",
        "driver",
        "nccl",
        "nvml",
    ],
    "process": [*WORK, "cupti", "nccl"],
}
"""Folder -> folders whose headers it may include and whose functions it may call, besides its own. A folder that must
call one above it does so through a pointer, which the upper one sets (PH_CONNECT in core/run.h)."""


def included(source: Path) -> Iterator[str]:
    """Folders of the headers and lists that a file includes."""
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', source.read_text(), re.MULTILINE):
        path = source.parent / name if (source.parent / name).exists() else HOOK / name
        assert path.exists(), f"{source} includes {name}, which does not exist"
        if HOOK in path.resolve().parents:
            yield path.resolve().relative_to(HOOK).parts[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_includes_only_what_it_may(folder):
    assert folder.name in MAY_INCLUDE, f"{folder.name} needs a line in MAY_INCLUDE"
    allowed = {folder.name, *MAY_INCLUDE[folder.name]}
    for source in sorted(folder.iterdir()):
        if source.suffix in (".c", ".h", ".def"):
            assert set(included(source)) <= allowed, source


def test_the_table_s_names_exist():
    assert sorted(MAY_INCLUDE) == [path.name for path in FOLDERS]
    assert {name for names in MAY_INCLUDE.values() for name in names} <= set(MAY_INCLUDE)


def test_folders_include_one_way():
    """Raises CycleError, which names the cycle."""
    graphlib.TopologicalSorter(MAY_INCLUDE).prepare()


def test_folders_call_one_way(library):
    """A function that is declared where it is called needs no header: what the linker sees says so, too."""
    folders = {f"{path.parent.name}-{path.stem}.o": path.parent.name for path in HOOK.glob("*/*.c")}
    files = [library.parent / "objects" / name for name in folders]
    printed = subprocess.run(["nm", "-A", "-P", *files], capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r"^.*/([^/]+\.o): (\S+) (\w)", printed, re.MULTILINE)
    defined = {symbol: folders[name] for name, symbol, kind in symbols if kind.isupper() and kind != "U"}
    calls = {
        (folders[name], defined[symbol], symbol) for name, symbol, kind in symbols if kind == "U" and symbol in defined
    }
    assert len(calls) > 500
    assert [call for call in sorted(calls) if call[1] not in (call[0], *MAY_INCLUDE[call[0]])] == []


@pytest.mark.parametrize("folder", [path for path in FOLDERS if any(path.glob("*.c"))], ids=lambda path: path.name)
def test_a_folder_says_what_lives_in_it(folder):
    """One file begins with "<folder>/: ..."; it is the folder's main header, or its only source."""
    begins = re.compile(rf"/\*\s+(\* )?{folder.name}/: ")
    assert len([source for source in folder.glob("*.[ch]") if begins.match(source.read_text())]) == 1
