"""Seeds the random generators of a rank with its number.

A new interpreter seeds them from the kernel's randomness; a forked one inherits the forker's state. Here a script that
seeds nothing draws the same numbers in every run, and other numbers on every rank.
"""

from __future__ import annotations

import hashlib
import random
import sys


def seed(rank: int) -> None:
    """In the rank, before the script: Python's, numpy's and torch's default CPU generators.

    Torch's CUDA generators need nothing: their default seed is a constant.
    """
    number = int.from_bytes(hashlib.blake2b(f"rank {rank}".encode(), digest_size=8).digest(), "little")
    random.seed(number)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(number % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number % 2**63)
