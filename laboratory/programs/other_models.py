"""The models and loops of other_jobs.py that no library has."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

DEV = "cuda"


# ---- language ----
class Retention(nn.Module):
    """Causal linear attention with a decay for each head, in pieces of 128 tokens."""

    def __init__(self, width, heads, piece=128):
        super().__init__()
        self.heads, self.piece = heads, piece
        self.all, self.out, self.norm = nn.Linear(width, 4 * width), nn.Linear(width, width), nn.GroupNorm(heads, width)
        self.register_buffer("decay", torch.linspace(0.9, 0.999, heads).log())

    def forward(self, x):
        b, t, width = x.shape
        q, k, v, gate = self.all(x).chunk(4, -1)
        q, k, v = (p.view(b, t // self.piece, self.piece, self.heads, -1).permute(0, 3, 1, 2, 4) for p in (q, k, v))
        place = torch.arange(self.piece, device=x.device)
        far = (place[:, None] - place[None]) * self.decay[:, None, None]
        inner = far.exp().tril().to(q.dtype)
        within = ((q @ k.transpose(-1, -2)) * inner[None, :, None]) @ v
        last = (self.decay[:, None] * (self.piece - 1 - place)).exp().to(k.dtype)
        states, kept, outs = (k * last[None, :, None, :, None]).transpose(-1, -2) @ v, 0, []
        whole = (self.decay * self.piece).exp()[None, :, None, None]
        for i in range(states.shape[2]):
            outs.append(kept if i else torch.zeros_like(states[:, :, 0]))
            kept = states[:, :, i] + (whole.to(states.dtype) * kept if i else 0)
        first = (self.decay[:, None] * (place + 1)).exp().to(q.dtype)
        across = (q * first[None, :, None, :, None]) @ torch.stack(outs, 2)
        y = (within + across).permute(0, 2, 3, 1, 4).reshape(b * t, width)
        return self.out(self.norm(y).view(b, t, width) * F.silu(gate))


class Block(nn.Module):
    def __init__(self, width, mixer):
        super().__init__()
        self.norm1, self.norm2, self.mixer = nn.RMSNorm(width), nn.RMSNorm(width), mixer
        self.up, self.down = nn.Linear(width, 8 * width // 3 * 2, bias=False), nn.Linear(8 * width // 3, width)

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Language(nn.Module):
    def __init__(self, words, width, blocks):
        super().__init__()
        self.tokens, self.layers = nn.Embedding(words, width), nn.ModuleList(blocks)
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def loss(self, x):
        h = self.tokens(x[:, :-1])
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).float(), x[:, 1:].flatten())


class Linear(Language):
    def __init__(self, words, width, layers, heads):
        super().__init__(words, width, [Block(width, Retention(width, heads)) for _ in range(layers)])


class Masked(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.blocks = None

    def forward(self, x):
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.all(x).chunk(3, -1))
        return self.out(flex_attention(q, k, v, block_mask=self.blocks).transpose(1, 2).flatten(2))


class Documents(Language):
    """Sequences of packed documents of equal length, causal within each, by FlexAttention."""

    def __init__(self, words, width, layers, heads, length):
        super().__init__(words, width, [Block(width, Masked(width, heads)) for _ in range(layers)])
        self.length, self.blocks = length, None

    def loss(self, x):
        if self.blocks is None:
            from torch.nn.attention.flex_attention import create_block_mask

            length, t = self.length, x.shape[1] - 1
            self.blocks = create_block_mask(
                lambda b, h, i, j: (i >= j) & (i // length == j // length), None, None, t, t, device=DEV
            )
            for layer in self.layers:
                layer.mixer.blocks = self.blocks
        return super().loss(x)


def chances(model, x):
    """The sum of the log chances of each row's tokens."""
    h = model.tokens(x[:, :-1]) + model.places[: x.shape[1] - 1]
    for layer in model.layers:
        h = layer(h)
    scores = model.head(model.norm(h)).float().log_softmax(-1)
    return scores.gather(-1, x[:, 1:, None]).squeeze(-1).sum(-1)


