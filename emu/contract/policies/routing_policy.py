"""The policy of `--moe`: which experts get how many tokens where a router's scores are not computed.

The command line checks it, and the ranks follow it. It says nothing about single tokens:
emu.control.routing.expert_choice makes indices of it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path

from .policy import Policy, trace_lines

FORMS = "changing[:SHARE], balanced, zipf:EXPONENT, random:SEED or trace:FILE"
KINDS = CHANGING, BALANCED, ZIPF, RANDOM, TRACE = "changing", "balanced", "zipf", "random", "trace"
CHANGES = 0.4
"""The share of CHANGING where the option names none: loads vary by 23 % of the mean (standard deviation). Those of new
routers varied by 22 and 57 %, the medians of two jobs' layers and steps (laboratory/notes/new-sizes.md).
"""


@dataclass(frozen=True, slots=True)
class RoutingPolicy(Policy):
    """The policy by which tokens spread over experts."""

    exponent: float = 0.0
    """The exponent of ZIPF: the n-th most popular expert gets a share proportional to n ** -exponent."""
    share: float = 0.0
    """By how much of the mean an expert's load changes at most, in CHANGING."""
    ranks: int = 1
    """The number of ranks of the job."""
    seed: int = 0
    """The seed of RANDOM."""
    layers: tuple[tuple[float, ...], ...] = ()
    """The loads of TRACE: those of the experts in each layer, in any unit."""

    def weights(self, experts: int, layer: int) -> tuple[float, ...] | None:
        """Returns the experts' shares in a layer, in any unit; None if they are equal. RANDOM has equal shares, too.
        Which experts are popular under ZIPF differs between layers, and is the same in every run.
        """
        if self.kind == ZIPF and self.exponent > 0:
            shares = [(n + 1.0) ** -self.exponent for n in range(experts)]
            random.Random(f"{experts} experts, layer {layer}").shuffle(shares)
            return tuple(shares)
        if self.kind == TRACE:
            fitting = [loads for loads in self.layers if len(loads) == experts]
            if fitting:
                return fitting[layer % len(fitting)]
        return None

    def changed(self, experts: int, chosen: int, layer: int, step: int) -> tuple[float, ...] | None:
        """Returns the experts' shares under CHANGING in this step, in any unit; None if they are equal, as in the first
        step. `chosen`: the number of experts of a token, which has each of them once.

        Of two neighbours one gets as much more as the other gets less, and each rank's experts, whatever number of
        ranks share a layer, have the same shares as any other's. So all ranks get equally many tokens: those that do
        the same have the same times and the same memory. That needs an even number of experts on each rank.
        """
        each, odd = divmod(experts, self.ranks)
        most = min(self.share, experts / chosen - 1)
        if self.kind != CHANGING or step == 0 or odd or each % 2 or most <= 0:
            return None
        numbers = random.Random(f"{experts} experts, layer {layer}, step {step}")
        more = [numbers.uniform(-most, most) for _ in range(each // 2)]
        return tuple(1 + sign * by for by in more for sign in (1, -1)) * self.ranks


def parse(text: str, ranks: int = 1) -> RoutingPolicy:
    """Reads the option's text for a job of so many ranks. Raises ValueError, which says what is wrong, and OSError if
    the trace cannot be read.
    """
    kind, _, rest = text.partition(":")
    if kind == CHANGING and (rest or text == CHANGING):
        share = _number(rest) if rest else CHANGES
        if not 0 <= share <= 0.9:
            raise ValueError(f"the share {rest!r} is not a number from 0 to 0.9")
        return RoutingPolicy(text, CHANGING, share=share, ranks=ranks)
    if kind == BALANCED and text == BALANCED:
        return RoutingPolicy(text, BALANCED)
    if kind == ZIPF and rest:
        exponent = _number(rest)
        if not 0 <= exponent <= 10:
            raise ValueError(f"the exponent {rest!r} is not a number from 0 to 10")
        return RoutingPolicy(text, ZIPF, exponent=exponent)
    if kind == RANDOM and rest:
        if not rest.isdecimal() or not rest.isascii() or int(rest) >= 2**32:
            raise ValueError(f"the seed {rest!r} is not a whole number from 0 to {2**32 - 1}")
        return RoutingPolicy(text, RANDOM, seed=int(rest))
    if kind == TRACE and rest:
        return RoutingPolicy(text, TRACE, layers=_read_trace(Path(rest)))
    raise ValueError(f"expected {FORMS}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _read_trace(path: Path) -> tuple[tuple[float, ...], ...]:
    """Reads a trace, which has a line for each layer: the experts' loads."""
    layers = []
    for where, words in trace_lines(path):
        loads = tuple(map(_number, words))
        if not all(0 <= load < math.inf for load in loads) or not sum(loads) > 0:
            raise ValueError(f"{where}: expected the experts' loads: numbers that are not negative, not all 0")
        layers.append(loads)
    if not layers:
        raise ValueError(f"{path} has no loads: expected a line of numbers for each layer")
    return tuple(layers)
