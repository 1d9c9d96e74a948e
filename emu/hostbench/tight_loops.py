"""Loops of few operators, as in decoding, sampling, searches and optimizers written by hand.

There the code of the operators, of the launches and of Python stays in the processor's first caches, and all of it
takes a fraction of what it takes in a training step. How much comes back within how many operators differs by program.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .model import WIDTH
from .various_operators import POSITIONS, Step, others, pointwise
from .workload import Run, phase_ends, workload

CALLS = 96


def _turns(steps: list[Step]) -> Run:
    """Each step in turn, on the same tensor, without gradients."""
    x, turns = torch.rand(2, POSITIONS, WIDTH, device="cuda"), CALLS // len(steps)

    def run() -> None:
        with torch.no_grad():
            for _ in range(turns):
                for step in steps:
                    step(x)

    return run


@workload
def turns_of_one() -> Run:
    return _turns([lambda x: x * 0.5])


@workload
def turns_of_three() -> Run:
    return _turns([torch.exp, *others()[9:11]])


@workload
def turns_of_eight() -> Run:
    return _turns([*pointwise()[4::10], *others()[2::10]])


@workload
def turns_of_sixteen() -> Run:
    return _turns([*pointwise()[::5], *others()[1::5]])


@workload
def turns_of_forty_eight() -> Run:
    return _turns([*pointwise()[:24], *others()[8:32]])


@workload
def turns_of_views() -> Run:
    return _turns([lambda x: x[:, 1], lambda x: x.transpose(1, 2), lambda x: x.view(2, -1), lambda x: x[None]])


@workload
def recurrent_cell() -> Run:
    """A gated cell written by hand, forward and backward."""
    into, again = (nn.Linear(WIDTH, 2 * WIDTH, device="cuda") for _ in range(2))
    xs, h0 = torch.rand(12, 4, WIDTH, device="cuda"), torch.zeros(4, WIDTH, device="cuda")

    def run() -> None:
        h = h0
        for x in xs.unbind():
            gate, new = (into(x) + again(h)).chunk(2, -1)
            gate = gate.sigmoid()
            h = gate * h + (1 - gate) * new.tanh()
        loss = h.sum()
        phase_ends("forward")
        loss.backward()
        phase_ends("backward")
        into.zero_grad()
        again.zero_grad()

    return run


@workload
def sampling() -> Run:
    """Tokens drawn from logits, by top-p."""
    logits, token = torch.randn(4, 512, device="cuda"), torch.zeros(4, 1, dtype=torch.int64, device="cuda")

    def run() -> None:
        with torch.no_grad():
            tokens = token
            for _ in range(6):
                ordered, at = (logits / 0.8).sort(dim=-1, descending=True)
                p = ordered.softmax(-1)
                p = p.masked_fill(p.cumsum(-1) - p > 0.9, 0.0)
                drawn = (p + 1e-6).multinomial(1)
                tokens = torch.cat((tokens, at.gather(-1, drawn)), -1)

    return run


@workload
def decoding() -> Run:
    """Tokens of a small transformer with a cache, one after the other."""
    layers, past, heads = 3, 24, 4
    packed = [nn.Linear(WIDTH, 3 * WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]
    output = [nn.Linear(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]
    norms = [nn.RMSNorm(WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]
    shape = (2, heads, past, WIDTH // heads)
    keys = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]
    values = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]
    first = torch.rand(2, 1, WIDTH, device="cuda", dtype=torch.bfloat16)

    def one(layer: int, x: Tensor, at: int) -> Tensor:
        q, k, v = packed[layer](norms[layer](x)).view(2, 1, 3 * heads, -1).transpose(1, 2).chunk(3, 1)
        keys[layer][:, :, at : at + 1] = k
        values[layer][:, :, at : at + 1] = v
        seen = keys[layer][:, :, : at + 1], values[layer][:, :, : at + 1]
        y = functional.scaled_dot_product_attention(q, *seen)
        return x + functional.silu(output[layer](y.transpose(1, 2).reshape(2, 1, WIDTH)))

    def run() -> None:
        with torch.no_grad():
            for at in range(16, 20):
                x = first
                for layer in range(layers):
                    x = one(layer, x, at)

    return run


@workload
def clusters() -> Run:
    """Points are given to the nearest centre, and centres move to their points' mean."""
    points, start = torch.rand(256, 8, device="cuda"), torch.rand(16, 8, device="cuda")
    ones = torch.ones(256, device="cuda")

    def run() -> None:
        with torch.no_grad():
            centres = start
            for _ in range(8):
                nearest = torch.cdist(points, centres).argmin(-1)
                sums = torch.zeros_like(centres).index_add_(0, nearest, points)
                count = torch.zeros(16, device="cuda").index_add_(0, nearest, ones)
                centres = sums / count.clamp(min=1)[:, None]

    return run


@workload
def descent_by_hand() -> Run:
    """Momentum and weight decay of each parameter, in place."""
    parameters, momenta = ([torch.rand(64, device="cuda") for _ in range(24)] for _ in range(2))

    def run() -> None:
        with torch.no_grad():
            for p, m in zip(parameters, momenta, strict=True):
                m.mul_(0.9).add_(p, alpha=0.1)
                p.mul_(0.99).add_(m, alpha=-1e-3)

    return run


@workload
def integration() -> Run:
    """Steps of Heun's method through a small network."""
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).cuda()
    start = torch.rand(8, WIDTH, device="cuda")

    def run() -> None:
        with torch.no_grad():
            x = start
            for _ in range(8):
                k = net(x)
                x = x + 0.05 * (k + net(x + 0.1 * k))

    return run