class Scaled(torch.autograd.Function):
    """A product in 8 bits, each tensor scaled by its largest value; the gradients' products alike."""

    @staticmethod
    def forward(ctx, x, weight):
        x8, xs = eight(x, torch.float8_e4m3fn)
        w8, ws = eight(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, xs, w8, ws)
        return torch._scaled_mm(x8, w8.t(), xs, ws, out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, gradient):
        x8, xs, w8, ws = ctx.saved_tensors
        g8, gs = eight(gradient.contiguous(), torch.float8_e5m2)
        by_x = torch._scaled_mm(g8, w8.t().contiguous().t(), gs, ws, out_dtype=torch.bfloat16)
        by_w = torch._scaled_mm(g8.t().contiguous(), x8.t().contiguous().t(), gs, xs, out_dtype=torch.bfloat16)
        return by_x, by_w


def eight(x, dtype):
    scale = torch.finfo(dtype).max / x.abs().max().float().clamp(min=1e-12)
    return (x.float() * scale).to(dtype), scale.reciprocal()


class In8Bits(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        y = Scaled.apply(x.flatten(0, -2).to(torch.bfloat16), self.weight.to(torch.bfloat16))
        return y.view(*x.shape[:-1], -1) + self.bias.to(y.dtype)


def in_8_bits(module):
    for name, child in module.named_children():
        setattr(module, name, In8Bits(child)) if isinstance(child, nn.Linear) else in_8_bits(child)


# ---- pictures, sounds, physics ----
class Unit(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inner), nn.BatchNorm2d(outer)
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(inner, outer, 1, stride, bias=False) if inner != outer else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norm1(x))
        return self.second(F.relu(self.norm2(self.first(h)))) + self.short(x)


class Wide(nn.Module):
    """A wide ResNet for pictures of 32 x 32."""

    def __init__(self, width, depth, classes):
        super().__init__()
        parts, inner = [nn.Conv2d(3, 16, 3, 1, 1)], 16
        for stage in range(3):
            for i in range(depth):
                parts.append(Unit(inner, width << stage, 2 if stage and not i else 1))
                inner = width << stage
        self.body, self.norm, self.head = nn.Sequential(*parts), nn.BatchNorm2d(inner), nn.Linear(inner, classes)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.body(x))).mean((2, 3)))


def sharpness(model, loss_of, optimizer, radius=0.05):
    """Sharpness-aware minimisation: a second gradient where the first one leads."""
    weights = list(model.parameters())

    def gradient():
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of()
        loss.backward()

    def step():
        gradient()
        with torch.no_grad():
            away = torch._foreach_mul([p.grad for p in weights], 1.0)
            length = torch.stack(torch._foreach_norm(away)).norm()
            torch._foreach_mul_(away, radius / (length + 1e-12))
            torch._foreach_add_(weights, away)
        optimizer.zero_grad()
        gradient()
        with torch.no_grad():
            torch._foreach_sub_(weights, away)
        optimizer.step()
        optimizer.zero_grad()

    return step


class Fourier(nn.Module):
    """A Fourier neural operator: products of the lowest frequencies."""

    def __init__(self, width, modes, layers):
        super().__init__()
        self.modes, self.lift = modes, nn.Conv2d(3, width, 1)
        self.low = nn.ParameterList(
            nn.Parameter(torch.randn(2, width, width, modes, modes, dtype=torch.cfloat) / width) for _ in range(layers)
        )
        self.skips = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))
        self.head = nn.Sequential(nn.Conv2d(width, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1))

    def forward(self, x):
        h, m = self.lift(x), self.modes
        for low, skip in zip(self.low, self.skips):
            f = torch.fft.rfft2(h)
            out = torch.zeros_like(f)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], low[0])
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], low[1])
            h = F.gelu(torch.fft.irfft2(out, s=h.shape[-2:]) + skip(h))
        return self.head(h)


