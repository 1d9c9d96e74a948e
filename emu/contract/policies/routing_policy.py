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

FORMS = "balanced, zipf:EXPONENT, random:SEED or trace:FILE"
KINDS = BALANCED, ZIPF, RANDOM, TRACE = "balanced", "zipf", "random", "trace"


@dataclass(frozen=True, slots=True)
class RoutingPolicy(Policy):
    """The policy by which tokens spread over experts."""

    exponent: float = 0.0
    """The exponent of ZIPF: the n-th most popular expert gets a share proportional to n ** -exponent."""
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


def parse(text: str) -> RoutingPolicy:
    """Reads the option's text. Raises ValueError, which says what is wrong, and OSError if the trace cannot be read."""
    kind, _, rest = text.partition(":")
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
