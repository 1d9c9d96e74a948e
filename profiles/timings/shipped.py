"""Finds the tables that come with the package: `profiles/kernel_times/NAME.times.gz`, NAME being the GPU's
description.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profiles.descriptions.gpu import Gpu, load_gpu

FOLDER = Path(__file__).resolve().parents[1] / "kernel_times"
SUFFIX = ".times.gz"


def same_times(one: Gpu, other: Gpu) -> bool:
    """Do kernels take the same time on both, at the full clock? Names, what their server gives them, and among how many
    GPUs they are do not matter.
    """
    return replace(one.one_of(1), name=other.name, peer_gb_per_s=other.peer_gb_per_s) == other.one_of(1)


def shipped_times(gpu: Gpu) -> list[tuple[Path, Gpu]]:
    """Tables of that device, and the description that they were measured with: the user's may be a changed copy."""
    described = ((path, load_gpu(path.name.removesuffix(SUFFIX))) for path in sorted(FOLDER.glob(f"*{SUFFIX}")))
    return [(path, home) for path, home in described if home.device_name == gpu.device_name]
