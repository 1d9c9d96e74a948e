"""Sequences, graphs, tables, fields: models of `varied_jobs.py`."""

import torch
from torch import nn
from torch.nn import functional as F


class ScanBlock(nn.Module):
    """A selective scan (Mamba's) in plain PyTorch: chunks by sums of logarithms, states carried from chunk to chunk."""

    def __init__(self, d, state=16, chunk=64):
        super().__init__()
        e = 2 * d
        self.state, self.chunk, self.norm = state, chunk, nn.RMSNorm(d)
        self.into, self.conv = nn.Linear(d, 2 * e, bias=False), nn.Conv1d(e, e, 4, padding=3, groups=e)
        self.select, self.rate = nn.Linear(e, d // 16 + 2 * state, bias=False), nn.Linear(d // 16, e)
        self.decay = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(e // 64, 1))
        self.skip, self.out = nn.Parameter(torch.ones(e)), nn.Linear(e, d, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        u, gate = self.into(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :t]).transpose(1, 2)
        step, k, q = self.select(u).split([self.rate.in_features, self.state, self.state], -1)
        step = F.softplus(self.rate(step)).float()
        heads, c = self.decay.size(0), self.chunk
        step = step.view(b, t // c, c, heads, -1).mean(-1)
        logs = (-step * self.decay.exp().mean(-1)).cumsum(2)
        v = u.view(b, t // c, c, heads, -1).float() * step[..., None]
        k, q = (y.view(b, t // c, c, self.state).float() for y in (k, q))
        inside = (logs[:, :, :, None] - logs[:, :, None]).masked_fill(self.later(c, x.device), -torch.inf).exp()
        y = torch.einsum("bnijh,bnjhd->bnihd", (q @ k.transpose(-1, -2))[..., None] * inside, v)
        left = torch.einsum("bnjs,bnjhd->bnhsd", k, (logs[:, :, -1:] - logs).exp()[..., None] * v)
        state, states = torch.zeros_like(left[:, 0]), []
        for n in range(t // c):
            states.append(state)
            state = state * logs[:, n, -1].exp()[:, :, None, None] + left[:, n]
        y = y + torch.einsum("bnis,bnhsd->bnihd", q, torch.stack(states, 1)) * logs.exp()[..., None]
        y = y.reshape(b, t, -1).to(u.dtype) + u * self.skip
        return x + self.out(y * F.silu(gate))

    @staticmethod
    def later(c, device):
        return torch.ones(c, c, dtype=torch.bool, device=device).triu(1)[None, None, :, :, None]


class Scan(nn.Module):
    def __init__(self, d=768, layers=8, words=32000):
        super().__init__()
        self.words, self.blocks = nn.Embedding(words, d), nn.Sequential(*(ScanBlock(d) for _ in range(layers)))
        self.head = nn.Linear(d, words, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.words(x)))


class ConformerBlock(nn.Module):
    def __init__(self, d, heads, kernel=31):
        super().__init__()
        half = lambda: nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * d, d)
        )
        self.one, self.two, self.n1, self.n2, self.n3 = half(), half(), *(nn.LayerNorm(d) for _ in range(3))
        self.attend = nn.MultiheadAttention(d, heads, 0.1, batch_first=True)
        self.wide, self.deep = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, kernel, padding=kernel // 2, groups=d)
        self.norm, self.back = nn.BatchNorm1d(d), nn.Conv1d(d, d, 1)

    def forward(self, x):
        x = x + 0.5 * self.one(x)
        y = self.n1(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        y = F.glu(self.wide(self.n2(x).transpose(1, 2)), 1)
        x = x + self.back(F.silu(self.norm(self.deep(y)))).transpose(1, 2)
        return self.n3(x + 0.5 * self.two(x))


class Conformer(nn.Module):
    """Speech to text with CTC: two strided convolutions before the blocks."""

    def __init__(self, d=384, heads=6, layers=12, words=1024):
        super().__init__()
        self.shrink = nn.Sequential(nn.Conv2d(1, d, 3, 2), nn.ReLU(), nn.Conv2d(d, d, 3, 2), nn.ReLU())
        self.into, self.head = nn.Linear(d * 19, d), nn.Linear(d, words)
        self.blocks = nn.Sequential(*(ConformerBlock(d, heads) for _ in range(layers)))

    def forward(self, x):
        x = self.shrink(x[:, None]).transpose(1, 2).flatten(2)
        return self.head(self.blocks(self.into(x)))


class Recurrent(nn.Module):
    def __init__(self, kind, width, layers, words, both=False, dropout=0.0, tied=False):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.net = getattr(nn, kind)(width, width, layers, dropout=dropout, bidirectional=both, batch_first=True)
        self.head = nn.Linear(width * (1 + both), words)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.net(self.words(x))[0])


class Ranking(nn.Module):
    """A click predictor: 26 tables in bags, products of all pairs."""

    def __init__(self, rows, width=64, sparse=False):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, width, mode="sum", sparse=sparse) for n in rows)
        self.low = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()
        )
        pairs = (len(rows) + 1) * len(rows) // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(len(rows) + 1, len(rows) + 1, -1))

    def forward(self, dense, bags, starts):
        low = self.low(dense)
        x = torch.stack([low, *(table(bag, starts) for table, bag in zip(self.tables, bags, strict=True))], 1)
        product = x @ x.transpose(1, 2)
        return self.top(torch.cat([low, product[:, self.pairs[0], self.pairs[1]]], 1))


class Low(nn.Module):
    """LoRA: a frozen matrix and a trained product of two thin ones beside it."""

    def __init__(self, base, rank=16):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), 2.0
        self.a = nn.Parameter(torch.randn(rank, base.in_features, dtype=torch.float32) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, dtype=torch.float32))

    def forward(self, x):
        y = F.dropout(x, 0.05, self.training)
        return self.base(x) + F.linear(F.linear(y, self.a.to(x.dtype)), self.b.to(x.dtype)) * self.scale


