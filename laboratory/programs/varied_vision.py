"""Pictures, volumes, points and sound: models of `varied_jobs.py`."""

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def conv_norm(i, o, dim, norm):
    conv = (nn.Conv2d, nn.Conv3d)[dim - 2]
    return nn.Sequential(conv(i, o, 3, padding=1, bias=False), norm(o), nn.LeakyReLU(0.01, inplace=True))


class UNet(nn.Module):
    """Two convolutions a level, strided transposed convolutions up; in two or three dimensions."""

    def __init__(self, widths, inputs, classes, dim=2):
        super().__init__()
        norm = nn.BatchNorm2d if dim == 2 else nn.InstanceNorm3d
        up = nn.ConvTranspose2d if dim == 2 else nn.ConvTranspose3d
        pairs = [(inputs, widths[0]), *zip(widths, widths[1:], strict=False)]
        self.down = nn.ModuleList(
            nn.Sequential(conv_norm(i, o, dim, norm), conv_norm(o, o, dim, norm)) for i, o in pairs
        )
        back = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(up(i, o, 2, 2) for i, o in back)
        self.merge = nn.ModuleList(
            nn.Sequential(conv_norm(2 * o, o, dim, norm), conv_norm(o, o, dim, norm)) for _, o in back
        )
        self.pool = (F.max_pool2d, F.max_pool3d)[dim - 2]
        self.head = (nn.Conv2d, nn.Conv3d)[dim - 2](widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for n, level in enumerate(self.down):
            x = level(x if n == 0 else self.pool(x, 2))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


def dcgan(width=96, noise=100):
    """Generator and critic of pictures with 64 x 64 points."""
    g, d, i = (
        [nn.ConvTranspose2d(noise, 8 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU(True)],
        [],
        3,
    )
    for m in (8, 4, 2):
        g += [
            nn.ConvTranspose2d(m * width, m // 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(m // 2 * width),
            nn.ReLU(True),
        ]
    for m in (1, 2, 4, 8):
        d += [
            nn.Conv2d(i, m * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(m * width) if m > 1 else nn.Identity(),
            nn.LeakyReLU(0.2, True),
        ]
        i = m * width
    return nn.Sequential(*g, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()), nn.Sequential(*d, nn.Conv2d(i, 1, 4))


class Modulated(nn.Module):
    """StyleGAN2's convolution: weights scaled by each picture's style, all pictures in one convolution in groups."""

    def __init__(self, i, o, up):
        super().__init__()
        self.weight, self.style, self.up = nn.Parameter(torch.randn(o, i, 3, 3) / (3 * i**0.5)), nn.Linear(512, i), up
        self.register_buffer("blur", torch.tensor([1.0, 3.0, 3.0, 1.0]).outer(torch.tensor([1.0, 3.0, 3.0, 1.0])) / 16)

    def forward(self, x, w):
        b, i, h, side = x.shape
        k = self.weight[None] * (self.style(w) + 1)[:, None, :, None, None]
        k = k * torch.rsqrt(k.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        o = k.size(1)
        if self.up:
            k = k.transpose(1, 2).reshape(b * i, o, 3, 3)
            x = F.conv_transpose2d(x.reshape(1, b * i, h, side), k, stride=2, groups=b)
            x = x.view(b, o, *x.shape[2:])
            x = F.conv2d(F.pad(x, (1, 1, 1, 1)), self.blur.expand(o, 1, 4, 4), groups=o)
        else:
            x = F.conv2d(x.reshape(1, b * i, h, side), k.reshape(b * o, i, 3, 3), padding=1, groups=b).view(
                b, o, h, side
            )
        return F.leaky_relu(x + 0.1 * torch.randn_like(x[:, :1]), 0.2)


class StyleGenerator(nn.Module):
    def __init__(self, widths=(512, 512, 256, 128, 64)):
        super().__init__()
        self.map = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.LeakyReLU(0.2))))
        self.start = nn.Parameter(torch.randn(1, widths[0], 4, 4))
        pairs = list(zip(widths, widths[1:], strict=False))
        self.up = nn.ModuleList(Modulated(i, o, True) for i, o in pairs)
        self.flat = nn.ModuleList(Modulated(o, o, False) for _, o in pairs)
        self.colour = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, z):
        w, x = self.map(z), self.start.expand(len(z), -1, -1, -1)
        for up, flat in zip(self.up, self.flat, strict=True):
            x = flat(up(x, w), w)
        return self.colour(x)


def style_critic(widths=(64, 128, 256, 512)):
    layers, i = [nn.Conv2d(3, widths[0], 1)], widths[0]
    for o in widths:
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.LeakyReLU(0.2), nn.AvgPool2d(2)]
        i = o
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * i, 1))


