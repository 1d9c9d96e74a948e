"""A module that `local_ranks.py` imports: which GPUs of a server look at something."""

import os

GPU = int(os.environ["LOCAL_RANK"])


def looks() -> bool:
    return GPU % 3 > 0
