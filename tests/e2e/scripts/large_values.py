"""Expressions over known tensors, large and small, have the CPU's values. `python large_values.py [TEXT]`

Tensors of more than 4,096 floating-point elements, or 1,048,576 integers, are computed when their values are read.
"""

from __future__ import annotations

import ctypes
import math
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HOOK = ctypes.CDLL(None)
HOOK.phantora_unmodelled_reads.restype = ctypes.c_uint64


def tensors(device: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def r(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    def integers(high: int, n: int) -> Tensor:
        return torch.randint(0, high, (n,), generator=generator)

    made = {"x": r(20000), "y": r(20000), "m": r(200, 300), "n": r(200, 300), "w": r(500, 64), "t3": r(16, 40, 50)}
    made["xn"], made["xi"] = r(20000), r(20000)
    made["xn"][77], made["xi"][78], made["xi"][79] = math.nan, math.inf, -math.inf
    made |= {"h": r(20000).half(), "bf": r(20000).bfloat16(), "d": r(20000).double()}
    made |= {"i": integers(100, 20000), "j": integers(500, 3000), "big": integers(1000, 1500000)}
    made |= {"i32": made["i"].int(), "big2": made["big"] + (torch.arange(1500000) % 7 == 0).long()}
    made |= {"mask": r(20000) > 0, "mm": r(200, 300) > 0, "u8": integers(255, 5000000).byte()}
    made |= {"lab": integers(300, 200), "img": r(4, 3, 64, 64), "few": torch.tensor([3, 1, 7])}
    made |= {"c": torch.complex(r(6000), r(6000)), "pos": r(20000).abs() + 0.1, "prob": r(200, 300).softmax(-1)}
    made |= {"s": r(50), "s2": r(50), "si": torch.arange(50) % 7, "sm": r(6, 7)}
    return {name: tensor.to(device) for name, tensor in made.items()}


EXPRESSIONS = """
x.isnan().any()
xn.isnan().any()
x.isinf().any()
xi.isinf().any()
x.isfinite().all()
xn.isfinite().all()
xi.isfinite().all()
bool(xn.isnan().any())
torch.isfinite(xi).all().item()
torch.isnan(xn).sum()
torch.isnan(xn).nonzero()
xn.nan_to_num().sum()
xn.nansum()
xn.nanmean()
(x == x).all()
(x == y).all()
(x == x.clone()).all()
(x != y).any()
(x == y).sum()
(big == big2).sum()
(big == big).all()
(big != big2).any()
(big - big2).abs().max()
torch.equal(x, x.clone())
torch.equal(x, y)
torch.equal(m, n)
torch.equal(big, big2)
torch.equal(x, x + 1e-9)
torch.allclose(x, x.clone())
torch.allclose(x, y)
torch.allclose(x, x + 1e-7)
torch.isclose(x, y).sum()
torch.allclose(xn, xn, equal_nan=True)
x.sum()
x.mean()
x.std()
x.var()
x.norm()
x.norm(1)
x.norm(float('inf'))
torch.linalg.vector_norm(x)
torch.linalg.norm(m)
m.norm(dim=1)
x.max()
x.min()
x.abs().max()
x.amax()
x.argmax()
x.argmin()
m.argmax(-1)
m.argmax(0)
m.max(1)
m.max(1).values.sum()
m.max(1).indices.sum()
m.min(0)
m.aminmax()
m.topk(3)
m.topk(3).indices[0]
m.sort(-1)
x.sort()
x.argsort()[:5]
x.median()
m.median(1)
x.kthvalue(7)
x.quantile(0.5)
x.cumsum(0)[-1]
x.cumprod(0)[5]
x.cummax(0).values[-1]
x.prod()
x.logsumexp(0)
m.sum(0)
m.sum(1)
m.mean(0)
m.var(0)
m.std(1)
m.softmax(-1).argmax(-1)
m.softmax(-1).sum()
m.log_softmax(-1)[0, 0]
m.sigmoid()[0, 0]
(m.sigmoid() > .5).sum()
(m > 0).sum()
(m > 0).float().mean()
(x > 0).tolist()[:5]
(m > n).any(1)
(m > 0).all(0)
(x > 1).any()
(x < 100).all()
(x >= 0).nonzero().shape
(x > 0).count_nonzero()
x.count_nonzero()
x[5]
x[5].item()
x[-1].item()
m[3, 4].item()
m[3]
m[:, 5]
m[3:5, 7:9]
x[few]
x[i[:10]]
x[mask].shape
x[mask].sum()
x[mask]
m[mm].mean()
m[mm].numel()
m[lab < 100]
m[torch.arange(200, device=m.device), lab]
m[torch.arange(200, device=m.device), lab].sum()
m.gather(1, lab[:, None])
m.gather(1, lab[:, None]).mean()
m.index_select(0, few)
m.index_select(1, lab)
x.take(few)
x.masked_select(mask).sum()
x.masked_fill(mask, 0.).sum()
m.masked_fill(mm, float('-inf')).max()
torch.where(mask, x, y).sum()
torch.where(x > 0, x, 0.).sum()
torch.where(x > 0, 1, 0).sum()
torch.where(mask)[0][:5]
F.embedding(j, w).sum()
F.embedding(j, w)[0]
F.embedding(few, w)
F.embedding(few, w).sum(-1)
w[j].mean()
nn.functional.one_hot(j, 500).sum()
F.one_hot(lab, 300).argmax(-1)
i.float().mean()
i.double().mean()
i.sum()
i.max()
i.bincount()
i.unique()
i.unique(return_counts=True)
big.sum()
big.float().mean()
big.max()
big.min()
big.bincount()
big.unique().numel()
(big > 500).sum()
(big % 2 == 0).sum()
(big == 7).float().mean()
big[5]
big[1000000].item()
big.argmax()
big.cumsum(0)[-1]
big.view(1000, 1500).sum(0)[:4]
u8.sum()
u8.float().mean()
u8.max()
(u8 > 100).sum()
u8.bincount()
mask.sum()
mask.any()
mask.all()
mask.float().mean()
(~mask).sum()
(mask & (x > 0)).sum()
(mask | (x > 0)).sum()
(mask ^ (x > 0)).sum()
torch.ones(2000, 2000, device=x.device).tril().sum()
torch.ones(2000, 2000, device=x.device).triu(1).bool().sum()
torch.ones(2000, 2000, device=x.device, dtype=torch.bool).tril()[5]
torch.tril(torch.ones(1500, 1500, device=x.device)).bool()[0].tolist()[:4]
(torch.arange(1500, device=x.device)[:, None] >= torch.arange(1500, device=x.device)[None]).sum()
(torch.arange(1500, device=x.device)[:, None] >= torch.arange(1500, device=x.device)[None])[3]
torch.full((1500, 1500), float('-inf'), device=x.device).triu(1)[0, :3]
torch.full((1500, 1500), float('-inf'), device=x.device).triu(1).isinf().sum()
torch.eye(200, device=x.device).sum()
torch.eye(200, device=x.device).diagonal().sum()
m.diagonal().sum()
torch.arange(100000, device=x.device).sum()
torch.arange(100000., device=x.device).mean()
torch.arange(2000000, device=x.device).sum()
torch.linspace(0, 1, 10000, device=x.device).sum()
torch.zeros(10000, device=x.device).sum()
torch.ones(10000, device=x.device).sum()
torch.full((10000,), 3., device=x.device).mean()
torch.full((10000,), float('nan'), device=x.device).isnan().any()
torch.cat([x, y]).sum()
torch.stack([x, y]).sum(1)
torch.cat([x, y])[20000]
torch.hstack([m, n]).sum()
x.reshape(100, 200).t().contiguous()[0]
x.view(100, 200).T.sum(0)
x.flip(0)[0]
x.roll(3)[0]
m.repeat(2, 2).sum()
m.expand(3, 200, 300).sum()
m.repeat_interleave(2, 0).sum()
m.permute(1, 0).sum(1)
m.unfold(0, 2, 2).sum()
m.chunk(2)[1].sum()
m.split(50)[3].sum()
x.clamp(-1, 1).sum()
x.clamp(min=0).sum()
x.relu().sum()
F.gelu(x).sum()
F.silu(x).sum()
F.leaky_relu(x).sum()
x.tanh().sum()
x.exp().sum()
pos.log().sum()
pos.sqrt().sum()
pos.rsqrt().sum()
x.pow(2).sum()
x.square().sum()
x.sin().sum()
x.abs().sum()
x.neg().sum()
x.sign().sum()
x.round().sum()
x.floor().sum()
x.trunc().sum()
x.frac().sum()
x.sigmoid().sum()
(x + y).sum()
(x - y).sum()
(x * y).sum()
(x / pos).sum()
(x // pos).sum()
(x % pos).sum()
(x ** 2).mean()
(2 ** x).sum()
torch.atan2(x, y).sum()
torch.maximum(x, y).sum()
torch.minimum(x, y).sum()
torch.lerp(x, y, .3).sum()
torch.addcmul(x, x, y).sum()
torch.addcdiv(x, x, pos).sum()
torch.dot(x, y)
(x * 2 + y / 3 - 1).mean()
x.clone().add_(y).mul_(2).sum()
x.clone().fill_(3).sum()
x.clone().zero_().sum()
x.half().sum()
x.half().float().sum()
x.bfloat16().float().sum()
x.double().sum()
x.int().sum()
x.long().sum()
x.bool().sum()
x.to(torch.float8_e4m3fn).float().sum()
h.float().sum()
h.isfinite().all()
bf.float().mean()
bf.abs().max()
d.sum()
i.float().sum()
i32.sum()
c.abs().sum()
c.real.sum()
c.isfinite().all()
F.mse_loss(x, y)
F.l1_loss(x, y)
F.smooth_l1_loss(x, y)
F.cross_entropy(m, lab)
F.nll_loss(m.log_softmax(-1), lab)
F.binary_cross_entropy_with_logits(x, mask.float())
F.kl_div(prob.log(), prob)
F.cosine_similarity(m, n).mean()
F.normalize(m, dim=-1).norm(dim=-1)[0]
F.layer_norm(m, (300,)).mean()
F.softmax(m, 0)[0, 0]
F.pad(m, (1, 1)).sum()
F.pad(m, (1, 1), value=2.).sum()
F.max_pool2d(img, 2).sum()
F.avg_pool2d(img, 2).sum()
F.interpolate(img, scale_factor=2).sum()
img.mean((0, 2, 3))
img.flip(-1)[0, 0, 0, 0]
img[:, :, ::2, ::2].sum()
(m.argmax(-1) == lab).float().mean()
(m.argmax(-1) == lab).sum().item()
(m.topk(5, -1).indices == lab[:, None]).any(-1).float().mean()
torch.bincount(lab, minlength=300).max()
torch.histc(x, 10, -3, 3)
x.histc(10, -3, 3).argmax()
torch.searchsorted(x.sort().values, torch.tensor([0.], device=x.device))
torch.bucketize(x, torch.linspace(-3, 3, 7, device=x.device)).bincount()
torch.isin(i, few).sum()
x.unique().numel()
m.unique(dim=0).shape
torch.scatter_reduce(torch.zeros(100, device=x.device), 0, i, x, 'sum')
torch.zeros(100, device=x.device).scatter_add_(0, i, x)
torch.zeros(100, device=x.device).index_add_(0, i, x)
torch.zeros(200, 300, device=x.device).scatter_(1, lab[:, None], 1.).sum()
torch.zeros(200, 300, device=x.device).scatter_(1, lab[:, None], 1.).argmax(-1)
x.index_fill(0, few, 9.).sum()
x.clone().index_copy_(0, few, y[:3])[3]
x.clone().masked_scatter_(mask, y)[:5]
x.clone().index_put_((few,), y[:3])[3]
torch.cummin(x, 0).values[-1]
x.diff().sum()
torch.outer(s, x).shape
m.triu().sum()
m.tril(-1).abs().sum()
torch.tril_indices(200, 200, device=x.device).sum()
torch.meshgrid(torch.arange(200, device=x.device), torch.arange(200, device=x.device), indexing='ij')[0].sum()
torch.cartesian_prod(torch.arange(100, device=x.device), torch.arange(100, device=x.device)).sum()
m.T.contiguous().view(-1)[1]
t3.sum((0, 2))
t3.transpose(0, 1)[0, 0]
t3.max(-1)[0][0]
t3.argmax(1)[0]
t3.mean((1, 2))
t3[:, 3, :].sum()
t3[..., 0]
t3[t3 > 2].numel()
t3[0, :, few].sum()
t3.flatten(1).norm(dim=1)
torch.einsum('ij->j', m)
torch._foreach_norm([x, y, m])
torch.nn.utils.get_total_norm([x, y, m])
torch._foreach_add([x, y], 1.)[0].sum()
torch._foreach_mul([x, y], 2.)[1].sum()
torch.count_nonzero(m, 0)[:4]
torch.any(xn.isnan() | xn.isinf())
torch.all(x.abs() < 10)
torch.logical_and(mask, x > 0).sum()
torch.logical_not(mask).sum()
torch.special.erf(x).sum()
x.std(unbiased=False)
torch.var_mean(x)
torch.std_mean(m, 1)
x.view(200, 100).cumsum(1)[:, -1]
x.view(torch.int32).sum()
x.numpy(force=True)[5]
x.cpu()[7]
x.tolist()[3]
sorted(x[:6000].tolist())[0]
max(x.tolist())
len(set(i.tolist()))
(x.cpu() == 0).sum()
float(x[3])
int(i[3])
bool(mask[3])
repr(x[:3])
math.isnan(xn[77].item())
s.sum()
s.argmax()
s.topk(3)
s.sort()
s[si > 3].sum()
(s == s2).all()
torch.equal(s, s.clone())
torch.allclose(s, s2)
s.isnan().any()
sm.softmax(-1).argmax(-1)
(sm @ sm.T).trace()
F.one_hot(si, 7).sum(0)
torch.det(sm[:, :6])
x.square().mean().sqrt()
(x - x.mean()).pow(2).mean()
(x - x.mean()) .abs().max()
((x - x.mean()) / x.std()).std()
m.sub(m.mean(1, keepdim=True)).div(m.std(1, keepdim=True)).sum()
(m - m.max(-1, keepdim=True).values).exp().sum(-1).log()[0]
m.abs().sum().item() / m.numel()
[p.norm().item() for p in (x, y, m)]
sum(p.numel() for p in (x, y))
max(p.abs().max().item() for p in (x, y))
any(p.isnan().any().item() for p in (x, xn))
all(torch.isfinite(p).all() for p in (x, y))
torch.stack([p.norm() for p in (x, y, m)]).norm()
torch.cat([p.flatten() for p in (x, y, m)]).norm()
{k: v.sum().item() for k, v in dict(a=x, b=y).items()}
torch.ones_like(x).sum()
torch.zeros_like(x).any()
torch.full_like(x, 2.).sum()
torch.empty_like(x).copy_(y).sum()
x.new_zeros(10000).sum()
x.clone().sum()
x.detach().clone().requires_grad_().sum()
x.expand(3, -1).sum()
x[::2].sum()
x[1:].sum() - x[:-1].sum()
x[None].squeeze().sum()
x.view(-1, 100)[:, ::3].sum()
torch.triu(torch.ones(300, 300, device=x.device, dtype=torch.bool), 1).nonzero().shape
torch.tensor_split(x, 3)[1].sum()
torch.take_along_dim(m, m.argsort(-1), -1)[0, 0]
x.to('cpu').sum()
x.to(x.device, torch.float64).sum()
x.type(torch.float64).mean()
nn.functional.dropout(x, 0.).sum()
F.hardswish(x).sum()
F.softplus(x).sum()
F.elu(x).sum()
F.threshold(x, 0, 0).sum()
F.glu(m).sum()
F.logsigmoid(x).sum()
F.pixel_shuffle(img.repeat(1, 4, 1, 1), 2).sum()
F.unfold(img, 2).sum()
x.lt(0).sum()
torch.renorm(m, 2, 0, 1.).sum()
torch.nanmedian(xn)
torch.argwhere(x > 3).shape
torch.count_nonzero(x > 3)
torch.logical_xor(mask, x > 0).sum()
torch.clip(x, -1, 1).max()
torch.heaviside(x, y).sum()
torch.hypot(x, y).sum()
torch.bitwise_and(i, 3).sum()
(i << 2).sum()
(big >> 1).sum()
(big & 1).sum()
torch.gcd(i, i + 6).sum()
(i // 7).sum()
(i / 7).sum()
big.to(torch.int32).sum()
big.double().std()
big.topk(3).values
big.sort().values[:3]
big.view(-1, 3)[:, 1].sum()
big.flip(0)[0]
big[big > 998].numel()
big[few]
torch.where(big > 500, big, 0).sum()
torch.where(big > 500, big, big2).sum()
""".strip().splitlines()
PRODUCTS = """
(m @ n.T)[0, 0]
(m @ n.T).argmax(-1)
torch.einsum('ij,ij->i', m, n)
torch.addmm(m[:, :200], m, n.T)[0, 0]
torch.bmm(t3, t3.mT)[0, 0, 0]
F.linear(m, n)[0, 0]
F.conv2d(img, img[:1])[0, 0, 0, 0]
torch.cdist(m, n)[0, 0]
torch.corrcoef(m)[0, 0]
torch.cov(m)[0, 0]
""".strip().splitlines()


def plain(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def same(got: object, expected: object) -> bool:
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor) or got.shape != expected.shape or got.dtype != expected.dtype:
            return False
        if not expected.is_floating_point() and not expected.is_complex():
            return torch.equal(got, expected)
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 3e-2}.get(expected.dtype, 1e-4)
        largest = expected.abs().double().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0
        return torch.allclose(got, expected, rtol=tolerance, atol=tolerance * max(1, largest), equal_nan=True)
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(same(got[key], expected[key]) for key in expected)
    if isinstance(expected, float) and isinstance(got, float):
        return got == expected or (got != got and expected != expected) or math.isclose(got, expected, rel_tol=1e-3)
    if isinstance(expected, str):
        return str(got).replace(", device='cuda:0'", "") == expected
    return type(got) is type(expected) and got == expected


def main() -> None:
    warnings.simplefilter("ignore")
    names = {"torch": torch, "math": math, "F": F, "nn": nn}
    on_cpu, on_gpu = names | tensors("cpu"), names | tensors("cuda")
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    wrong = []
    for text in EXPRESSIONS:
        if wanted in text:
            before = HOOK.phantora_unmodelled_reads()
            expected, got = (plain(eval(text, space)) for space in (on_cpu, on_gpu))
            if not same(got, expected) or HOOK.phantora_unmodelled_reads() != before:
                wrong.append(f"{text}: {got}, expected {expected}")
    for text in PRODUCTS:
        before = HOOK.phantora_unmodelled_reads()
        plain(eval(text, on_gpu))
        if HOOK.phantora_unmodelled_reads() == before:
            wrong.append(f"{text}: not computed and not counted")
    print("\n".join(wrong) if wrong else f"PASSED {len(EXPRESSIONS)}")


if __name__ == "__main__":
    main()
