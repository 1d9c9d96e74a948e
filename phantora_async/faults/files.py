"""Reads files of faults: TOML with one list of texts, ``faults = ["gpu 17 at 0.7x from 3s"]``."""

from __future__ import annotations

from pathlib import Path

from formats.toml import FileTable, read_toml
from phantora_async.faults.grammar import parse
from phantora_async.faults.kinds import Fault, FaultError


def read_faults(path: Path) -> list[Fault]:
    """Reads the faults in a file. Raises FaultError, which names file and line."""
    source, values = read_toml(path, _fault)
    table = FileTable(values, "", (source,), _fault)
    texts = table.texts("faults")
    table.end()
    faults = []
    for text in texts:
        try:
            faults.append(parse(text))
        except FaultError as error:
            raise FaultError(f"{path}: {error.message}", error.hint) from None
    return faults


def _fault(message: str) -> FaultError:
    return FaultError(message, 'a file of faults: faults = ["gpu 17 at 0.7x from 3s"]')
