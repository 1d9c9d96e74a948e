"""Small modules as programs compile them: each gives what is called, whose gradients are taken, too.

A case is a name and a function that makes its call. Sizes are those of nobody's job in the book.
"""

import torch
from torch import nn
from torch.nn import functional as F

DEV = "cuda"
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CASES = []


def tensor(*shape, kind="f32"):
    return torch.randn(shape, device=DEV).to(TYPES[kind])


def case(name, make):
    CASES.append((name, make))


def trained(module, shape, kind="bf16", autocast=False, last=False):
    """Runs forward and backward of a module, compiled; under autocast its weights are f32."""

    def make():
        torch.manual_seed(0)
        net = module().to(DEV, torch.float32 if autocast else TYPES[kind])
        x = tensor(*shape, kind=kind)
        if last:
            net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        x = x.requires_grad_()
        run = torch.compile(net, dynamic=False)
        with torch.no_grad(), torch.autocast("cuda", TYPES[kind], enabled=autocast):
            gradient = torch.randn_like(net(x))
        leaves = [x, *net.parameters()]

        def call():
            with torch.autocast("cuda", TYPES[kind], enabled=autocast):
                y = run(x)
            torch.autograd.grad(y, leaves, gradient)

        return call

    return make


def function(call, *shapes, kind="bf16", gradient=True):
    """A function of tensors, compiled."""

    def make():
        torch.manual_seed(0)
        given = [tensor(*shape, kind=kind).requires_grad_(gradient) for shape in shapes]
        run = torch.compile(call, dynamic=False)

        def once():
            y = run(*given)
            if gradient:
                torch.autograd.grad(y if y.ndim == 0 else y.float().sum(), given)

        if not gradient:
            return lambda: run(*given)
        with torch.no_grad():
            made = call(*given)
        upstream = torch.ones_like(made)

        def both():
            torch.autograd.grad(run(*given), given, upstream)

        return both

    return make


