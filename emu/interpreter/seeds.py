"""Seeds the random generators of a process.

A new interpreter seeds them from the kernel's randomness; a forked one inherits the forker's state. Here a script that
seeds nothing draws the same numbers in every run and on every rank, which is one of the outcomes that it allows. So
ranks share a model that they build without a seed as they share one that they build with one.
"""

from __future__ import annotations

import hashlib
import random
import sys


def seed(process: int = 0) -> None:
    """Seeds Python's, numpy's and torch's default CPU generators, before the script. `process` is 0 for ranks.

    Torch's CUDA generators need nothing: their default seed is a constant.
    """
    number = int.from_bytes(hashlib.blake2b(f"process {process}".encode(), digest_size=8).digest(), "little")
    random.seed(number)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(number % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number % 2**63)
