"""Counts how widely one idea is spread over the code, and how the code is divided: `python -m tests.code_counts` prints
the tables of docs/data/code-counts.md.

A name counts in a file by whole words: a record by its number or its class, a time account by the field of reports that
holds its time, an option of `run` by its own name. Options whose names are single words are left out: `on` and `host`
stand everywhere.
"""

from __future__ import annotations

import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.options import RunOptions
from tests.unit.test_record_kinds import files_by_kind

ROOT = Path(__file__).parents[1]
PRODUCT = ("phantora_async", "emu", "netsim", "profiles", "formats")
OTHERS = ("tests", "laboratory")
SOURCES = (".py", ".c", ".h")
TABLES = (".def", ".js", ".toml")


def files(rooms: Iterable[str], suffixes: tuple[str, ...]) -> list[Path]:
    """Returns the files of these kinds, each once: `emu/formats` is a link to another room."""
    found = {path.resolve() for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in suffixes}
    return sorted(path for path in found if path.is_file())


def nlines(paths: Iterable[Path]) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def comment_share(path: Path) -> tuple[int, int]:
    """Returns how many lines of a file have a comment, and how many lines it has. Docstrings are no comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT}), text.count("\n")
    comments = re.findall(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL)
    return sum(one.count("\n") + 1 for one in comments), text.count("\n")


def naming(names: Iterable[str]) -> Counter[str]:
    """Returns how many files of the product name each of these, as a whole word."""
    words = Counter[str]()
    for path in files(PRODUCT, (*SOURCES, *TABLES)):
        words.update(set(re.findall(r"\w+", path.read_text(encoding="utf-8"))))
    return Counter({name: words[name] for name in names})


def spread(title: str, found: Counter[str]) -> str:
    """Returns the row that says in how many files each of several names stands."""
    most = ", ".join(f"{name} {count}" for name, count in found.most_common(5))
    return f"| {title} | {len(found)} | {statistics.median(found.values()):g} | {most} |"


def main() -> None:
    print("| what | how many | files that name one, median | most |\n| --- | ---: | ---: | --- |")
    print(spread("kind of record", files_by_kind()))
    print(spread("time account (its field in reports)", naming(account.ns for account in TIME_ACCOUNTS)))
    options = [field.name for field in fields(RunOptions) if "_" in field.name]
    print(spread("option of `run` whose name has several words", naming(options)))
    print("\n| room | files | lines (py, c, h) | lines of tables (def, js, toml) | lines with a comment |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for room in (*PRODUCT, *OTHERS):
        sources = files([room], SOURCES)
        commented, every = map(sum, zip(*map(comment_share, sources), strict=True))
        lines, tables = nlines(sources), nlines(files([room], TABLES))
        print(f"| {room} | {len(sources)} | {lines:,} | {tables:,} | {commented / every:.1%} |")
    sources = files(PRODUCT, SOURCES)
    print(f"\nProduct: {nlines(sources):,} lines of py, c and h in {len(sources):,} files.")
    for title, pattern in (("docs", "*.md"), ("docs/data", "data/*.md")):
        found = sorted((ROOT / "docs").glob(pattern))
        words = sum(len(page.read_text(encoding="utf-8").split()) for page in found)
        print(f"{title}: {len(found)} pages, {words:,} words.")


if __name__ == "__main__":
    main()