class Sounds(nn.Module):
    """Speech by convolutions, recurrent layers and CTC."""

    def __init__(self, bands, width, layers, words):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(bands, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU()
        )
        self.body = nn.GRU(width, width // 2, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        h, _ = self.body(self.front(x).transpose(1, 2))
        return self.head(h).log_softmax(-1).transpose(0, 1)


class Flowing(nn.Module):
    """A neural ordinary differential equation, by Runge-Kutta steps of one small network."""

    def __init__(self, width, steps):
        super().__init__()
        self.steps = steps
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.GroupNorm(8, width))
        self.speed = nn.Sequential(
            nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        h, d = self.first(x), 1 / self.steps
        for _ in range(self.steps):
            a = self.speed(h)
            b = self.speed(h + d / 2 * a)
            c = self.speed(h + d / 2 * b)
            h = h + d / 6 * (a + 2 * b + 2 * c + self.speed(h + d * c))
        return self.head(h.mean((2, 3)))


# ---- small and many ----
class Tables(nn.Module):
    """A transformer over the columns of a table."""

    def __init__(self, sizes, numbers, width, layers):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in sizes)
        self.scale = nn.Parameter(torch.randn(numbers, width))
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 8, 4 * width, 0.1, batch_first=True, norm_first=True), layers
        )
        self.head = nn.Linear(width, 1)

    def forward(self, rows, x):
        parts = torch.stack([table(rows[:, i]) for i, table in enumerate(self.tables)], 1)
        return self.head(self.body(torch.cat((parts, x[..., None] * self.scale), 1)).mean(1)).squeeze(-1)


def layers(*sizes):
    parts = []
    for one, two in zip(sizes, sizes[1:]):
        parts += [nn.Linear(one, two), nn.ReLU()]
    return nn.Sequential(*parts[:-1]).to(DEV)


def actor_critic(seen, acts, width, batch, kept=100000):
    """Soft actor-critic: draws from a buffer on the GPU, two critics, an actor, a slow copy."""
    actor = layers(seen, width, width, 2 * acts)
    critics, slow = ([layers(seen + acts, width, width, 1) for _ in range(2)] for _ in range(2))
    by_actor = torch.optim.Adam(actor.parameters(), 3e-4)
    by_critics = torch.optim.Adam([p for c in critics for p in c.parameters()], 3e-4)
    states, actions = torch.randn(kept, seen, device=DEV), torch.randn(kept, acts, device=DEV)
    after, rewards = torch.randn(kept, seen, device=DEV), torch.randn(kept, 1, device=DEV)

    def act(s):
        mean, spread = actor(s).chunk(2, -1)
        d = torch.distributions.Normal(mean, spread.clamp(-5, 2).exp())
        drawn = d.rsample()
        return drawn.tanh(), (d.log_prob(drawn) - torch.log(1 - drawn.tanh().pow(2) + 1e-6)).sum(-1, keepdim=True)

    def step():
        rows = torch.randint(kept, (batch,), device=DEV)
        s, a, n, r = states[rows], actions[rows], after[rows], rewards[rows]
        with torch.no_grad():
            b, chance = act(n)
            least = torch.min(*(c(torch.cat((n, b), -1)) for c in slow))
            aim = r + 0.99 * (least - 0.2 * chance)
        by_critics.zero_grad()
        sum(F.mse_loss(c(torch.cat((s, a), -1)), aim) for c in critics).backward()
        by_critics.step()
        by_actor.zero_grad()
        b, chance = act(s)
        (0.2 * chance - torch.min(*(c(torch.cat((s, b), -1)) for c in critics))).mean().backward()
        by_actor.step()
        with torch.no_grad():
            for one, other in zip(critics, slow):
                torch._foreach_lerp_(list(other.parameters()), list(one.parameters()), 0.005)

    return step


def many_tasks(tasks, shots):
    """Learning to learn: an inner step for each task at once, by torch.func."""
    from torch.func import functional_call, grad, vmap

    model = nn.Sequential(
        *(part for i in range(3) for part in (nn.Conv2d(1 if i == 0 else 64, 64, 3, 2, 1), nn.ReLU())),
        nn.Flatten(), nn.Linear(64 * 16, 5),
    ).to(DEV)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = torch.randn(tasks, shots, 1, 28, 28, device=DEV), torch.randint(5, (tasks, shots), device=DEV)
    tests, marks = torch.randn(tasks, shots, 1, 28, 28, device=DEV), torch.randint(5, (tasks, shots), device=DEV)

    def loss(weights, x, y):
        return F.cross_entropy(functional_call(model, weights, (x,)), y)

    def learned(weights, x, y, tests, marks):
        for _ in range(2):
            slopes = grad(loss)(weights, x, y)
            weights = {name: w - 0.01 * slopes[name] for name, w in weights.items()}
        return loss(weights, tests, marks)

    def step():
        weights = dict(model.named_parameters())
        vmap(learned, in_dims=(None, 0, 0, 0, 0))(weights, x, y, tests, marks).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Process(nn.Module):
    """A Gaussian process's likelihood, by Cholesky's decomposition."""

    def __init__(self, inputs):
        super().__init__()
        self.scale, self.noise = nn.Parameter(torch.zeros(inputs)), nn.Parameter(torch.tensor(-1.0))

    def loss(self, x, y):
        near = torch.cdist(x / self.scale.exp(), x / self.scale.exp()).square().mul(-0.5).exp()
        root = torch.linalg.cholesky(near + torch.eye(len(x), device=x.device) * (self.noise.exp() + 0.5))
        solved = torch.cholesky_solve(y[:, None], root).squeeze(-1)
        return 0.5 * y @ solved + root.diagonal().log().sum() + 0.5 * len(y) * math.log(2 * math.pi)


