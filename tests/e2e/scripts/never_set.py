"""Both ranks wait for a key that nobody sets."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(minutes=30))
dist.distributed_c10d._get_default_store().get("never")
