"""Kernels of Transformer Engine by size: te_bench.py OUT [REPS] [GROUPS] [EVERY]. Each repetition begins with a `spin_kernel`; the first
repetition is a warm-up, then two behind a fill of 256 MiB (nothing in the L2 cache), then two with what is there.
Writes OUT: JSON lines {case, kernels: [[name, grid, block, [ns of each repetition]]...], span: ns from the first
kernel to the end of the last, of each repetition}."""

import contextlib, gzip, itertools, json, os, random, sys, tempfile, time, traceback
import torch, torch.nn as nn
import transformer_engine.pytorch as te
import transformer_engine_torch as tex
from transformer_engine.common import recipe as R

OUT, REPS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
GROUPS = sys.argv[3].split(",") if len(sys.argv) > 3 and sys.argv[3] != "all" else None
EVERY = int(sys.argv[4]) if len(sys.argv) > 4 else 1
bf, f32, dev = torch.bfloat16, torch.float32, "cuda"
torch.manual_seed(0)
E4, E5 = tex.DType.kFloat8E4M3, tex.DType.kFloat8E5M2
RECIPES = dict(delayed=R.DelayedScaling, current=R.Float8CurrentScaling, block=R.Float8BlockScaling)


def q_delayed(cols=True, dt=E4):
    from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer

    return Float8Quantizer(torch.ones(1, device=dev), torch.zeros(1, device=dev), dt, rowwise=True, columnwise=cols)


def q_current(cols=True, dt=E4):
    from transformer_engine.pytorch.tensor.float8_tensor import Float8CurrentScalingQuantizer

    return Float8CurrentScalingQuantizer(dt, device=torch.device(dev), rowwise=True, columnwise=cols)


def q_block(cols=True, dim=1, dt=E4):
    from transformer_engine.pytorch.tensor.float8_blockwise_tensor import Float8BlockQuantizer

    return Float8BlockQuantizer(
        dt, rowwise=True, columnwise=cols, amax_epsilon=0.0, force_pow_2_scales=True, block_scaling_dim=dim
    )


def rnd(*s, dt=bf):
    return torch.randn(*s, device=dev, dtype=dt)


TS, HS = (
    (256, 512, 1024, 1536, 2048, 3000, 4096, 6144, 8192, 12288, 16384),
    (768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288, 14336, 16384),
)
TH = [(t, h) for t in TS for h in HS if t * h <= 1 << 27]
BLOCK = [(t, h) for t, h in TH if t % 16 == 0]
C = []


def case(group, **about):
    def add(make):
        C.append((group, about, make))
        return make

    return add


def norm(cls, t, h, dt=bf):
    def make():
        n = cls(h, params_dtype=dt, device=dev)
        x = rnd(t, h, dt=dt).requires_grad_()
        g = rnd(t, h, dt=dt)

        def f():
            n(x).backward(g)
            x.grad = None
            n.weight.grad = None

        return f

    return make


for t, h in TH:
    C.append(("norm", dict(op="rmsnorm", t=t, h=h), norm(te.RMSNorm, t, h)))
    C.append(("norm", dict(op="layernorm", t=t, h=h), norm(te.LayerNorm, t, h)))
for t, h in TH[::4]:
    C.append(("norm", dict(op="rmsnorm", t=t, h=h, dt="f32"), norm(te.RMSNorm, t, h, f32)))


def norm_fp8(t, h, ln=False):
    def make():
        x, w, b, q = rnd(t, h), rnd(h), rnd(h), q_delayed()
        if ln:
            return lambda: tex.layernorm_fwd(x, w, b, 1e-5, None, q, tex.DType.kBFloat16, 0, False)
        return lambda: tex.rmsnorm_fwd(x, w, 1e-5, None, q, tex.DType.kBFloat16, 0, False)

    return make


for t, h in TH[::2]:
    C.append(("normq", dict(op="rmsnorm_fp8", t=t, h=h), norm_fp8(t, h)))
for t, h in TH[::4]:
    C.append(("normq", dict(op="layernorm_fp8", t=t, h=h), norm_fp8(t, h, True)))


def quant(q, t, h, dt=bf):
    def make():
        x, z = rnd(t, h, dt=dt), q()
        return lambda: tex.quantize(x, z)

    return make


