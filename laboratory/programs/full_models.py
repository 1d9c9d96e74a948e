"""The models of full_jobs.py that no library has."""

import torch
from torch import nn
from torch.nn import functional as F


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Latent(nn.Module):
    """Multi-head latent attention: queries and keys of 128 + 64 (turned by place), values of 128."""

    def __init__(self, width, heads, low_query=1536, low=512):
        super().__init__()
        self.heads, self.low = heads, low
        self.down_query, self.query_norm = nn.Linear(width, low_query, bias=False), nn.RMSNorm(low_query)
        self.query = nn.Linear(low_query, heads * 192, bias=False)
        self.down, self.norm = nn.Linear(width, low + 64, bias=False), nn.RMSNorm(low)
        self.up, self.out = nn.Linear(low, heads * 256, bias=False), nn.Linear(heads * 128, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        still, moved = (
            self.query(self.query_norm(self.down_query(x))).view(b, t, -1, 192).transpose(1, 2).split([128, 64], -1)
        )
        low, place = self.down(x).split([self.low, 64], -1)
        key, value = self.up(self.norm(low)).view(b, t, -1, 256).transpose(1, 2).chunk(2, -1)
        place = turned(place[:, None], cos, sin).expand(-1, self.heads, -1, -1)
        q, k = torch.cat([still, turned(moved, cos, sin)], -1), torch.cat([key, place], -1)
        return self.out(F.scaled_dot_product_attention(q, k, value, is_causal=True).transpose(1, 2).flatten(2))


class Deep(nn.Module):
    """Layers of latent attention and of gated networks."""

    def __init__(self, words, width, layers, heads, inner):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
        self.attend = nn.ModuleList(Latent(width, heads) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(width, 2 * inner, bias=False) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(inner, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, words, bias=False)

    def loss(self, x):
        h, places = self.words(x[:, :-1]), torch.arange(x.shape[1] - 1, device=x.device)
        turns = places[:, None] / 10000 ** (torch.arange(32, device=x.device) / 32)
        cos, sin = turns.cos().to(h.dtype), turns.sin().to(h.dtype)
        for n, (attend, gate, down) in enumerate(zip(self.attend, self.gate, self.down)):
            h = h + attend(self.norms[2 * n](h), cos, sin)
            a, b = gate(self.norms[2 * n + 1](h)).chunk(2, -1)
            h = h + down(F.silu(a) * b)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).float(), x[:, 1:].flatten())


class Residual(nn.Module):
    def __init__(self, i, o, time):
        super().__init__()
        self.norm1, self.conv1, self.time = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(time, o)
        self.norm2, self.conv2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Looking(nn.Module):
    """Attention of points to each other and to a text, then a gated network."""

    def __init__(self, width, text, heads=8):
        super().__init__()
        self.heads, self.norm, self.into, self.back = (
            heads,
            nn.GroupNorm(32, width),
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.query = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.rest = nn.ModuleList(nn.Linear(i, 2 * width, bias=False) for i in (width, text))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, text):
        y = self.into(self.norm(x))
        y = y.permute(0, 2, 3, 1).flatten(1, 2)
        for n in range(2):
            z = self.norms[n](y)
            parts = (self.query[n](z), *self.rest[n](text if n else z).chunk(2, -1))
            q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
            y = y + self.out[n](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        a, b = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(a * F.gelu(b))
        return x + self.back(y.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2))


class Painter(nn.Module):
    """A denoiser of latents that looks at a text, as Stable Diffusion's is built."""

    def __init__(self, widths=(320, 640, 1280), text=768):
        super().__init__()
        time = 4 * widths[0]
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.first, kept, i = nn.Conv2d(4, widths[0], 3, padding=1), [widths[0]], widths[0]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, o in enumerate(widths):
            for _ in range(2):
                self.down.append(nn.ModuleList([Residual(i, o, time), Looking(o, text)]))
                i = o
                kept.append(o)
            if level + 1 < len(widths):
                self.down.append(nn.Conv2d(o, o, 3, 2, 1))
                kept.append(o)
        self.middle = nn.ModuleList([Residual(i, i, time), Looking(i, text)])
        for level, o in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(nn.ModuleList([Residual(i + kept.pop(), o, time), Looking(o, text)]))
                i = o
            if level:
                self.up.append(nn.Conv2d(o, o, 3, padding=1))
        self.norm, self.last = nn.GroupNorm(32, i), nn.Conv2d(i, 4, 3, padding=1)

    def forward(self, x, t, text):
        turns = t[:, None] * torch.exp(-torch.arange(160, device=t.device) / 16)
        time = self.time(torch.cat([turns.cos(), turns.sin()], -1))
        x = self.first(x)
        kept = [x]
        for part in self.down:
            x = part(x) if isinstance(part, nn.Conv2d) else part[1](part[0](x, time), text)
            kept.append(x)
        x = self.middle[1](self.middle[0](x, time), text)
        for part in self.up:
            if isinstance(part, nn.Conv2d):
                x = part(F.interpolate(x, scale_factor=2.0))
            else:
                x = part[1](part[0](torch.cat([x, kept.pop()], 1), time), text)
        return self.last(F.silu(self.norm(x)))