# ---- blocks of language models ----
class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def turned(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, width, heads, keys, inner, length):
        super().__init__()
        self.heads, self.keys, self.depth = heads, keys, width // heads
        self.first, self.second = Rms(width), Rms(width)
        self.q, self.k, self.v = (nn.Linear(width, n * self.depth, bias=False) for n in (heads, keys, keys))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        angle = torch.outer(torch.arange(length).float(), 1e4 ** -(torch.arange(self.depth // 2) * 2.0 / self.depth))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        b, s, _ = x.shape
        y = self.first(x)
        q, k, v = (
            layer(y).view(b, s, -1, self.depth).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )  # fmt: skip
        q, k = turned(q, self.cos, self.sin), turned(k, self.cos, self.sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.keys)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, -1))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gpt(nn.Module):
    """`after`: norms come after the sum, as in BERT."""

    def __init__(self, width, heads, dropout=0.0, after=False, causal=True):
        super().__init__()
        self.heads, self.after, self.causal = heads, after, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def attend(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.drop(self.out(a.transpose(1, 2).reshape(b, s, w)))

    def feed(self, x):
        return self.drop(self.down(F.gelu(self.up(x), approximate="none" if self.after else "tanh")))

    def forward(self, x):
        if self.after:
            x = self.first(x + self.attend(x))
            return self.second(x + self.feed(x))
        x = x + self.attend(self.first(x))
        return x + self.feed(self.second(x))


for b, s, width, heads, keys, inner in (
    (2, 2048, 1024, 16, 16, 2816), (1, 2048, 5120, 40, 8, 13824), (4, 1024, 3072, 24, 8, 8192), (8, 384, 768, 12, 4, 2048), (1, 6144, 2560, 20, 4, 6912),
):  # fmt: skip
    case(f"llama {b} {s} {width}", trained(lambda w=width, h=heads, k=keys, i=inner, s=s: Llama(w, h, k, i, s), (b, s, width)))  # fmt: skip
for b, s, width, heads, dropout, kind, autocast in (
    (8, 1024, 640, 10, 0.1, "bf16", True), (4, 512, 1600, 25, 0.0, "bf16", True), (16, 256, 512, 8, 0.2, "bf16", False), (2, 2048, 2048, 16, 0.1, "f16", False), (4, 896, 1280, 20, 0.0, "bf16", False), (2, 256, 768, 12, 0.1, "f32", False),
):  # fmt: skip
    case(f"gpt {b} {s} {width} {dropout} {kind} {autocast}", trained(lambda w=width, h=heads, d=dropout: Gpt(w, h, d), (b, s, width), kind, autocast))  # fmt: skip
for b, s, width, heads, kind, autocast in (
    (24, 160, 768, 12, "bf16", True),
    (8, 448, 1024, 16, "f16", True),
    (64, 64, 384, 6, "f32", False),
):
    case(f"bert {b} {s} {width} {kind}", trained(lambda w=width, h=heads: Gpt(w, h, 0.1, True, False), (b, s, width), kind, autocast))  # fmt: skip
for b, s, width, heads in ((64, 197, 384, 6), (16, 257, 1024, 16), (8, 577, 768, 12)):
    case(f"vit {b} {s} {width}", trained(lambda w=width, h=heads: Gpt(w, h, 0.0, False, False), (b, s, width)))


# ---- losses, embeddings ----
def head(rows, width, classes, kind):
    def make():
        x = tensor(rows, width, kind=kind).requires_grad_()
        w = (tensor(classes, width, kind=kind) * 0.02).requires_grad_()
        target = torch.randint(0, classes, (rows,), device=DEV)
        run = torch.compile(lambda x, w: F.cross_entropy((x @ w.t()).float(), target), dynamic=False)
        return lambda: torch.autograd.grad(run(x, w), (x, w))

    return make


for rows, width, classes in (
    (2048, 512, 32000),
    (1536, 512, 128256),
    (4096, 256, 50304),
    (12288, 256, 1000),
    (768, 512, 151936),
    (512, 256, 50257),
):
    case(f"head {rows} {classes}", head(rows, width, classes, "bf16"))


def embedded(batch, length, words, width, kind):
    def make():
        table, places = (
            tensor(words, width, kind=kind).requires_grad_(),
            tensor(length, width, kind=kind).requires_grad_(),
        )
        ids = torch.randint(0, words, (batch, length), device=DEV)
        run = torch.compile(lambda t, p: F.layer_norm(F.dropout(F.embedding(ids, t) + p, 0.1), (width,)), dynamic=False)
        g = tensor(batch, length, width, kind=kind)
        return lambda: torch.autograd.grad(run(table, places), (table, places), g)

    return make


for batch, length, words, width, kind in (
    (8, 768, 50304, 768, "f32"),
    (4, 1024, 32000, 2048, "bf16"),
    (32, 128, 30522, 512, "f32"),
    (2, 512, 128256, 1024, "bf16"),
):
    case(f"embedded {batch} {length} {words} {width} {kind}", embedded(batch, length, words, width, kind))


# ---- pictures ----
class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.second(self.two(F.relu(self.first(self.one(x))))))


class Diffusion(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(32, channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(F.silu(self.norm(x)))


class Next(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(channels, channels, 7, padding=3, groups=channels), nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.ones(channels) * 0.1)

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


for shape, kind, last in (
    ((48, 64, 56, 56), "bf16", True), ((48, 256, 28, 28), "bf16", True), ((96, 512, 14, 14), "f16", True), ((24, 128, 40, 40), "f32", False),
):  # fmt: skip
    case(f"residual {shape} {kind} {last}", trained(lambda c=shape[1]: Residual(c), shape, kind, last=last))
for shape, kind in (((8, 320, 64, 64), "f16"), ((4, 640, 32, 32), "bf16"), ((16, 128, 96, 96), "bf16")):
    case(f"diffusion {shape} {kind}", trained(lambda c=shape[1]: Diffusion(c), shape, kind))
for shape, kind in (((32, 96, 56, 56), "bf16"), ((32, 384, 14, 14), "bf16")):
    case(f"next {shape} {kind}", trained(lambda c=shape[1]: Next(c), shape, kind))


# ---- sums, softmax, scans, turned operands ----
def masked(scores):
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return F.dropout(scores.float().masked_fill(~seen, -1e4).softmax(-1).to(scores.dtype), 0.1)


for shape in ((4, 12, 512, 512), (16, 8, 128, 128), (2, 12, 1024, 1024), (1, 4, 3072, 3072)):
    case(f"softmax {shape}", function(masked, shape))
for rows, width, kind in (
    (1, 4096, "bf16"),
    (16, 2048, "bf16"),
    (64, 5120, "bf16"),
    (48000, 320, "bf16"),
    (3000, 12288, "bf16"),
    (6144, 1536, "f32"),
):
    case(f"rms {rows} {width} {kind}", function(lambda x, w: F.rms_norm(x, (x.shape[-1],), w) * F.silu(x), (rows, width), (width,), kind=kind))  # fmt: skip
for rows, width, kind in ((20000, 256, "bf16"), (9000, 1152, "f32"), (4096, 3584, "bf16"), (250, 1024, "f32")):
    case(f"norm {rows} {width} {kind}", function(lambda x, w, b: F.layer_norm(x + 1, (x.shape[-1],), w, b), (rows, width), (width,), (width,), kind=kind))  # fmt: skip
for shape in ((3072, 5000), (512, 40000)):
    case(f"distilled {shape}", function(lambda a, b: F.kl_div(a.float().log_softmax(-1), b.float().log_softmax(-1), log_target=True), shape, shape))  # fmt: skip
case(
    "bce",
    function(lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (300, 1000), (300, 1000), kind="f32"),
)
case("huber", function(lambda x, y: F.huber_loss(x, y), (2000000,), (2000000,), kind="f32"))
for shape, dims in (((8, 1024, 16, 64), (0, 2, 1, 3)), ((6, 700, 1280), (0, 2, 1)), ((32, 12, 197, 64), (0, 2, 1, 3))):
    case(f"turned {shape}", function(lambda x, d=dims: F.gelu(x.permute(d).contiguous() * 0.5), shape))
for shape, dim, kind in (
    ((8, 1024, 768), 1, "f32"),
    ((4096, 2048), 1, "bf16"),
    ((2000, 3000), 0, "f32"),
    ((64, 50, 1024), (0, 1), "bf16"),
    ((24, 64, 75, 75), (0, 2, 3), "bf16"),
):
    case(
        f"sum {shape} {dim}",
        function(lambda x, d=dim: (x.float() * x.float()).sum(d), shape, kind=kind, gradient=False),
    )
for shape in ((4096, 4096), (3000, 11008), (16384, 1024)):
    case(f"f8 rows {shape}", function(lambda x: (x.float() * (448.0 / x.float().abs().amax(-1, keepdim=True))).clamp(-448, 448).to(torch.float8_e4m3fn), shape, gradient=False))  # fmt: skip
    case(f"f8 whole {shape}", function(lambda x: (x.float() * (448.0 / x.float().abs().amax())).clamp(-448, 448).to(torch.float8_e4m3fn), shape, gradient=False))  # fmt: skip
case("scan", function(lambda x: x.float().cumsum(-1) * 0.1, (2048, 1024), kind="f32", gradient=False))
case("choice", function(lambda x: x.softmax(-1).argmax(-1), (8192, 64), kind="f32", gradient=False))
case(
    "up",
    function(
        lambda x, y: torch.cat((F.interpolate(x, scale_factor=2.0, mode="nearest"), y), 1).relu(),
        (4, 256, 32, 32),
        (4, 128, 64, 64),
    ),
)


# ---- optimizers ----
def optimizer(shapes, kind, how):
    def make():
        weights = [nn.Parameter(tensor(*shape, kind=kind)) for shape in shapes]
        chosen = {"adamw": lambda: torch.optim.AdamW(weights, lr=1e-3), "sgd": lambda: torch.optim.SGD(weights, lr=1e-3, momentum=0.9)}[how]()  # fmt: skip
        for one in weights:
            one.grad = torch.randn_like(one)
        run = torch.compile(chosen.step)

        def call():
            with torch.no_grad():
                run()

        return call

    return make


GPT = [(3072, 768), (768, 3072), (2304, 768), (768, 768), (768,), (768,), (3072,), (2304,)]
case("adamw gpt f32", optimizer(GPT * 3 + [(20000, 768)], "f32", "adamw"))
case(
    "adamw llama bf16",
    optimizer(
        [(5632, 2048), (5632, 2048), (2048, 5632), (2048, 2048), (512, 2048), (512, 2048), (2048,)], "bf16", "adamw"
    ),
)
case(
    "sgd pictures f32",
    optimizer(
        [(64, 64, 3, 3), (128, 64, 3, 3), (256, 128, 3, 3), (512, 256, 3, 3), (64,), (128,), (256,), (1000, 512)],
        "f32",
        "sgd",
    ),
)


# ---- attention of blocks ----
def flex(batch, heads, keys, length, depth, mask, size, kind="bf16", score=None):
    def make():
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch.manual_seed(3)
        cuts = torch.cat([torch.zeros(1), torch.randint(1, length, (max(size, 1),)).sort()[0]]).to(DEV)  # of documents
        number = torch.bucketize(torch.arange(length, device=DEV), cuts, right=True)
        slopes = torch.arange(heads, device=DEV) * -0.1
        rules = {
            "causal": lambda b, h, q, k: q >= k,
            "window": lambda b, h, q, k: (q >= k) & (q - k < size),
            "documents": lambda b, h, q, k: (q >= k) & (number[q] == number[k]),
            "packed": lambda b, h, q, k: number[q] == number[k],
            "both sides": lambda b, h, q, k: (q - k).abs() < size,
            "prefix": lambda b, h, q, k: (q >= k) | (k < size),
        }
        scores = {
            "alibi": lambda s, b, h, q, k: s + slopes[h] * (q - k),
            "cap": lambda s, b, h, q, k: torch.tanh(s / 30) * 30,
        }
        blocks = create_block_mask(rules[mask], None, None, length, length, device=DEV) if mask != "none" else None
        q = tensor(batch, heads, length, depth, kind=kind).requires_grad_()
        k, v = (tensor(batch, keys, length, depth, kind=kind).requires_grad_() for _ in range(2))
        g = tensor(batch, heads, length, depth, kind=kind)
        run = torch.compile(flex_attention, dynamic=False)
        return lambda: torch.autograd.grad(
            run(q, k, v, score_mod=scores.get(score), block_mask=blocks, enable_gqa=heads != keys), (q, k, v), g
        )

    return make


FLEX = (
    (1, 16, 16, 2048, 64, "none", 0), (2, 32, 8, 4096, 128, "causal", 1), (4, 8, 8, 1024, 64, "causal", 1), (1, 24, 24, 8192, 64, "causal", 1), (2, 8, 8, 2048, 256, "causal", 1),
    (2, 16, 16, 4096, 64, "causal", 1, "bf16", "alibi"), (1, 16, 16, 4096, 128, "causal", 1, "bf16", "cap"), (2, 16, 16, 4096, 64, "window", 128), (1, 32, 8, 8192, 128, "window", 2048), (8, 12, 12, 2048, 64, "documents", 16),
    (1, 16, 4, 8192, 128, "documents", 32), (2, 12, 12, 4096, 64, "prefix", 1024), (1, 8, 8, 4096, 128, "none", 0), (4, 16, 16, 512, 64, "causal", 1), (2, 16, 8, 3072, 64, "packed", 6), (1, 16, 16, 4096, 32, "causal", 1),
    (2, 16, 16, 2048, 128, "causal", 1, "f16"), (1, 8, 8, 4096, 64, "both sides", 1024), (1, 4, 4, 2048, 128, "causal", 1, "f32"),
)  # fmt: skip
for one in FLEX:
    case("flex " + " ".join(map(str, one)), flex(*one))
CASES.sort(key=lambda one: not one[0].startswith("flex"))  # they take longest to compile
