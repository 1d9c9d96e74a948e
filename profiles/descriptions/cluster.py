"""A cluster: which GPU, how many to a server, what connects them, which host runs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.descriptions.catalog import find
from profiles.descriptions.fields import read_toml

MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    gpu: str
    """A GPU's name or path, for load_gpu."""
    gpus_per_server: int
    host: str
    """A host model's name or path, for load_host."""
    nccl: str
    """Name of netsim's constants of NCCL's tuner: ampere, hopper, blackwell."""
    network: dict[str, Any]
    """netsim's [network] table, unread: docs/netsim.md says what its keys mean."""
    path: Path


def load_cluster(name_or_path: str | os.PathLike[str]) -> Cluster:
    """Reads a shipped cluster by name or a user's file by path. Raises UnknownProfile or ProfileError."""
    path = find("cluster", name_or_path)
    top = read_toml(path)
    cluster = Cluster(
        name=path.stem,
        gpu=top.text("gpu"),
        gpus_per_server=top.integer("gpus_per_server", least=1, most=MOST_GPUS),
        host=top.text("host"),
        nccl=top.text("nccl"),
        network=top.raw("network"),
        path=path,
    )
    top.done()
    return cluster