# ---- two GPUs ----
class Shared(nn.Module):
    """Clicks, each rank with its share of the tables; rows go to the rank that has the click, by all-to-all."""

    def __init__(self, tables, rows, width, rank, world):
        super().__init__()
        self.world = world
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables // world))
        self.dense = Dense(13, tables, width)

    def forward(self, dense, x, rows):
        from torch.distributed.nn.functional import all_to_all_single

        mine = torch.stack([table(r) for table, r in zip(self.tables, rows)], 1)
        theirs = all_to_all_single(torch.empty_like(mine), mine)
        theirs = theirs.view(self.world, len(x), *mine.shape[1:]).transpose(0, 1).flatten(1, 2)
        return dense(x, theirs)


class Dense(nn.Module):
    def __init__(self, numbers, tables, width):
        super().__init__()
        self.bottom = layers(numbers, 512, 256, width)
        self.top = layers(width + (tables + 1) * tables // 2, 1024, 1024, 512, 1)
        i, j = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, x, rows):
        low = self.bottom(x)
        all_rows = torch.cat((low[:, None], rows), 1)
        both = all_rows @ all_rows.transpose(1, 2)
        return self.top(torch.cat((low, both[:, self.i, self.j]), 1)).squeeze(-1)


class LowRank(nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x)) * 2


def low_rank(model, rank):
    model.requires_grad_(False)
    for layer in model.layers:
        for name in ("query", "key", "value", "out"):
            setattr(layer, name, LowRank(getattr(layer, name), rank))
    model.forward = model.loss
    return model


def local_steps(model, loss_of, optimizer, every):
    """Steps of each rank alone; then an outer step by the mean of what changed."""
    weights = list(model.parameters())
    kept = [p.detach().clone() for p in weights]
    moving = [torch.zeros_like(p) for p in kept]

    def step():
        for _ in range(every):
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            changed = torch._foreach_sub(kept, weights)
            for one in changed:
                dist.all_reduce(one, dist.ReduceOp.AVG)
            torch._foreach_mul_(moving, 0.9)
            torch._foreach_add_(moving, changed)
            torch._foreach_add_(kept, moving, alpha=-0.7)
            torch._foreach_copy_(weights, kept)

    return step


def interleaved(model, rank, world, x):
    """Two stages a rank, in PyTorch's interleaved schedule, eight micro-batches."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    stages, modules, n = [], [], len(model.layers) // (2 * world)
    for part in (rank, rank + world):
        module = Part(model, part, n, 2 * world).to(DEV, torch.bfloat16)
        modules.append(module)
        stages.append(PipelineStage(module, part, 2 * world, torch.device("cuda", torch.cuda.current_device())))
    optimizer = torch.optim.AdamW([p for m in modules for p in m.parameters()], 1e-4, fused=True)
    schedule = ScheduleInterleaved1F1B(stages, 8, lambda h, y: F.cross_entropy(h.flatten(0, 1).float(), y.flatten()))

    def step():
        target = {"target": x[:, 1:]} if rank == world - 1 else {}
        schedule.step(*((x[:, :-1],) if rank == 0 else ()), **target)
        optimizer.step()
        optimizer.zero_grad()

    return step


class Part(nn.Module):
    def __init__(self, model, part, n, parts):
        super().__init__()
        self.tokens = model.tokens if part == 0 else None
        self.places = model.places if part == 0 else None
        self.layers = model.layers[part * n : part * n + n]
        self.norm, self.head = (model.norm, model.head) if part == parts - 1 else (None, None)

    def forward(self, x):
        if self.tokens is not None:
            x = self.tokens(x) + self.places[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) if self.head is not None else x
