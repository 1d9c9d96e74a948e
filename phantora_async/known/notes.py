"""Reads what the processes of a run have noted (emu/stub/inputs.c)."""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from formats.files import read_bytes

VERSION = 1
MOST_NBYTES = 64 << 20
_HEAD = struct.Struct("<IIIIqII")
_NOTE = struct.Struct("<IHBx")


class Flag(enum.IntFlag):
    """The kinds of use of a path, as `enum flags` of inputs.c has them."""

    MISSING = 1
    LOOKED = 2
    READ = 4
    LISTED = 8
    IMPORT_LISTED = 16
    WRITTEN = 32
    REMOVED = 64
    FIRST_WRITTEN = 128
    IMPORTED = 256
    """It was used before the interpreter got the run's job: a warm interpreter may have done so long before."""


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of what the processes of a run did with files and libraries."""

    paths: Mapping[str, int]
    """For each path its flags. It begins at the root of the process that used it."""
    started: frozenset[str] = frozenset()
    """The programs that were started, as they were named."""
    connected: frozenset[str] = frozenset()
    """The addresses to which sockets were connected: "HOST PORT", or the path of a Unix socket."""
    ports: frozenset[str] = frozenset()
    """The ports on which the run's own processes listened."""
    measured: frozenset[str] = frozenset()
    """The paths of file systems whose free space was asked."""
    imports_began_ns: int = 0
    """The instant before the first import, as `time.time_ns` has it."""
    visible: tuple[str, ...] | None = None
    """The paths below private folders of the servers that are this machine's; None: servers have no private folders."""
    own: tuple[str, ...] = ()
    """Folders that are the run's own, or a warm interpreter's."""
    unnoted: str = ""
    """The reason why something was not noted; "" if all was."""


def read(file: Path, own: tuple[str, ...], visible: tuple[str, ...] | None, unnoted: str) -> Notes:
    """Reads the notes of a run whose processes have ended."""
    try:
        content = read_bytes(file, MOST_NBYTES)
        version, slots, used, full, began_ns, imported, _ = _HEAD.unpack_from(content)
        offsets = struct.unpack_from(f"<{slots}I", content, _HEAD.size)
    except (OSError, struct.error) as error:
        return Notes({}, unnoted=unnoted or f"the notes cannot be read: {error}")
    if version != VERSION:
        return Notes({}, unnoted=unnoted or "the notes are of another version")
    if full or used > len(content):
        unnoted = unnoted or "there was no room for all notes"
    paths: dict[str, int] = {}
    others: dict[str, set[str]] = {"E": set(), "C": set(), "B": set(), "R": set()}
    for offset in filter(None, offsets):
        _, length, flags = _NOTE.unpack_from(content, offset)
        text = os.fsdecode(content[offset + _NOTE.size : offset + _NOTE.size + length])
        if text.startswith("/"):
            paths[text] = flags | (Flag.IMPORTED if offset < imported else 0)
        else:
            others[text[0]].add(text[2:])
    started, connected, ports, measured = (frozenset(others[kind]) for kind in "ECBR")
    return Notes(paths, started, connected, ports, measured, began_ns, visible, own, unnoted)