for t, h in TH:
    C.append(("quant", dict(op="delayed_both", t=t, h=h), quant(q_delayed, t, h)))
    C.append(("quant", dict(op="delayed_row", t=t, h=h), quant(lambda: q_delayed(False), t, h)))
    C.append(("quant", dict(op="current_both", t=t, h=h), quant(q_current, t, h)))
    C.append(("quant", dict(op="current_row", t=t, h=h), quant(lambda: q_current(False), t, h)))
for t, h in BLOCK:
    C.append(("quant", dict(op="block1_both", t=t, h=h), quant(q_block, t, h)))
    C.append(("quant", dict(op="block1_row", t=t, h=h), quant(lambda: q_block(False), t, h)))
    C.append(("quant", dict(op="block2_both", t=t, h=h), quant(lambda: q_block(True, 2), t, h)))
for t, h in TH[::4]:
    C.append(("quant", dict(op="delayed_both", t=t, h=h, dt="f32"), quant(q_delayed, t, h, f32)))
    C.append(("quant", dict(op="current_both", t=t, h=h, dt="f32"), quant(q_current, t, h, f32)))


def act(name, t, h, q=None, gated=True, back=False):
    def make():
        x = rnd(t, 2 * h if gated else h)
        g = rnd(t, h)
        z = q() if q else None
        fn = getattr(tex, name)
        return (lambda: fn(g, x, z)) if back else (lambda: fn(x, z))

    return make


for t, h in TH:
    if t * h > 1 << 26:
        continue
    C.append(("act", dict(op="swiglu", t=t, h=h), act("swiglu", t, h)))
    C.append(("act", dict(op="dswiglu", t=t, h=h), act("dswiglu", t, h, None, True, True)))
    C.append(("act", dict(op="gelu", t=t, h=h), act("gelu", t, h, None, False)))
    C.append(("act", dict(op="dgelu", t=t, h=h), act("dgelu", t, h, None, False, True)))
for t, h in TH[::3]:
    if t * h > 1 << 26:
        continue
    for n, q in (("delayed", q_delayed), ("current", q_current), ("block", q_block)):
        if n == "block" and t % 16:
            continue
        C.append(("act", dict(op="swiglu_" + n, t=t, h=h), act("swiglu", t, h, q)))
        C.append(("act", dict(op="dswiglu_" + n, t=t, h=h), act("dswiglu", t, h, q, True, True)))
    for n in ("relu", "srelu", "silu", "geglu", "qgelu"):
        C.append(("act", dict(op=n, t=t, h=h), act(n, t, h, None, n == "geglu")))
    C.append(("act", dict(op="gelu_delayed", t=t, h=h), act("gelu", t, h, q_delayed, False)))


def dbias(t, h, q):
    def make():
        g, z = rnd(t, h), q()
        return lambda: tex.bgrad_quantize(g, z)

    return make


for t, h in TH[::3]:
    C.append(("dbias", dict(op="bgrad_delayed", t=t, h=h), dbias(t, h, q_delayed)))
    C.append(("dbias", dict(op="bgrad_current", t=t, h=h), dbias(t, h, q_current)))


def dbias_dgelu(t, h):
    def make():
        g, x, z = rnd(t, h), rnd(t, h), q_delayed()
        return lambda: tex.dbias_dgelu(g, x, z)

    return make


for t, h in TH[::4]:
    C.append(("dbias", dict(op="dbias_dgelu", t=t, h=h), dbias_dgelu(t, h)))


def transpose(t, h):
    def make():
        x = torch.randint(0, 120, (t, h), device=dev, dtype=torch.uint8)
        return lambda: tex.fp8_transpose(x, E4, out=None)

    return make


for t, h in TH[::2]:
    C.append(("transpose", dict(op="fp8_transpose", t=t, h=h), transpose(t, h)))


def dequant(t, h):
    def make():
        x = tex.quantize(rnd(t, h), q_delayed(False))
        return lambda: tex.dequantize(x, tex.DType.kBFloat16)

    return make


for t, h in TH[::3]:
    C.append(("transpose", dict(op="dequantize", t=t, h=h), dequant(t, h)))


