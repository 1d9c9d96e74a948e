"""Runs a framework's own tests on emulated GPUs.

python -m tests.frameworks.lists --list
python -m tests.frameworks.lists --write torchtitan-features default pp_1f1b
python -m tests.frameworks.lists --write --every 20 deepspeed
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from . import document, running, verdict
from .document import Results
from .lists import LISTS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.frameworks.lists",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a list")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="tests of it, also as patterns (default: all)")
    parser.add_argument("--list", action="store_true", help="print the lists, or the tests of NAME, and end")
    parser.add_argument("--write", action="store_true", help="keep the verdicts in docs/data/test-lists.json")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="take each Nth test only, from the first")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep what each run printed in DIR")
    parser.add_argument("--limit", metavar="SECONDS", type=int, default=900, help="of one run (default: 900)")
    arguments = parser.parse_intermixed_args()
    chosen = next((tests for tests in LISTS if tests.name == arguments.name), None)
    if chosen is None:
        print("\n".join(f"{tests.name:24} {tests.title}" for tests in LISTS))
        return 0 if arguments.list else 2
    if lacks := running.absent(chosen):
        print(f"{chosen.name}: {lacks}", file=sys.stderr)
        return 2
    running.prepare(chosen)
    known = running.collected(chosen)
    names = [name for name in known[:: arguments.every] if not arguments.tests or _meant(name, arguments.tests)]
    if arguments.list:
        print("\n".join(names))
        return 0
    if not names:
        print("no test has such a name", file=sys.stderr)
        return 2
    failed = 0
    for name, one in running.run(chosen, names, arguments.limit, arguments.keep):
        cause = f" ({one.cause})" if one.cause else ""
        print(f"{verdict.parts(name)[1]}: {one.state}{cause} {one.says} [{one.seconds:.0f} s]", flush=True)
        failed += one.state == verdict.FAILS
        if arguments.write:
            kept = document.read(document.DATA.read_text()) if document.DATA.exists() else {}
            before = kept[chosen.name].tests if chosen.name in kept else {}
            date = datetime.date.today().isoformat()
            found = {**before, name: one}
            kept[chosen.name] = Results(running.versions(chosen), date, len(known), found, arguments.every)
            document.DATA.write_text(document.written(kept))
            document.PATH.write_text(document.render(LISTS, kept))
    return 1 if failed else 0


def _meant(name: str, patterns: Sequence[str]) -> bool:
    """Says whether a pattern is the test's name or fits it, with or without its file and class."""
    forms = (name, verdict.parts(name)[1])
    return any(form == pattern or fnmatch(form, pattern) for form in forms for pattern in patterns)


if __name__ == "__main__":
    sys.exit(main())
