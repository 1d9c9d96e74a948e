"""Reads the book of clusters: runs of others on many servers whose speed was published, and how each is simulated.

predictions = "../rows/cluster-predictions.jsonl"   # what was predicted, a line a row
published = "../rows/cluster-published.jsonl"       # what was published: no run reads it, only the page does
page = "../../docs/clusters.md"                     # its places <!-- validate: clusters --> and more are filled

[[table]]                                           # rows of one code base on one kind of cluster
name = "MPT 7B"
program = "equivalent"                              # or "unmodified", or "of that day": which program runs
source = "llm-foundry, scripts/train/benchmarking/README.md"
options = "--cluster dgx-h100 --fold dp={gpus}"     # of `phantora-async run`
command = "published/mpt.py --layers 32"            # a file beside the book; {forge}: --folder forge=DIR
python = "torchtitan"                               # the interpreter that --python names so
cause = "..."                                       # why its rows are off, where they are

[[table.row]]                                       # the first row of a curve is the one that others are divided by
name = "mpt-7b-128"
curve = "MPT 7B"
gpus = 128
tokens = 12288                                      # of a step, divided by the number of GPUs
options = "--replicas each"                         # behind the table's options
arguments = "--batch 6"                             # behind the table's command
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from formats.toml import FileTable, read_toml
from phantora_async.errors import UsageError

HINT = "phantora_async/validation/cluster_book.py shows what a book of clusters holds"
PROGRAMS = ("of that day", "unmodified", "equivalent")


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One published run of many GPUs."""

    name: str
    curve: str
    gpus: int
    tokens: float
    """The tokens of a step, divided by the number of GPUs."""
    words: tuple[str, ...]
    """The options of `phantora-async run`, the program and its arguments, with {gpus} and folders to be filled in."""


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """The rows of one code base on one kind of cluster."""

    name: str
    program: str
    source: str
    python: str
    cause: str
    rows: tuple[ClusterRow, ...]


@dataclass(frozen=True, slots=True)
class ClusterBook:
    path: Path
    predictions: Path
    published: Path
    page: Path
    tables: tuple[ClusterTable, ...]

    def rows(self) -> Iterable[tuple[ClusterTable, ClusterRow]]:
        for table in self.tables:
            for row in table.rows:
                yield table, row


def read(path: Path) -> ClusterBook:
    """Reads the book. Raises UsageError for what is malformed and for a name that two rows have."""

    def fault(message: str) -> UsageError:
        return UsageError(message, HINT)

    source, values = read_toml(path, fault)
    fields, folder = FileTable(values, "", (source,), fault), path.absolute().parent
    tables = tuple(_table(one, folder) for one in fields.tables("table"))
    predictions, published, page = [
        (folder / fields.text(key)).resolve() for key in ("predictions", "published", "page")
    ]
    fields.end()
    names = [row.name for table in tables for row in table.rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise fault(f"{path}: two rows are called {twice[0]}")
    return ClusterBook(path, predictions, published, page, tables)


def _table(fields: FileTable, folder: Path) -> ClusterTable:
    options, command = (_words(fields, key) for key in ("options", "command"))
    rows = []
    for one in fields.tables("row"):
        more, arguments = (_words(one, key, " ") for key in ("options", "arguments"))
        words = tuple(_beside(folder, word) for word in (*options, *more, *command, *arguments))
        rows.append(
            ClusterRow(one.text("name"), one.text("curve"), one.integer("gpus", least=1), one.number("tokens"), words)
        )
    return ClusterTable(
        fields.text("name"),
        fields.text("program", choices=PROGRAMS),
        fields.text("source"),
        fields.text("python"),
        fields.text("cause", " ").strip(),
        tuple(rows),
    )


def _words(fields: FileTable, key: str, default: str | None = None) -> list[str]:
    """The words of a text as a shell reads them, whose braces name folders or {gpus}. Raises UsageError."""
    text = fields.text(key, default)
    try:
        words = shlex.split(text)
        named = [name for word in words for _, name, _, _ in Formatter().parse(word) if name is not None]
    except ValueError as error:
        raise fields.error(key, f"{text!r}: {error}") from None
    if wrong := [name for name in named if not name.isidentifier()]:
        raise fields.error(key, f"{{{wrong[0]}}} names no folder; braces of a word are written twice: {{{{ }}}}")
    return words


def _beside(folder: Path, word: str) -> str:
    """A word of a command; a file beside the book by its whole name."""
    named = word.endswith((".py", ".toml")) and "{" not in word
    return str(folder / word) if named and (folder / word).is_file() else word


def filled(row: ClusterRow, folders: Mapping[str, str]) -> list[str]:
    """The words of the row's command. Raises KeyError with the name of a folder that was not given."""
    return [word.format_map({**folders, "gpus": row.gpus}) for word in row.words]
