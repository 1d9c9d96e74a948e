"""The resources that `--reasons` makes twice as fast: their names in reports and in sentences."""

from __future__ import annotations

from enum import Enum

from phantora_async.figures.time_accounts import COPIES as OF_COPIES
from phantora_async.figures.time_accounts import HOST as THE_HOST


class Resource(Enum):
    """One resource; its value is its name in reports and tables."""

    COMPUTE = "GPU compute"
    MEMORY = "GPU memory"
    COPIES = "copies"
    LINKS = "links in servers"
    NETWORK = "network between servers"
    HOST = "host"


IN_SENTENCES = {
    Resource.COMPUTE.value: "GPU computation",
    Resource.COPIES.value: OF_COPIES,
    Resource.NETWORK.value: "the network between servers",
    Resource.HOST.value: THE_HOST,
}
"""The names that a sentence needs where they differ from those in tables."""
