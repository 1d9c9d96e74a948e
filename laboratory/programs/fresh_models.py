"""The models of fresh_jobs.py that no library has."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    """One expert for each token (the likeliest), every expert with room for the same number of tokens; `exchange`
    ranks share them by all-to-all."""

    def __init__(self, width, experts, exchange=1):
        super().__init__()
        self.experts, self.exchange = experts, exchange
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts // exchange, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts // exchange, 4 * width, width) * 0.02)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        chance, chosen = self.gate(tokens).softmax(-1).max(-1)
        order = chosen.argsort()
        rows = tokens[order].view(self.experts, -1, tokens.shape[-1])
        if self.exchange > 1:
            rows = exchanged(rows.contiguous()).view(self.exchange, self.experts // self.exchange, *rows.shape[1:])
            rows = rows.transpose(0, 1).flatten(1, 2)
        rows = F.gelu(rows @ self.up.to(rows.dtype)) @ self.down.to(rows.dtype)
        if self.exchange > 1:
            rows = rows.view(rows.shape[0], self.exchange, -1, rows.shape[-1]).transpose(0, 1).contiguous()
            rows = exchanged(rows)
        out = torch.empty_like(tokens).index_copy(0, order, rows.reshape(tokens.shape).to(tokens.dtype))
        return (out * chance.unsqueeze(-1)).view_as(x)


def exchanged(rows):
    from torch.distributed.nn.functional import all_to_all_single

    return all_to_all_single(torch.empty_like(rows), rows)


class Layer(nn.Module):
    def __init__(self, width, heads, experts=0, exchange=1):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.ffn = (
            Experts(width, experts, exchange)
            if experts
            else nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        )

    def attend(self, x):
        parts = (
            p.unflatten(-1, (-1, 64 if p.shape[-1] % 128 else 128)).transpose(1, 2)
            for p in (self.query(x), self.key(x), self.value(x))
        )
        return self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, words, width, layers, heads, experts=0, exchange=1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(16384, width))
        self.layers = nn.ModuleList(Layer(width, heads, experts if i % 2 else 0, exchange) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def loss(self, x):
        h = self.tokens(x[:, :-1]) + self.places[: x.shape[1] - 1]
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).float(), x[:, 1:].flatten())

    forward = loss


def split(model, ranks):
    """Tensor parallelism with sequence parallel norms, by torch.distributed.tensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cuda", (ranks,))
    model.places = nn.Parameter(model.places[:2048].clone(), requires_grad=False)
    for layer in model.layers:
        plan = dict(norm1=SequenceParallel(), norm2=SequenceParallel())
        plan |= {name: ColwiseParallel(input_layouts=Shard(1)) for name in ("query", "key", "value", "ffn.0")}
        plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("out", "ffn.2")}
        parallelize_module(layer, mesh, plan)
    parallelize_module(
        model, mesh,
        {
            "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
            "layers.0": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )  # fmt: skip
    return model


def pipelined(model, rank, ranks, x, parts=8):
    """1F1B of torch.distributed.pipelining: each rank has as many layers, the first the words, the last the loss."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    each, layers = len(model.layers) // ranks, list(model.layers)
    mine = layers[rank * each : (rank + 1) * each]
    stages = [nn.Sequential(*mine)]
    if rank == 0:
        stages.insert(0, model.tokens)
    if rank == ranks - 1:
        stages += [model.norm, model.head]
    stage = nn.Sequential(*stages).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(stage.parameters(), 1e-4, fused=True)

    def loss(out, y):
        return F.cross_entropy(out.flatten(0, 1).float(), y.flatten())

    schedule = Schedule1F1B(
        PipelineStage(stage, rank, ranks, torch.device("cuda", torch.cuda.current_device())), parts, loss
    )

    def step():
        if rank == 0:
            schedule.step(x[:, :-1])
        elif rank == ranks - 1:
            schedule.step(target=x[:, 1:], losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Translator(nn.Module):
    def __init__(self, words, width, heads, layers, inner):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.body = nn.Transformer(width, heads, layers, layers, inner, 0.1, batch_first=True)
        self.head = nn.Linear(width, words)

    def loss(self, x, y):
        mask = self.body.generate_square_subsequent_mask(y.shape[1] - 1, device=y.device)
        out = self.body(self.words(x), self.words(y[:, :-1]), tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(out).flatten(0, 1).float(), y[:, 1:].flatten(), label_smoothing=0.1)


class Autoencoder(nn.Module):
    """Convolutions down to 4 x 4 and up again, a normal distribution between."""

    def __init__(self, code, width):
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width, 8 * width]
        down = [
            m for i, o in zip(sizes, sizes[1:]) for m in (nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.LeakyReLU())
        ]
        up = [
            m
            for i, o in zip(sizes[:1:-1], sizes[-2::-1])
            for m in (nn.ConvTranspose2d(i, o, 3, 2, 1, 1), nn.BatchNorm2d(o), nn.LeakyReLU())
        ]
        self.down, self.flat = nn.Sequential(*down), nn.Linear(8 * width * 16, 2 * code)
        self.back, self.up = nn.Linear(code, 8 * width * 16), nn.Sequential(*up)
        self.last = nn.ConvTranspose2d(width, 3, 3, 2, 1, 1)

    def loss(self, x):
        mean, spread = self.flat(self.down(x).flatten(1)).float().chunk(2, -1)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        out = self.last(self.up(self.back(code).view(x.shape[0], -1, 4, 4)))
        return F.mse_loss(out.float(), x) + 1e-3 * (mean.square() + spread.exp() - spread - 1).mean()


class Coupling(nn.Module):
    """A step of a flow: channels mixed by a matrix, half of them moved by what the other half says."""

    def __init__(self, channels, width):
        super().__init__()
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0])
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1), nn.ReLU(),
            nn.Conv2d(width, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x):
        x = F.conv2d(x, self.mix[:, :, None, None])
        grown = torch.linalg.slogdet(self.mix)[1] * x.shape[2] * x.shape[3]
        kept, moved = x.chunk(2, 1)
        scale, shift = self.net(kept).chunk(2, 1)
        scale = torch.sigmoid(scale + 2)
        return torch.cat([kept, moved * scale + shift], 1), grown + scale.log().flatten(1).sum(1)


class Flow(nn.Module):
    def __init__(self, levels, steps, width):
        super().__init__()
        self.levels = nn.ModuleList(
            nn.ModuleList(Coupling(12 * 2**i, width) for _ in range(steps)) for i in range(levels)
        )

    def loss(self, x):
        total = x.new_zeros(x.shape[0])
        for level in self.levels:
            x = F.pixel_unshuffle(x, 2)
            for step in level:
                x, grown = step(x)
                total = total + grown
            x, done = x.chunk(2, 1)
            total = total - 0.5 * done.square().flatten(1).sum(1)
        return -(total - 0.5 * x.square().flatten(1).sum(1)).mean() / math.prod(x.shape[1:])


class Temporal(nn.Module):
    """Dilated convolutions over time, each with a way around it."""

    def __init__(self, channels, width, depth):
        super().__init__()
        self.first, self.last = nn.Conv1d(channels, width, 1), nn.Conv1d(width, channels, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i), nn.PReLU(), nn.GroupNorm(1, width),
                nn.Conv1d(width, width, 3, padding=1, groups=width), nn.PReLU(), nn.Conv1d(width, width, 1),
            )
            for i in range(depth)
        )  # fmt: skip

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


class Volumes(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = [1, width, 2 * width, 4 * width]
        self.net = nn.Sequential(
            *(m for i, o in zip(sizes, sizes[1:]) for m in (nn.Conv3d(i, o, 3, 2, 1), nn.InstanceNorm3d(o), nn.SiLU())),
            *(
                m
                for i, o in zip(sizes[:1:-1], sizes[-2::-1])
                for m in (nn.Upsample(scale_factor=2), nn.Conv3d(i, max(o, 8), 3, padding=1), nn.SiLU())
            ),
            nn.Upsample(scale_factor=2),
            nn.Conv3d(width, 1, 3, padding=1),
        )

    def forward(self, x):
        return self.net(x)


class Clicks(nn.Module):
    """Tables of embeddings beside a dense part, products of all pairs of them, and layers on top."""

    def __init__(self, tables, rows, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, 1))
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, x, rows):
        dense = self.dense(x)
        each = torch.stack([dense] + [table(row[:, None]) for table, row in zip(self.tables, rows)], 1)
        products = (each @ each.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], 1)).squeeze(-1)


class Messages(nn.Module):
    """Continuous filters on the edges of small graphs, sums over their nodes."""

    def __init__(self, bands, width, rounds):
        super().__init__()
        self.bands = bands
        self.kinds = nn.Embedding(20, width)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(bands, width), nn.Softplus(), nn.Linear(width, width)) for _ in range(rounds)
        )
        self.after = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width)) for _ in range(rounds)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, nodes, edges, far, graphs):
        h = self.kinds(nodes)
        wide = (-10 * (far[:, None] - torch.linspace(0, 1, self.bands, device=far.device)) ** 2).exp()
        for filters, after in zip(self.filters, self.after):
            sent = h[edges[0]] * filters(wide)
            h = h + after(torch.zeros_like(h).index_add(0, edges[1], sent))
        return self.out(h).view(graphs, -1).sum(1)


class Imagined(nn.Module):
    """Pictures encoded, a cell over time with the actions, pictures decoded again."""

    def __init__(self, code, state):
        super().__init__()
        sizes = [3, 32, 64, 128, 256]
        self.encode = nn.Sequential(
            *(m for i, o in zip(sizes, sizes[1:]) for m in (nn.Conv2d(i, o, 4, 2, 1), nn.SiLU()))
        )
        self.code, self.cell = nn.Linear(256 * 16, code), nn.GRUCell(code + 6, state)
        self.back = nn.Linear(state, 256 * 16)
        self.decode = nn.Sequential(
            *(m for i, o in zip(sizes[:1:-1], sizes[-2::-1]) for m in (nn.ConvTranspose2d(i, o, 4, 2, 1), nn.SiLU()))
        )
        self.last = nn.ConvTranspose2d(32, 3, 4, 2, 1)

    def loss(self, x, actions):
        seen = self.code(self.encode(x.flatten(0, 1)).flatten(1)).unflatten(0, x.shape[:2])
        state, states = x.new_zeros(x.shape[0], self.cell.hidden_size), []
        for t in range(x.shape[1]):
            state = self.cell(torch.cat([seen[:, t], actions[:, t]], -1), state)
            states.append(state)
        out = self.back(torch.stack(states, 1).flatten(0, 1)).view(-1, 256, 4, 4)
        return F.mse_loss(self.last(self.decode(out)).float(), x.flatten(0, 1).float())
