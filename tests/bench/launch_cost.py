"""Measures the hook's cost of a kernel launch: ``python -m tests.bench.launch_cost [--against LIBRARY] [--repeat N]``.

Prints nanoseconds of CPU: of a launch, of a call that does nothing, and of cudaGetDevice. The aim is a launch below
300 ns. ``--against`` names another build of the library (libcuda.so.1), which may have an older definition of the
records; both run in turns, and the ratio of their launches is printed too.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

from emu.contract import records
from tests.unit.hook.conftest import HOOK, build_script
from tests.unit.hook.coordinator import device_file

HERE = Path(__file__).parent
CAPACITY, ENTRY_NBYTES = 1 << 10, records.CostEntry.size()
HEADER, QID = struct.Struct("<HHIQ"), struct.Struct("<Q")


class CostAnswers(threading.Thread):
    """Serves one rank: answers its COST questions and reads over all else, so that any version's records will do."""

    def __init__(self, folder: Path, version: int) -> None:
        super().__init__(daemon=True)
        self.path, self.cost_table = str(folder / "socket"), folder / "costs"
        self.cost_table.write_bytes(
            struct.pack("<IIQ", version, ENTRY_NBYTES, CAPACITY) + bytes(ENTRY_NBYTES * CAPACITY)
        )
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()

    def run(self) -> None:
        connection, _ = self._server.accept()
        pending = b""
        with connection:
            while data := connection.recv(1 << 16):
                pending += data
                while len(pending) >= HEADER.size:
                    kind, _, nbytes, _ = HEADER.unpack_from(pending)
                    padded = (nbytes + 7) & ~7
                    if len(pending) < padded:
                        break
                    if kind == records.COST:
                        (qid,) = QID.unpack_from(pending, HEADER.size)
                        connection.sendall(
                            records.CostOf.encode(qid, 1000, 1500, 1.0, records.SourceKind.ROOFLINE, 0, 0, 0)
                        )
                    pending = pending[padded:]


def compiled(folder: Path) -> Path:
    program = folder / "launch_cost"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{HOOK}"]
    subprocess.run(["cc", *flags, "-o", program, HERE / "launch_cost.c", "-ldl"], check=True)
    return program


def measure(program: Path, library: Path) -> dict[str, float]:
    """Measures one run, as a rank of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = CostAnswers(folder, ctypes.CDLL(str(library)).phantora_abi_version())
        answers.start()
        command = [program, library, device_file(folder), answers.path, answers.cost_table]
        figures: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        answers.join()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.launch_cost", description=__doc__)
    parser.add_argument("--against", type=Path, help="another libcuda.so.1, to compare with")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each; the fastest counts (default: 5)")
    arguments = parser.parse_args()
    libraries = {"this": build_script().build(HOOK.parent / "lib")}
    if arguments.against:
        libraries["against"] = arguments.against.resolve()
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        program = compiled(Path(name))
        for _ in range(arguments.repeat):
            for which, library in libraries.items():
                figures = measure(program, library)
                best[which] = {key: min(value, best.get(which, figures)[key]) for key, value in figures.items()}
    for which, figures in best.items():
        print(json.dumps({"library": str(libraries[which]), **figures}))
    if arguments.against:
        print(json.dumps({"launch_ratio": round(best["this"]["launch_ns"] / best["against"]["launch_ns"], 3)}))


if __name__ == "__main__":
    main()