def multi_quant(t, h, n):
    def make():
        x = rnd(t, h)
        q = [q_delayed() for _ in range(n)]
        return lambda: tex.split_quantize(x, [t // n] * n, q)

    return make


for t, h in TH[::6]:
    C.append(("transpose", dict(op="split_quantize", t=t // 16 * 16, h=h), multi_quant(t // 64 * 64, h, 4)))


def rope(s, b, h, d, fmt="sbhd"):
    def make():
        from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb, RotaryPositionEmbedding

        r = RotaryPositionEmbedding(d)(s).cuda()
        shape = (s, b, h, d) if fmt == "sbhd" else (b, s, h, d)
        x = rnd(*shape).requires_grad_()
        g = rnd(*shape)

        def f():
            apply_rotary_pos_emb(x, r, tensor_format=fmt, fused=True).backward(g)
            x.grad = None

        return f

    return make


for s in (512, 1024, 2048, 4096, 8192, 16384):
    for b in (1, 2, 4):
        for h in (4, 8, 16, 24, 32, 64):
            for d in (64, 128):
                if s * b * h * d <= 1 << 27:
                    C.append(
                        (
                            "rope",
                            dict(op="rope", s=s, b=b, h=h, d=d, fmt="sbhd" if b < 4 else "bshd"),
                            rope(s, b, h, d, "sbhd" if b < 4 else "bshd"),
                        )
                    )


def router(t, e, k, fn):
    def make():
        from transformer_engine.pytorch.router import fused_topk_with_score_function

        s = rnd(t, e, dt=f32).requires_grad_()
        g = rnd(t, e, dt=f32)

        def f():
            p, m = fused_topk_with_score_function(s, k, False, None, None, None, fn, None)
            p.backward(g)
            s.grad = None

        return f

    return make


def aux(t, e, k):
    def make():
        from transformer_engine.pytorch.router import fused_compute_score_for_moe_aux_loss

        s = rnd(t, e, dt=f32).requires_grad_()
        g = rnd(t, e, dt=f32)

        def f():
            m, p = fused_compute_score_for_moe_aux_loss(s, k, "softmax")
            p.backward(g)
            s.grad = None

        return f

    return make


for t in (512, 1024, 2048, 4096, 8192, 16384, 32768):
    for e, k in ((8, 2), (16, 2), (32, 4), (64, 6), (128, 8), (256, 8)):
        for fn in ("softmax", "sigmoid"):
            C.append(("router", dict(op="topk", t=t, e=e, k=k, fn=fn), router(t, e, k, fn)))
        C.append(("router", dict(op="aux", t=t, e=e, k=k), aux(t, e, k)))


def permute(t, h, e, k, kind):
    def make():
        from transformer_engine.pytorch import moe_permute, moe_unpermute

        x = rnd(t, h).requires_grad_()
        g = rnd(t, h)
        idx = torch.rand(t, e, device=dev).topk(k, dim=1).indices
        probs = torch.rand(t, k if kind == "index" else e, device=dev).requires_grad_() if True else None
        if kind == "mask":
            rm = torch.zeros(t, e, dtype=torch.int32, device=dev).scatter_(1, idx, 1)

            def f():
                y, m = moe_permute(x, rm, num_out_tokens=t * k, map_type="mask")
                moe_unpermute(y, m, probs, restore_shape=x.shape, map_type="mask").backward(g)
                x.grad = probs.grad = None
        else:
            ix = idx.int()

            def f():
                y, m = moe_permute(x, ix, num_out_tokens=t * k, map_type="index")
                moe_unpermute(y, m, probs, map_type="index").backward(g)
                x.grad = probs.grad = None

        return f

    return make


for t in (1024, 2048, 4096, 8192, 16384):
    for h in (1024, 2048, 4096, 7168):
        for e, k in ((8, 2), (64, 6)):
            if t * h * k > 1 << 28:
                continue
            for kind in ("mask", "index"):
                C.append(("permute", dict(op=kind, t=t, h=h, e=e, k=k), permute(t, h, e, k, kind)))


def xent(t, v):
    def make():
        from transformer_engine.pytorch.cross_entropy import parallel_cross_entropy

        x = rnd(t, 1, v).requires_grad_()
        y = torch.randint(0, v, (t, 1), device=dev)

        def f():
            parallel_cross_entropy(x, y).sum().backward()
            x.grad = None

        return f

    return make


for t in (512, 2048, 4096, 8192):
    for v in (8192, 32000, 50304, 128256):
        if t * v <= 1 << 29:
            C.append(("xent", dict(op="xent", t=t, v=v), xent(t, v)))


def adam(n, parts, kind):
    def make():
        dt = bf if kind == "master" else f32
        ps = [nn.Parameter(rnd(n // parts, dt=dt)) for _ in range(parts)]
        o = te.optimizers.FusedAdam(
            ps,
            lr=1e-3,
            master_weights=kind == "master",
            capturable=kind == "capturable",
            **({"store_param_remainders": True, "master_weights": True} if False else {}),
        )
        for p in ps:
            p.grad = rnd(n // parts, dt=dt)
        return lambda: o.step()

    return make


for n in (1 << 16, 1 << 18, 1 << 20, 3 << 20, 1 << 22, 1 << 23, 3 << 23, 1 << 25, 1 << 26, 1 << 27):
    for parts in (1, 4, 32):
        for kind in ("plain", "master", "capturable"):
            C.append(("adam", dict(op="adam_" + kind, n=n, parts=parts), adam(n, parts, kind)))


def l2(n, parts, dt):
    def make():
        from transformer_engine.pytorch.optimizers import multi_tensor_applier

        xs = [rnd(n // parts, dt=dt) for _ in range(parts)]
        noop = torch.zeros(1, dtype=torch.int, device=dev)
        ys = [x.clone() for x in xs]

        def f():
            multi_tensor_applier(tex.multi_tensor_l2norm, noop, [xs], False)
            multi_tensor_applier(tex.multi_tensor_scale, noop, [xs, ys], 0.5)

        return f

    return make


for n in (1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 27):
    for parts in (1, 16):
        for dt in (f32, bf):
            C.append(("adam", dict(op="l2norm", n=n, parts=parts, dt=str(dt)), l2(n, parts, dt)))


def linear(m, n, k, rec, bias=False):
    def make():
        l = te.Linear(k, n, bias=bias, params_dtype=bf, device=dev)
        x = rnd(m, k).requires_grad_()
        g = rnd(m, n)
        r = RECIPES[rec]() if rec != "bf16" else None

        def f():
            if r is None:
                y = l(x)
            else:
                with te.autocast(enabled=True, recipe=r):
                    y = l(x)
            y.backward(g)
            x.grad = None
            l.weight.grad = None

        return f

    return make


MNK = [
    (m, n, k)
    for m in (512, 1024, 2048, 4096, 8192, 16384)
    for n, k in (
        (1024, 1024),
        (2048, 2048),
        (3072, 3072),
        (4096, 4096),
        (5120, 3072),
        (3072, 8192),
        (16384, 3072),
        (6144, 4096),
        (28672, 4096),
        (4096, 14336),
        (8192, 8192),
        (1536, 4096),
        (7168, 2048),
        (2048, 7168),
        (4608, 1536),
        (10240, 2560),
        (32000, 4096),
    )
    if m * n * k <= 16384 * 8192 * 4096
]
for m, n, k in MNK:
    for rec in ("delayed", "current", "block"):
        C.append(("gemm", dict(op="linear_" + rec, m=m, n=n, k=k), linear(m, n, k, rec)))
for m, n, k in MNK[::3]:
    C.append(("gemm", dict(op="linear_bf16", m=m, n=n, k=k), linear(m, n, k, "bf16", True)))


def grouped(t, n, k, e, rec, even=True):
    def make():
        l = te.GroupedLinear(e, k, n, bias=False, params_dtype=bf, device=dev)
        x = rnd(t, k).requires_grad_()
        g = rnd(t, n)
        sp = [t // e] * e
        if not even:
            for i in range(0, e, 2):
                d = (t // e) // 2 // 16 * 16
                sp[i] += d
                sp[i + 1] -= d
        r = RECIPES[rec]() if rec != "bf16" else None

        def f():
            if r is None:
                y = l(x, sp)
            else:
                with te.autocast(enabled=True, recipe=r):
                    y = l(x, sp)
            y.backward(g)
            x.grad = None

        return f

    return make


for t in (2048, 4096, 8192, 16384):
    for n, k in ((1024, 1024), (4096, 2048), (2048, 4096), (2816, 2048)):
        for e in (4, 8, 16):
            for rec in ("bf16", "current", "block", "delayed"):
                C.append(
                    (
                        "grouped",
                        dict(op="grouped_" + rec, t=t, n=n, k=k, e=e, even=e != 16),
                        grouped(t, n, k, e, rec, e != 16),
                    )
                )


def dpa(b, s, h, g, d, dv, mask, fmt="bshd", win=None, fp8=False):
    def make():
        a = te.DotProductAttention(
            h, (d, dv) if dv != d else d, num_gqa_groups=g, qkv_format=fmt, attn_mask_type=mask, attention_dropout=0.0
        )
        kw = {}
        if fmt == "thd":
            sh = lambda n, dd: (b * s, n, dd)
            cu = torch.arange(0, b * s + 1, s, dtype=torch.int32, device=dev)
            kw.update(cu_seqlens_q=cu, cu_seqlens_kv=cu, max_seqlen_q=s, max_seqlen_kv=s)
        else:
            sh = (lambda n, dd: (b, s, n, dd)) if fmt == "bshd" else (lambda n, dd: (s, b, n, dd))
        if win:
            kw["window_size"] = win
        q, k, v = (rnd(*sh(n, dd)).requires_grad_() for n, dd in ((h, d), (g, d), (g, dv)))
        r = R.DelayedScaling(fp8_dpa=True) if fp8 else None

        def f():
            if r is None:
                y = a(q, k, v, **kw)
            else:
                with te.autocast(enabled=True, recipe=r):
                    y = a(q, k, v, **kw)
            y.sum().backward()
            q.grad = k.grad = v.grad = None

        return f

    return make


for b, s in ((1, 1024), (4, 1024), (1, 2048), (2, 2048), (1, 4096), (2, 4096), (1, 8192), (2, 8192), (1, 16384)):
    for h, g, d, dv in (
        (8, 8, 64, 64),
        (16, 16, 64, 64),
        (16, 4, 128, 128),
        (24, 8, 128, 128),
        (32, 8, 128, 128),
        (32, 32, 128, 128),
        (16, 16, 192, 128),
    ):
        if b * s * s * h > 16384 * 16384 * 16 + 1:
            continue
        C.append(
            (
                "attention",
                dict(op="dpa", b=b, s=s, h=h, g=g, d=d, dv=dv, mask="causal", fmt="sbhd"),
                dpa(b, s, h, g, d, dv, "causal", "sbhd"),
            )
        )
        if h in (16, 32) and d == 128:
            C.append(
                (
                    "attention",
                    dict(op="dpa", b=b, s=s, h=h, g=g, d=d, dv=dv, mask="no_mask", fmt="bshd"),
                    dpa(b, s, h, g, d, dv, "no_mask"),
                )
            )
        if (h, d) in ((16, 128), (32, 128)):
            C.append(
                (
                    "attention",
                    dict(op="dpa_thd", b=b, s=s, h=h, g=g, d=d, dv=dv, mask="padding_causal", fmt="thd"),
                    dpa(b, s, h, g, d, dv, "padding_causal", "thd"),
                )
            )
        if h == 24:
            C.append(
                (
                    "attention",
                    dict(op="dpa_window", b=b, s=s, h=h, g=g, d=d, dv=dv, mask="causal", fmt="bshd", win=512),
                    dpa(b, s, h, g, d, dv, "causal", "bshd", (512, 0)),
                )
            )
        if h == 16 and d == 128:
            C.append(
                (
                    "attention",
                    dict(op="dpa_fp8", b=b, s=s, h=h, g=g, d=d, dv=dv, mask="causal", fmt="bshd"),
                    dpa(b, s, h, g, d, dv, "causal", "bshd", None, True),
                )
            )


def ragged(total, kind, n):
    """Lengths of sequences that are together `total` long."""
    if kind == "equal":
        return [total // n] * n
    if kind == "long":  # one takes half
        return [total // 2] + [total // 2 // (n - 1)] * (n - 1)
    g = random.Random(total * 31 + n)  # as documents are: log-normal
    parts = [g.lognormvariate(0, 1) for _ in range(n)]
    return [max(int(total * p / sum(parts)), 1) for p in parts]


def packed(lengths, h, g, d, dv, mask, win=None, most=None):
    def make():
        a = te.DotProductAttention(
            h, (d, dv) if dv != d else d, num_gqa_groups=g, qkv_format="thd", attn_mask_type=mask, attention_dropout=0.0
        )
        total = sum(lengths)
        cu = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=dev)
        kw = dict(
            cu_seqlens_q=cu, cu_seqlens_kv=cu, max_seqlen_q=most or max(lengths), max_seqlen_kv=most or max(lengths)
        )
        if win:
            kw["window_size"] = win
        q, k, v = (rnd(total, n, dd).requires_grad_() for n, dd in ((h, d), (g, d), (g, dv)))

        def f():
            a(q, k, v, **kw).sum().backward()
            q.grad = k.grad = v.grad = None

        return f

    return make


for b, s in ((1, 1024), (2, 4096), (1, 8192), (1, 16384)):
    for h, g, d in ((8, 8, 64), (16, 16, 128), (32, 8, 128)):
        for win, mask in (((128, 0), "causal"), ((1024, 0), "causal"), ((4096, 0), "causal"), ((256, 256), "no_mask")):
            if sum(win) < s:
                about = dict(op="dpa_window", b=b, s=s, h=h, g=g, d=d, dv=d, mask=mask, fmt="bshd", win=win)
                C.append(("window", about, dpa(b, s, h, g, d, d, mask, "bshd", win)))
for total, n, kind in (
    (4096, 4, "equal"),
    (4096, 16, "documents"),
    (8192, 8, "documents"),
    (8192, 4, "long"),
    (16384, 64, "documents"),
    (16384, 8, "equal"),
    (32768, 16, "documents"),
    (32768, 9, "long"),
):
    lengths = ragged(total, kind, n)
    for h, g, d, dv in ((16, 4, 128, 128), (32, 8, 128, 128), (16, 16, 64, 64), (16, 16, 192, 128)):
        for mask, win, most in (
            ("padding_causal", None, None),
            ("padding", None, None),
            ("padding_causal", (512, 0), None),
            ("padding_causal", None, total),
        ):
            if (h == 32 or d == 128) or (win is None and most is None):
                about = dict(op="dpa_packed", lengths=lengths, h=h, g=g, d=d, dv=dv, mask=mask, win=win, most=most)
                C.append(("packed", about, packed(lengths, h, g, d, dv, mask, win, most)))
for b, s in ((4, 1024), (1, 2048), (2, 2048), (2, 4096), (1, 8192), (1, 16384)):
    for h, g in ((8, 8), (32, 8), (32, 32)):
        for mask in ("causal", "no_mask"):
            about = dict(op="dpa_fp8", b=b, s=s, h=h, g=g, d=128, dv=128, mask=mask, fmt="bshd")
            C.append(("fp8attention", about, dpa(b, s, h, g, 128, 128, mask, "bshd", None, True)))


def uneven(t, e, empty):
    """Rows of each expert, multiples of 16, as a router that is not balanced gives them."""
    g = random.Random(t * 7 + e)
    parts = [g.lognormvariate(0, 0.7) for _ in range(e)]
    for i in range(empty):
        parts[i * 2] = 0
    sizes = [int(t * p / sum(parts)) // 16 * 16 for p in parts]
    sizes[-1] += t - sum(sizes)
    return sizes


def grouped_by(sizes, n, k, rec):
    def make():
        l = te.GroupedLinear(len(sizes), k, n, bias=False, params_dtype=bf, device=dev)
        x, g = rnd(sum(sizes), k).requires_grad_(), rnd(sum(sizes), n)
        r = RECIPES[rec]() if rec != "bf16" else None

        def f():
            with te.autocast(enabled=True, recipe=r) if r else contextlib.nullcontext():
                y = l(x, sizes)
            y.backward(g)
            x.grad = None
            for p in l.parameters():
                p.grad = None

        return f

    return make


for t, e, empty in ((4096, 8, 0), (8192, 8, 2), (16384, 8, 0), (8192, 32, 8), (32768, 32, 0), (16384, 64, 0)):
    for n, k in ((4096, 2048), (2048, 1408), (7168, 2048)):
        for rec in ("bf16", "current", "block"):
            sizes = uneven(t, e, empty)
            C.append(("uneven", dict(op="grouped_" + rec, sizes=sizes, n=n, k=k), grouped_by(sizes, n, k, rec)))


def permuted(t, h, e, k, skew, dt, sort):
    def make():
        from transformer_engine.pytorch.permutation import (
            moe_permute_with_probs,
            moe_sort_chunks_by_index,
            moe_unpermute,
        )

        score = torch.rand(t, e, device=dev) + skew * torch.linspace(1, 0, e, device=dev)
        idx = score.topk(k, dim=1).indices
        rm = torch.zeros(t, e, dtype=torch.bool, device=dev).scatter_(1, idx, True)
        probs = (torch.rand(t, e, device=dev) * rm).requires_grad_()
        x, g = rnd(t, h, dt=dt).requires_grad_(), rnd(t, h, dt=dt)
        if sort:
            sizes = torch.full((e,), t // e, dtype=torch.int32, device=dev)
            order = torch.arange(e, dtype=torch.int32, device=dev).view(2, -1).T.reshape(-1).contiguous()
            gs = rnd(t, h, dt=dt)

            def f():
                y = moe_sort_chunks_by_index(x, sizes, order)
                y.backward(gs)
                x.grad = None

            return f

        def f():
            y, p, m = moe_permute_with_probs(x, probs, rm, t * k)
            z = moe_unpermute(y * p[:, None].to(dt), m, restore_shape=x.shape, map_type="mask")
            z.backward(g)
            x.grad = probs.grad = None

        return f

    return make


for t, h in ((2048, 2048), (4096, 4096), (4096, 7168), (8192, 2048), (8192, 7168), (16384, 4096)):
    for e, k in ((8, 1), (8, 2), (64, 6), (128, 8), (256, 8)):
        for skew in (0, 1):
            if t * h * k <= 1 << 29:
                about = dict(op="permute_probs", t=t, h=h, e=e, k=k, skew=skew)
                C.append(("permute2", about, permuted(t, h, e, k, skew, bf, False)))
    for e in (8, 64):
        C.append(("permute2", dict(op="sort_chunks", t=t, h=h, e=e), permuted(t, h, e, 1, 0, bf, True)))


def mlp(t, h, f_, rec, ln):
    def make():
        l = te.LayerNormMLP(
            h, f_, bias=False, normalization="RMSNorm", activation="swiglu", params_dtype=bf, device=dev
        )
        x, g = rnd(t, h).requires_grad_(), rnd(t, h)
        r = RECIPES[rec]() if rec != "bf16" else None

        def f():
            with te.autocast(enabled=True, recipe=r) if r else contextlib.nullcontext():
                y = l(x)
            y.backward(g)
            x.grad = None
            for p in l.parameters():
                p.grad = None

        return f

    return make


for t in (2048, 4096, 16384):
    for h, f_ in ((2048, 7168), (4096, 14336)):
        for rec in ("bf16", "delayed", "current", "block"):
            C.append(("mlp", dict(op="mlp_" + rec, t=t, h=h, f=f_), mlp(t, h, f_, rec, True)))


def qkv_rope(s, b, h, g, d):
    def make():
        from transformer_engine.pytorch.attention.rope import RotaryPositionEmbedding, apply_fused_qkv_rotary_pos_emb

        r = RotaryPositionEmbedding(d)(s).cuda()
        x = rnd(s, b, g, (h // g + 2) * d).requires_grad_()
        grads = [rnd(s, b, h, d), rnd(s, b, g, d), rnd(s, b, g, d)]

        def f():
            y = apply_fused_qkv_rotary_pos_emb(x, r, r, [h // g * d, d, d])
            torch.autograd.backward(y, grads)
            x.grad = None

        return f

    return make


def rope_packed(total, n, h, d):
    def make():
        from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb, RotaryPositionEmbedding

        lengths = ragged(total, "documents", n)
        total_ = sum(lengths)
        r = RotaryPositionEmbedding(d)(max(lengths)).cuda()
        cu = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=dev)
        x, g = rnd(total_, h, d).requires_grad_(), rnd(total_, h, d)

        def f():
            apply_rotary_pos_emb(x, r, tensor_format="thd", fused=True, cu_seqlens=cu).backward(g)
            x.grad = None

        return f

    return make


for s, b in ((2048, 1), (4096, 1), (4096, 2), (8192, 2), (16384, 1)):
    for h, g, d in ((16, 4, 128), (32, 8, 128)):
        C.append(("rope2", dict(op="qkv_rope", s=s, b=b, h=h, g=g, d=d), qkv_rope(s, b, h, g, d)))
for total, n in ((4096, 8), (8192, 16), (32768, 16)):
    for h, d in ((8, 128), (32, 128), (16, 64)):
        C.append(("rope2", dict(op="rope_packed", t=total, n=n, h=h, d=d), rope_packed(total, n, h, d)))
seen, cases = {}, []
for i, (group, about, make) in enumerate(C):
    if GROUPS is not None and group not in GROUPS:
        continue
    n = seen[group] = seen.get(group, -1) + 1
    if EVERY == 1 or n % EVERY == 0:
        cases.append((i, group, about, make))
print(len(C), "cases,", len(cases), "taken", flush=True)
flush = torch.empty(1 << 28, dtype=torch.uint8, device=dev)
begin, done, failed = time.time(), [], 0
from torch.profiler import profile, ProfilerActivity


def events(path):
    got = [e for e in json.load(open(path))["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return sorted(got, key=lambda e: e["ts"])


def in_order(one):
    return sorted(one, key=lambda e: (e["args"].get("stream") or 0, e["ts"]))


out = gzip.open(OUT, "wt") if OUT.endswith("gz") else open(OUT, "w")
for start in range(0, len(cases), 60):
    part, ran = cases[start : start + 60], []
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for i, group, about, make in part:
            try:
                f = make()
                f()
                torch.cuda.synchronize()
            except Exception as e:
                failed += 1
                print("FAILED", group, about, type(e).__name__, str(e)[:160].replace("\n", " "), flush=True)
                continue
            for rep in range(REPS - 1):
                if rep < 2 and REPS > 2:
                    flush.zero_()
                torch.cuda._sleep(1000)
                f()
            torch.cuda.synchronize()
            torch.cuda._sleep(1000)
            torch.cuda.synchronize()
            ran.append((i, group, about))
            f = None
    path = tempfile.mktemp(suffix=".json")
    p.export_chrome_trace(path)
    segments, now = [], None
    for e in events(path):
        if "spin_kernel" in e["name"]:
            now = []
            segments.append(now)
        elif now is not None:
            now.append(e)
    os.unlink(path)
    per = REPS
    for j, (i, group, about) in enumerate(ran):
        reps = segments[j * per : j * per + per - 1]
        if reps and REPS > 2:
            reps[0] = reps[0][:-1]  # the fill before the next one
        span = [round(1000 * (max(e["ts"] + e["dur"] for e in one) - one[0]["ts"])) for one in reps if one]
        reps = [in_order(one) for one in reps]
        rows = []
        if reps and all(len(one) == len(reps[0]) for one in reps):
            for k, e in enumerate(reps[0]):
                rows.append(
                    [
                        e["name"],
                        e["args"].get("grid"),
                        e["args"].get("block"),
                        [round(1000 * one[k]["dur"]) for one in reps],
                    ]
                )
        out.write(
            json.dumps(
                dict(
                    i=i,
                    group=group,
                    case=about,
                    kernels=rows,
                    span=span,
                    raw=[[(e["name"][:80], round(1000 * e["dur"])) for e in one] for one in reps] if not rows else None,
                )
            )
            + "\n"
        )
    out.flush()
    done += ran
    print(start + len(part), "of", len(cases), f"{time.time() - begin:.0f} s", flush=True)
out.close()
print("DONE", len(done), "failed", failed, flush=True)
