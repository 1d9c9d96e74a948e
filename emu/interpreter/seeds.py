"""What an interpreter draws from the kernel's randomness when it starts is drawn from the rank's number here.

So a script that seeds nothing does the same in every run, and still something else on every rank. Afterwards it seeds
as it likes.
"""

from __future__ import annotations

import hashlib
import random
import sys


def seed(rank: int) -> None:
    """In the rank, before the script: Python's, numpy's and torch's default generators. CUDA's have a constant seed."""
    number = int.from_bytes(hashlib.blake2b(f"rank {rank}".encode(), digest_size=8).digest(), "little")
    random.seed(number)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(number % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number % 2**63)
