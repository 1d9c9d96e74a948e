"""Runs the published hangs and the programs that end well, and prints what was found, with seconds of processor time.

python -m tests.hangs
python -m tests.hangs many
python -m tests.hangs --keep FOLDER 'two_*' slow_rank
python -m tests.hangs --judge FOLDER --write
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from . import document
from .published import MANY, MANY_RANKS, Hang, Verdict, cases_done, good_programs, hangs, many_programs, races

ROOT = Path(__file__).resolve().parents[2]
RANKS_PYTHON = os.environ.get("PHANTORA_TEST_PYTHON", sys.executable)
LIMIT_S = 900
"""A run that takes longer has not found anything."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of one run."""

    exit_code: int
    processor_s: float
    output: str


def run(program: Path, ranks: int, options: list[str]) -> Done:
    """Runs a program as a user would, in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="hangs-") as name:
        folder = Path(name)
        for file in (program, *(program.with_name(name) for name in ("job.py", "cases.py"))):
            if file.exists():
                shutil.copy(file, folder)
        command = [sys.executable, "-m", "phantora_async", "run", "-n", str(ranks), "--python", RANKS_PYTHON]
        command += ["--run-dir", "run", *options, program.name]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        with (folder / "output").open("w") as output:
            process = subprocess.Popen(
                ["timeout", str(LIMIT_S), *command],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": path},
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        return Done(process.returncode, used.ru_utime + used.ru_stime, (folder / "output").read_text())


def _programs(patterns: list[str]) -> Iterator[tuple[str, Hang | None, Path, int]]:
    programs = [(hang.name, hang, hang.program, hang.ranks) for hang in hangs()]
    programs += [(path.stem, None, path, ranks) for path, ranks in good_programs().items()]
    programs += [(path.stem, None, path, MANY_RANKS) for path in many_programs()]
    for program in programs:
        names = (program[0], program[2].parent.name)
        if not patterns or any(fnmatch(name, pattern) for name in names for pattern in patterns):
            yield program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hangs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, also as patterns (default: all)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the end of each run as DIR/NAME.json")
    parser.add_argument("--judge", metavar="DIR", type=Path, help="run nothing: judge what --keep has kept")
    parser.add_argument("--at-once", metavar="N", type=int, default=1, help="run so many programs side by side")
    parser.add_argument("--write", action="store_true", help="write docs/data/hangs.md")
    arguments, options = parser.parse_known_args()
    if arguments.write and arguments.names:
        parser.error("--write is for all programs: name none")

    def one(program: tuple[str, Hang | None, Path, int]) -> document.Row:
        name, hang, path, ranks = program
        kept = (arguments.judge or arguments.keep or Path()) / f"{name}.json"
        if arguments.judge:
            if not kept.exists():
                return document.Row(name, hang, ranks, document.NOT_RUN, 0.0)
            done = Done(**json.loads(kept.read_text()))
        else:
            done = run(path, ranks, [*(hang.options if hang else ()), *options])
        if arguments.keep:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(asdict(done)))
        if hang is None:
            verdict = "ends well" if done.exit_code == 0 and not races(done.output) else "false alarm"
        else:
            verdict = hang.judge(done.exit_code, done.output)
        print(f"{name:20} {verdict} (exit code {done.exit_code}, {done.processor_s:.1f} s)", flush=True)
        cases = 0
        if path.parent == MANY:
            cases = cases_done(done.output)
            print(f"{name:20} {cases} cases", flush=True)
        return document.Row(name, hang, ranks, verdict, done.processor_s, cases)

    with ThreadPoolExecutor(arguments.at_once) as pool:
        rows = list(pool.map(one, _programs(arguments.names)))
    counts = Counter(row.verdict for row in rows)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if arguments.write:
        document.PATH.write_text(document.render(rows))
    return 0 if counts[Verdict.MISSED] + counts[Verdict.WRONG] + counts["false alarm"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