def with_low(model, names=("q_proj", "k_proj", "v_proj", "o_proj")):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in names:
                setattr(module, name, Low(child))
    return model


def graph_net(kind, inputs, width, outputs, **options):
    import torch_geometric.nn as gnn

    layer = getattr(gnn, kind)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            heads = options.get("heads", 1)
            self.a, self.b = layer(inputs, width, **options), layer(width * heads, width, **options)
            self.c = layer(width * heads, outputs, **({"heads": 1} if "heads" in options else options))

        def forward(self, x, edges):
            x = F.dropout(F.elu(self.a(x, edges)), 0.5, self.training)
            x = F.dropout(F.elu(self.b(x, edges)), 0.5, self.training)
            return self.c(x, edges)

    return Net()


class Radiance(nn.Module):
    """NeRF: positions as sines, eight layers, colours summed along each ray."""

    def __init__(self, width=256):
        super().__init__()
        self.one = nn.ModuleList(nn.Linear(63 if n == 0 else width, width) for n in range(5))
        self.two = nn.ModuleList(nn.Linear(63 + width if n == 0 else width, width) for n in range(3))
        self.thick, self.colour = (
            nn.Linear(width, 1),
            nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 3)),
        )

    def forward(self, start, way, samples=96):
        depth = (
            torch.linspace(2, 6, samples, device=start.device)
            + torch.rand(len(start), samples, device=start.device) / 24
        )
        p = start[:, None] + way[:, None] * depth[..., None]
        angles = (p[..., None] * 2.0 ** torch.arange(10, device=p.device)).flatten(2)
        p = x = torch.cat([p, angles.sin(), angles.cos()], -1)
        for layer in self.one:
            x = F.relu(layer(x))
        x = torch.cat([p, x], -1)
        for layer in self.two:
            x = F.relu(layer(x))
        gap = torch.cat([depth.diff(dim=1), torch.full_like(depth[:, :1], 1e10)], 1)
        opaque = 1 - torch.exp(-F.relu(self.thick(x)[..., 0]) * gap)
        clear = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-10], 1), 1)[:, :-1]
        return ((opaque * clear)[..., None] * self.colour(x).sigmoid()).sum(1)


class Shampoo(torch.optim.Optimizer):
    """Inverse fourth roots of both sides' statistics, by eigenvalues, at every tenth step."""

    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                grad, state = p.grad.float().flatten(1) if p.dim() > 1 else p.grad.float()[:, None], self.state[p]
                if not state:
                    state["n"], state["sides"] = 0, [torch.eye(n, device=p.device) * 1e-6 for n in grad.shape]
                for side, product in zip(state["sides"], (grad @ grad.T, grad.T @ grad), strict=True):
                    side.lerp_(product, 0.05)
                if state["n"] % 10 == 0:
                    state["roots"] = [self.root(side) for side in state["sides"]]
                state["n"] += 1
                left, right = state["roots"]
                p.add_((left @ grad @ right).view_as(p), alpha=-group["lr"])

    @staticmethod
    def root(side):
        values, vectors = torch.linalg.eigh(side)
        return vectors * values.clamp(min=1e-6).pow(-0.25) @ vectors.T
