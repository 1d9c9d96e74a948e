"""Builds the hook library, libcuda.so.1, shells of it under other libraries' names, and a stand-in for Python.

The library has the SONAME libcuda.so.1; programs that open libcudart.so.13, libnccl.so.2 and the like find a shell.
The stand-in is the program that takes Python's place inside an emulated server.

``build(output_dir)`` compiles what is stale, in parallel, and links. Standard library only: the packaging runs it by
its path.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
CONTRACT = SOURCES.parent / "contract"
PRIVATE = SOURCES.parent / "private"
LIBRARY = "libcuda.so.1"
SHELLS = ("libnvidia-ml.so.1", "libcudart.so.13", "libcudart.so.12", "libnccl.so.2")
"""Names by which programs open libraries whose calls the hook takes: a shell of each is loaded before others."""
STUB = "python-stub"
STUB_SOURCE = SOURCES.parent / "stub" / "python.c"
RECEIVE = "libphantora_receive.so.1"
"""Name of the library that is loaded before all other libraries of the forker."""
RECEIVE_SOURCES = tuple(SOURCES.parent / "stub" / name for name in ("receive.c", "open.c", "inputs.c"))
COMPILE = [
    "-fexceptions",  # those of PyTorch pass through callbacks (nvtx/record_function.c)
    *("-std=gnu11", "-O2", "-g", "-fPIC", "-pthread", "-fvisibility=hidden", "-fno-semantic-interposition"),
    *("-Wall", "-Wextra", "-Werror"),
]
WORKSPACES = SOURCES / "cudnn" / "workspaces.csv.gz"
"""The table of the memory that cuDNN's convolutions needed (cudnn/workspace.c); `python -m laboratory.fits.workspaces`
writes it.
"""
ROW = struct.Struct("<8i2h9B3x")
"""The layout of ``measured`` in cudnn/workspace.c."""
COLUMNS = ("images", "c", "k", "taps", "image", "groups", "amount", "rest", "stride", "dilation")
FLAGS = ("flat", "extents", "bf16", "x", "y", "w")
# The numbers of the words in a row: enums of cudnn/workspace.c and of the contract, in their order.
TYPES, LAYOUTS, DIRECTIONS = ("HALF", "TF32", "F32"), ("NCHW", "NHWC"), ("FORWARD", "DGRAD", "WGRAD")
KINDS = (
    *("NOTHING", "SUMS", "OUTPUTS", "TILES", "IMAGES", "GROUPS"),
    *("WINOGRAD", "SPECTRA", "WHOLE_SPECTRA", "TILED_SPECTRA", "ALONE"),
)
GPUS = {"H100": 1, "H200": 2, "ANY": 3}
STUB_FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]


class BuildError(Exception):
    """Raised for a compiler or linker call that failed; its text is the command and its output."""


def build(output_dir: Path | str, sanitize: str | None = None, check_locks: bool = False) -> Path:
    """Compiles emu/hook into ``output_dir`` unless the library there is newer than all sources; returns its path.

    ``sanitize`` is what ``-fsanitize=`` takes. With ``check_locks`` a thread that takes locks out of their order ends
    the process (core/lock.h). Raises BuildError naming the file that does not compile.
    """
    output = Path(output_dir).resolve()
    sources = sorted(SOURCES.glob("*/*.c"))
    lists = [
        *SOURCES.glob("*/*.def"),
        *CONTRACT.rglob("*.def"),
        *CONTRACT.rglob("*.h"),
        *PRIVATE.glob("symbols.*"),
        WORKSPACES,
    ]
    shared = [*SOURCES.glob("*/*.h"), *lists, SOURCES / "build.py"]
    library = output / LIBRARY
    output.mkdir(parents=True, exist_ok=True)
    if not _is_newer(output / STUB, [STUB_SOURCE, *CONTRACT.rglob("thread_names.*")]):
        _replace(output / STUB, [*_compiler(), *STUB_FLAGS, str(STUB_SOURCE)])
    if not _is_newer(output / RECEIVE, RECEIVE_SOURCES):
        shared_object = ["-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{RECEIVE}"]
        _replace(output / RECEIVE, [*_compiler(), *STUB_FLAGS, *shared_object, *map(str, RECEIVE_SOURCES), "-ldl"])
    if _is_newer(library, [*sources, *shared]) and all((output / name).exists() for name in SHELLS):
        return library
    objects = output / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    flags = [*COMPILE, f"-I{SOURCES}", *(_sanitizer(sanitize) if sanitize else [])]
    flags += ["-DPH_CHECK_LOCKS"] if check_locks else []
    (objects / "workspaces.bin").write_bytes(packed_workspaces())
    flags.append(f"-Wa,-I,{objects}")
    newest_shared = max(path.stat().st_mtime for path in shared)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        compiled = list(pool.map(lambda source: _compile(source, objects, flags, newest_shared), sources))
    # A sanitizer's own functions come with the program; everything else must be defined here.
    _link(library, compiled, flags, ["-Wl,-z,now", *([] if sanitize else ["-Wl,-z,defs"])])
    for name in SHELLS:
        _link_shell(output, name, flags)
    return library


def packed_workspaces(table: Path = WORKSPACES) -> bytes:
    """Returns the rows of the table as an array of ``measured``, in their order."""
    with gzip.open(table, "rt", newline="") as file:
        return b"".join(map(_packed, csv.DictReader(file)))


def _packed(row: dict[str, str]) -> bytes:
    of_class = (TYPES.index(row["type"]) * len(LAYOUTS) + LAYOUTS.index(row["layout"])) * len(DIRECTIONS)
    of_class += DIRECTIONS.index(row["direction"])
    numbers, flags = ([int(row[name]) for name in names] for names in (COLUMNS, FLAGS))
    return ROW.pack(*numbers, of_class, *flags, KINDS.index(row["kind"]), GPUS[row["gpu"]])


def _is_newer(target: Path, sources: Iterable[Path]) -> bool:
    return target.exists() and all(path.stat().st_mtime <= target.stat().st_mtime for path in sources)


def _sanitizer(names: str) -> list[str]:
    return ["-O1", f"-fsanitize={names}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}")


def _compile(source: Path, objects: Path, flags: list[str], newest_shared: float) -> Path:
    made = objects / f"{source.parent.name}-{source.stem}.o"
    if not (made.exists() and made.stat().st_mtime >= max(source.stat().st_mtime, newest_shared)):
        _replace(made, [*_compiler(), *flags, "-c", str(source)])
    return made


def _link(library: Path, inputs: list[Path], flags: list[str], extra: list[str]) -> None:
    soname = f"-Wl,-soname,{library.name}"
    _replace(library, [*_compiler(), *flags, "-shared", soname, *map(str, inputs), *extra, "-ldl", "-lm"])


def _link_shell(output: Path, name: str, flags: list[str]) -> None:
    """Makes a library that is empty but for its name and its need of ours: whoever opens the real one by this name
    finds our functions, by the handle, too. Programs that are linked with the runtime also ask for a version of its
    name.
    """
    with tempfile.TemporaryDirectory() as folder:
        empty, versions = Path(folder) / "empty.c", Path(folder) / "versions"
        only = f"phantora_{re.sub('[^a-z0-9]', '_', name)}"
        calls = f"int {only}(void) {{ return phantora_abi_version(); }}\n"
        empty.write_text(f"extern int phantora_abi_version(void);\n{calls}")
        extra = ["-fvisibility=default", "-Wl,--no-as-needed", f"-L{output}", f"-l:{LIBRARY}"]
        if name.startswith("libcudart"):
            versions.write_text(f"{name} {{ global: {only}; local: *; }};\n")
            extra.append(f"-Wl,--version-script={versions}")
        _link(output / name, [empty], flags, extra)


def _replace(made: Path, command: list[str]) -> None:
    """Runs the command with its output beside ``made``, then renames: another process never sees half a file."""
    partial = made.with_name(f".{made.name}.{os.getpid()}")
    try:
        _run([*command, "-o", str(partial)])
        partial.rename(made)
    finally:
        partial.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the hook library.")
    parser.add_argument("--output", default=SOURCES.parent / "lib", type=Path, help="folder (default: emu/lib)")
    parser.add_argument("--sanitize", help="for example address,undefined")
    parser.add_argument("--check-locks", action="store_true", help="a lock taken out of order ends the process")
    arguments = parser.parse_args()
    try:
        print(build(arguments.output, arguments.sanitize, arguments.check_locks))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
