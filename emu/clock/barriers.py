"""`torch.distributed.barrier` returns when every rank has called it.

A rank does not wait for its GPU: it goes on at once, and a collective that others reach later ends later in virtual
time only. But what others do before a barrier must be there after it: the files of rank 0, for example.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any


def install() -> None:
    """Makes `torch.distributed.barrier` wait, in real time, until every rank has called it. Called once, in the
    forker.
    """
    import torch.distributed

    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    real: Any = distributed_c10d.barrier

    @functools.wraps(real)
    def barrier(*arguments: Any, **options: Any) -> Any:
        work = real(*arguments, **options)
        if work is None:
            time.monotonic()  # virtual time: nobody can reach an earlier instant any more, so all have arrived
        return work

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("barrier") is real:
            module.__dict__["barrier"] = barrier
