"""Reads a source in the form that it has: a file of one of the tools, or words."""

from __future__ import annotations

import json
from pathlib import Path

from formats.files import read_text
from profiles.errors import ProfileError
from profiles.sources import infiniband, mlperf, nccl_topology, smi_topology, words
from profiles.sources.facts import Facts

MOST_NBYTES = 64 << 20
"""The largest file in bytes: the fabric of 16,384 cards is some ten megabytes."""


def read_source(source: str) -> Facts:
    """The facts of a file, or of the sentence itself if no file has that name.

    Raises ProfileError: the file cannot be read, or is none of the known forms; no GPU is named.
    """
    path = Path(source)
    if not _is_file(path):
        if "/" in source and " " not in source:
            raise ProfileError(f"{source}: no such file")
        return words.read_words(source)
    text = read_text(path, MOST_NBYTES, ProfileError)
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProfileError(f"{path}: not JSON: {error}") from None
        if mlperf.is_system(data):
            return mlperf.read_system(data, path.name)
    elif nccl_topology.is_topology(text):
        return nccl_topology.read_topology(text, path.name)
    elif smi_topology.is_topology(text):
        return smi_topology.read_topology(text, path.name)
    elif infiniband.is_fabric(text):
        return infiniband.read_fabric(text, path.name)
    raise ProfileError(
        f"{path}: none of: a system file of MLPerf (JSON), the output of nvidia-smi topo -m or of ibnetdiscover, "
        "NCCL's topology (XML)"
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a sentence may be too long for a name
        return False
