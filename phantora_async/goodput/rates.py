"""Estimates how often parts of a machine fail.

The defaults are the unexpected interruptions of 54 days of Llama 3's pre-training on 16,384 H100: "The Llama 3 Herd of
Models", arXiv:2407.21783, table 5. 419 interruptions, counted by cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HOUR_S = 3600.0
LLAMA3_GPUS = 16_384
LLAMA3_HOURS = 54 * 24
LLAMA3 = {
    "gpu": 148 + 72 + 19 + 17 + 6,
    "network": 35 + 7,
    "node": 32 + 3 + 3 + 2 + 2 + 2 + 2,
    "software": 54 + 2 + 7 + 6,
}
"""gpu: faulty GPUs 148, HBM3 72, SRAM 19, system processor 17, thermal interface and sensor 6. network: switches and
cables 35, NICs 7. node: host maintenance 32, SSD 3, power supply 3, chassis 2, IO board 2, CPU 2, memory 2. software:
bugs 54, dependencies 2, NCCL's watchdog 7, silent data corruption 6."""
SOURCE = "419 interruptions in 54 days on 16,384 H100 (The Llama 3 Herd of Models, table 5)"
GPUS_PER_NODE = 8
"""The number of GPUs per node of the machine on which these rates were counted."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Failures per second of the whole machine, by cause."""

    per_s: Mapping[str, float]
    source: str

    @property
    def total(self) -> float:
        return sum(self.per_s.values())

    @property
    def mean_s(self) -> float:
        """The mean time between failures of the machine."""
        return 1 / self.total


def published(gpus: int) -> dict[str, float]:
    """Failures per second on so many GPUs, by cause."""
    gpu_s = LLAMA3_GPUS * LLAMA3_HOURS * HOUR_S
    return {cause: count * gpus / gpu_s for cause, count in LLAMA3.items()}


def rates_of(gpus: int, nodes: int, mtbf_s: Mapping[str, float]) -> Rates:
    """The rates of a machine. `mtbf_s`: the mean time between failures of one part: of a GPU (`gpu`), of a node
    (`node`, `network`, `software`); a cause that it does not name has its published rate.
    """
    parts = {"gpu": gpus, "network": nodes, "node": nodes, "software": nodes}
    per_s = published(gpus) | {cause: parts[cause] / mean_s for cause, mean_s in mtbf_s.items()}
    given = [cause for cause in per_s if cause in mtbf_s]
    source = SOURCE if not given else f"{', '.join(given)} as given"
    if given and len(given) < len(per_s):
        source += f"; others: {SOURCE}"
    return Rates(per_s, source)
