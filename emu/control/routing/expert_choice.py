"""Chooses the candidates of each row of a score matrix by a routing policy, where the scores are not computed.

The choice depends on the policy, the layer, the training step, the matrix's shape and the row alone. So it is the same
on all ranks (ranks that hold the same tokens agree), and when activations are computed again for the backward pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...contract.policies.routing_policy import RANDOM, RoutingPolicy

if TYPE_CHECKING:
    from torch import Generator, Tensor

_UNIT = 1 << 40
"""Shares are multiples of 1 / _UNIT."""


def choose(
    policy: RoutingPolicy, rows: int, candidates: int, k: int, layer: int, allowed: Tensor | None, step: int = 0
) -> Tensor:
    """Returns int64[rows, k]: distinct candidates of each row. `allowed`: bool[rows, candidates], or None for all of
    them. `step`: the number of training steps that have ended.

    A row with fewer than `k` allowed candidates chooses all of these, then others.
    """
    if not rows or allowed is None or bool(allowed.all()):
        changed = policy.changed(candidates, k, layer, step)
        if rows and changed is not None:
            return _systematic(_tensor(changed), rows, k)
        return _choose(policy, rows, candidates, k, layer, None)
    import torch

    result = torch.empty(rows, k, dtype=torch.int64, device="cpu")
    masks, mask_of = torch.unique(allowed, dim=0, return_inverse=True)
    by_mask, start = torch.argsort(mask_of, stable=True), 0
    for mask, count in zip(masks, torch.bincount(mask_of, minlength=len(masks)).tolist(), strict=True):
        members = by_mask[start : start + count]
        inside = mask.nonzero().flatten()
        taken = min(k, len(inside))
        if taken:
            result[members, :taken] = inside[_choose(policy, len(members), candidates, taken, layer, inside, start)]
        if taken < k:
            result[members, taken:] = (~mask).nonzero().flatten()[: k - taken]
        start += count
    return result


def outside(policy: RoutingPolicy, rows: int, candidates: int, groups: int, k: int, layer: int) -> Tensor:
    """Returns bool[rows, candidates]: the candidates that are in none of the `k` groups that the row chooses."""
    import torch

    chosen = _choose(policy, rows, groups, k, layer, None)
    others = torch.ones(rows, groups, dtype=torch.bool, device="cpu").scatter_(1, chosen, False)
    return others.repeat_interleave(candidates // groups, 1)


def order(policy: RoutingPolicy, rows: int, candidates: int, layer: int) -> Tensor:
    """Returns int64[rows, candidates]: all candidates of each row, ordered so that every prefix follows the policy."""
    import torch

    weights = policy.weights(candidates, layer)
    if policy.kind != RANDOM and weights is None:
        return (torch.arange(rows, device="cpu")[:, None] + torch.arange(candidates, device="cpu")) % candidates
    keys = torch.rand(rows, candidates, generator=_generator(policy, layer), device="cpu", dtype=torch.float64)
    if weights is not None:  # weighted sampling without replacement
        keys = keys.log() / _tensor(weights).clamp_min(1e-12)
    return keys.argsort(dim=1, descending=True)


def _choose(
    policy: RoutingPolicy, rows: int, candidates: int, k: int, layer: int, inside: Tensor | None, start: int = 0
) -> Tensor:
    """Returns places in `inside`, or candidates if that is None. `start`: how many rows have chosen before."""
    import torch

    count = candidates if inside is None else len(inside)
    if not rows:
        return torch.empty(0, k, dtype=torch.int64, device="cpu")
    if policy.kind == RANDOM:
        generator = _generator(policy, layer)
        return torch.rand(rows, count, generator=generator, device="cpu").topk(k, dim=1).indices
    weights = policy.weights(candidates, layer)
    if weights is None:
        return (torch.arange(start, start + rows, device="cpu")[:, None] * k + torch.arange(k, device="cpu")) % count
    shares = _tensor(weights)
    return _systematic(shares if inside is None else shares[inside], rows, k)


def _tensor(weights: tuple[float, ...]) -> Tensor:
    import torch

    return torch.tensor(weights, dtype=torch.float64, device="cpu")


def _generator(policy: RoutingPolicy, layer: int) -> Generator:
    import torch

    return torch.Generator("cpu").manual_seed(policy.seed * 1_000_003 + layer)


def _systematic(weights: Tensor, rows: int, k: int) -> Tensor:
    """Systematic sampling (Madow 1949): a candidate's places on a line of length k are as long as its share, at most
    1; a row takes the candidates at offset, offset + 1 ... Evenly spaced offsets give loads that are exact to one row.
    """
    import torch

    ends = (_shares(weights, k) * _UNIT).round().long().clamp_max(_UNIT).cumsum(0)
    # Consecutive rows get distant offsets.
    step = max(1, round(rows * 0.618))
    while math.gcd(step, rows) > 1:
        step += 1
    offsets = (torch.arange(rows, device="cpu") * step % rows * 2 + 1) * (_UNIT // (2 * rows))
    points = offsets[:, None] + torch.arange(k, device="cpu") * _UNIT
    return torch.searchsorted(ends, points, right=True).clamp_max(len(weights) - 1)


def _shares(weights: Tensor, k: int) -> Tensor:
    """Returns how often each candidate is chosen per row on average: proportional to the weights, at most 1, k in
    all."""
    import torch

    shares = weights.clamp_min(weights.max() * 1e-9)
    full = torch.zeros_like(shares, dtype=torch.bool)
    while True:
        rest = shares.masked_fill(full, 0.0)
        scaled = rest * ((k - int(full.sum())) / max(float(rest.sum()), 1e-300))
        over = scaled >= 1.0
        if bool(full.all()) or not bool((over & ~full).any()):
            return scaled.masked_fill(full, 1.0)
        full |= over