class DenoiserBlock(nn.Module):
    def __init__(self, i, o, attend):
        super().__init__()
        self.n1, self.c1, self.t = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(512, o)
        self.n2, self.c2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
        self.attend = (
            nn.ModuleList([nn.GroupNorm(32, o), nn.Conv2d(o, 3 * o, 1), nn.Conv2d(o, o, 1)]) if attend else None
        )

    def forward(self, x, t):
        y = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        x = self.skip(x) + self.c2(F.dropout(F.silu(self.n2(y)), 0.1))
        if self.attend is not None:
            norm, qkv, out = self.attend
            b, c, h, w = x.shape
            q, k, v = qkv(norm(x)).view(b, 3, 4, c // 4, h * w).transpose(-1, -2).unbind(1)
            y = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h, w)
            x = x + out(y)
        return x


class Denoiser(nn.Module):
    """DDPM's network: groups normalised, attention at the two lowest sizes, nearest neighbours up."""

    def __init__(self, width=128, steps=(1, 2, 2, 4)):
        super().__init__()
        self.width, self.first = width, nn.Conv2d(3, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, 512), nn.SiLU(), nn.Linear(512, 512))
        widths = [width * m for m in steps]
        self.down, self.shrink, self.up, self.grow, i = *(nn.ModuleList() for _ in range(4)), width
        for n, o in enumerate(widths):
            self.down.append(DenoiserBlock(i, o, n > 1))
            self.shrink.append(nn.Conv2d(o, o, 3, 2, 1))
            i = o
        self.middle = DenoiserBlock(i, i, True)
        for n, o in reversed(list(enumerate(widths))):
            self.grow.append(nn.Conv2d(i, o, 3, padding=1))
            self.up.append(DenoiserBlock(2 * o, o, n > 1))
            i = o
        self.out = nn.Sequential(nn.GroupNorm(32, i), nn.SiLU(), nn.Conv2d(i, 3, 3, padding=1))

    def forward(self, x, t):
        rates = torch.exp(torch.arange(self.width // 2, device=x.device) * (-9.2 / (self.width // 2)))
        angles = t[:, None] * rates
        t, x, kept = self.time(torch.cat([angles.sin(), angles.cos()], 1)), self.first(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = block(x, t)
            kept.append(x)
            x = shrink(x)
        x = self.middle(x, t)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = grow(F.interpolate(x, scale_factor=2, mode="nearest"))
            x = block(torch.cat([x, kept.pop()], 1), t)
        return self.out(x)


class DitBlock(nn.Module):
    def __init__(self, d, heads, modulated=True):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = (nn.LayerNorm(d, elementwise_affine=not modulated, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.modulate = nn.Linear(d, 6 * d) if modulated else None

    def attention(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))

    def forward(self, x, c=None):
        if self.modulate is None:
            x = x + self.attention(self.n1(x))
            return x + self.down(F.gelu(self.up(self.n2(x))))
        s1, a1, g1, s2, a2, g2 = self.modulate(F.silu(c))[:, None].chunk(6, -1)
        x = x + g1 * self.attention(self.n1(x) * (1 + a1) + s1)
        return x + g2 * self.down(F.gelu(self.up(self.n2(x) * (1 + a2) + s2), approximate="tanh"))


class Patches(nn.Module):
    """A vision transformer of plain layers; with classes for conditions a diffusion transformer."""

    def __init__(self, d, heads, layers, channels, side, patch, conditions=0, recompute=False):
        super().__init__()
        self.cut, self.recompute = nn.Conv2d(channels, d, patch, patch), recompute
        self.place = nn.Parameter(torch.zeros(1, (side // patch) ** 2, d))
        self.label = nn.Embedding(conditions, d) if conditions else None
        self.blocks = nn.ModuleList(DitBlock(d, heads, bool(conditions)) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, patch * patch * channels if conditions else 1000)

    def forward(self, x, label=None):
        x = self.cut(x).flatten(2).transpose(1, 2) + self.place
        c = None if self.label is None else self.label(label)
        for block in self.blocks:
            x = checkpoint(block, x, c, use_reentrant=False) if self.recompute else block(x, c)
        return self.head(self.norm(x if self.label is not None else x.mean(1)))


class HifiGenerator(nn.Module):
    """HiFi-GAN's generator: transposed convolutions in one dimension, dilated residual ones with weight norm."""

    def __init__(self, width=256, rates=(8, 8, 2, 2)):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.first, self.up, self.parts = norm(nn.Conv1d(80, width, 7, padding=3)), nn.ModuleList(), nn.ModuleList()
        for rate in rates:
            self.up.append(norm(nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, rate // 2)))
            width //= 2
            self.parts.append(
                nn.ModuleList(
                    norm(nn.Conv1d(width, width, k, dilation=d, padding=(k - 1) * d // 2))
                    for k in (3, 7, 11)
                    for d in (1, 3, 5)
                )
            )
        self.last = norm(nn.Conv1d(width, 1, 7, padding=3))

    def forward(self, x):
        x = self.first(x)
        for up, parts in zip(self.up, self.parts, strict=True):
            x, total = up(F.leaky_relu(x, 0.1)), 0
            for n in range(0, 9, 3):
                y = x
                for conv in parts[n : n + 3]:
                    y = y + conv(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class Dgcnn(nn.Module):
    """Points: neighbours by distance at each layer, gathered, the largest of 20."""

    def __init__(self, k=20, widths=(64, 64, 128, 256)):
        super().__init__()
        self.k, i, self.layers = k, 3, nn.ModuleList()
        for o in widths:
            self.layers.append(nn.Sequential(nn.Conv2d(2 * i, o, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2)))
            i = o
        self.join = nn.Sequential(nn.Conv1d(sum(widths), 1024, 1, bias=False), nn.BatchNorm1d(1024), nn.LeakyReLU(0.2))
        self.head = nn.Sequential(nn.Linear(2048, 512), nn.LeakyReLU(0.2), nn.Dropout(0.5), nn.Linear(512, 40))

    def neighbours(self, x):
        b, c, n = x.shape
        square = x.square().sum(1, keepdim=True)
        near = (2 * x.transpose(1, 2) @ x - square - square.transpose(1, 2)).topk(self.k, -1)[1]
        flat = (near + torch.arange(b, device=x.device)[:, None, None] * n).flatten()
        there = x.transpose(1, 2).reshape(b * n, c)[flat].view(b, n, self.k, c)
        here = x.transpose(1, 2)[:, :, None].expand(-1, -1, self.k, -1)
        return torch.cat([there - here, here], 3).permute(0, 3, 1, 2).contiguous()

    def forward(self, x):
        kept = []
        for layer in self.layers:
            x = layer(self.neighbours(x)).max(-1)[0]
            kept.append(x)
        x = self.join(torch.cat(kept, 1))
        return self.head(torch.cat([x.amax(2), x.mean(2)], 1))


class Edsr(nn.Module):
    def __init__(self, width=128, blocks=16):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        up = [layer for _ in range(2) for layer in (nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))]
        self.last = nn.Sequential(*up, nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x):
        y = x = self.first(x)
        for block in self.body:
            y = y + 0.1 * block(y)
        return self.last(x + y)


class VectorCodes(nn.Module):
    """VQ-VAE: the nearest of 1,024 codes, passed straight through."""

    def __init__(self, width=128):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, 64, 3, padding=1),
        )
        self.codes = nn.Embedding(1024, 64)
        self.decode = nn.Sequential(
            nn.Conv2d(64, width, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x):
        z = self.encode(x).permute(0, 2, 3, 1)
        code = self.codes(torch.cdist(z.reshape(-1, 64), self.codes.weight).argmin(1)).view(z.shape)
        loss = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(code.detach(), z)
        return F.mse_loss(self.decode((z + (code - z).detach()).permute(0, 3, 1, 2)), x) + loss


def zoo(name, **options):
    for module in (torchvision.models, torchvision.models.segmentation, torchvision.models.video):
        if hasattr(module, name):
            return getattr(module, name)(weights=None, **options)
    raise ValueError(name)
