"""What the hook costs per kernel launch: ``python -m tests.bench.launch_cost [--against LIBRARY] [--repeat N]``.

Prints nanoseconds of CPU: of a launch, of a call that does nothing, and of cudaGetDevice. The aim is a launch below
300 ns. ``--against`` names another build of the library (libcuda.so.1); both run in turns, and the ratio of their
launches is printed too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from emu.contract import records
from tests.unit.hook.conftest import HOOK, build_script
from tests.unit.hook.coordinator import Coordinator, device_file, no_answer

HERE = Path(__file__).parent
LAUNCHES = 2 * 2_000_000  # as launch_cost.c makes: once unmeasured, once measured


def compiled(folder: Path) -> Path:
    program = folder / "launch_cost"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{HOOK}"]
    subprocess.run(["cc", *flags, "-o", program, HERE / "launch_cost.c", "-ldl"], check=True)
    return program


def measure(program: Path, library: Path) -> dict[str, float]:
    """One run, as a rank of its own coordinator."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        coordinator = Coordinator(folder, lambda _: (1000, 1500), no_answer)
        coordinator.start()
        command = [program, library, device_file(folder), coordinator.path, coordinator.cost_table]
        figures: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        coordinator.join()
    if coordinator.of(records.COUNTERS)[-1].launches != LAUNCHES:
        raise RuntimeError(f"{library} did not count {LAUNCHES} launches")
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
