"""Operations on values that nobody computed: what they give is unknown, whatever their kernels fill in on the way.

Prints the names of those whose result was read without being counted.
"""

import ctypes

import torch

hook = ctypes.CDLL(None)
hook.phantora_unmodelled_reads.restype = ctypes.c_uint64
d = "cuda"
ones = torch.ones(3000, 3000, device=d)
U = ones @ ones  # too large to be computed
u = U[0, :8].contiguous()
ui = (u > 1).long()
k = torch.arange(8.0, device=d) + 1
idx = torch.arange(8, device=d) % 4
operations = {
    "scatter_add": lambda: torch.scatter_add(k, 0, idx, u),
    "scatter": lambda: torch.scatter(k, 0, idx, u),
    "scatter_reduce": lambda: torch.scatter_reduce(k, 0, idx, u, "amax"),
    "index_add": lambda: torch.index_add(k, 0, idx, u),
    "index_copy": lambda: torch.index_copy(k, 0, idx, u),
    "index_put": lambda: torch.index_put(k, (idx,), u),
    "index_put_acc": lambda: torch.index_put(k, (idx,), u, accumulate=True),
    "index_fill": lambda: torch.index_fill(k, 0, idx, u[0]),
    "index_reduce": lambda: torch.index_reduce(k, 0, idx, u, "mean"),
    "masked_scatter": lambda: torch.masked_scatter(k, idx > 1, u),
    "masked_fill": lambda: torch.masked_fill(k, idx > 1, u[0]),
    "put": lambda: torch.ops.aten.put(k, idx, u),
    "addmm": lambda: torch.addmm(k[:4].expand(4, 4).contiguous(), u.view(4, 2), u.view(2, 4)),
    "addmm_big": lambda: torch.addmm(k[:4], U[:4], U[:, :4].contiguous()),
    "baddbmm": lambda: torch.baddbmm(k[:4].view(1, 2, 2), u[:4].view(1, 2, 2), u[:4].view(1, 2, 2)),
    "addmv": lambda: torch.addmv(k[:2], u[:4].view(2, 2), u[:2]),
    "addr": lambda: torch.addr(torch.ones(2, 2, device=d), u[:2], u[:2]),
    "addcmul": lambda: torch.addcmul(k, u, u),
    "addbmm": lambda: torch.addbmm(torch.ones(2, 2, device=d), u.view(2, 2, 2), u.view(2, 2, 2)),
    "emb_bwd": lambda: torch.ops.aten.embedding_dense_backward(u.view(4, 2), idx[:4], 4, -1, False),
    "emb_bag": lambda: torch.nn.functional.embedding_bag(idx.view(2, 4), u.view(4, 2)),
    "nll_loss": lambda: torch.nn.functional.nll_loss(u.view(2, 4), idx[:2]),
    "nll_bwd": lambda: torch.autograd.grad(
        torch.nn.functional.nll_loss((w := u.view(2, 4).clone().requires_grad_()), idx[:2]), w
    )[0],
    "ce": lambda: torch.nn.functional.cross_entropy(U[:4], idx[:4]),
    "ce_bwd": lambda: torch.autograd.grad(
        torch.nn.functional.cross_entropy((w := u.view(2, 4).clone().requires_grad_()), idx[:2]), w
    )[0],
    "cumsum": lambda: u.cumsum(0),
    "sort": lambda: u.sort()[0],
    "sorti": lambda: u.sort()[1],
    "topk": lambda: u.topk(3)[1],
    "where": lambda: torch.where(idx > 1, u, k),
    "cat": lambda: torch.cat([k, u]),
    "stack": lambda: torch.stack([k, u]),
    "pad": lambda: torch.nn.functional.pad(u, (1, 1)),
    "roll": lambda: u.roll(1),
    "flip": lambda: u.flip(0),
    "tril": lambda: torch.tril(u.view(2, 4)),
    "diag": lambda: torch.diag(u),
    "diagem": lambda: torch.diag_embed(u),
    "repeat": lambda: u.repeat(2),
    "select_bwd": lambda: torch.ops.aten.select_backward(u[0], [8], 0, 2),
    "slice_bwd": lambda: torch.ops.aten.slice_backward(u[:2], [8], 0, 0, 2, 1),
    "select_scatter": lambda: torch.select_scatter(k, u[0], 0, 1),
    "slice_scatter": lambda: torch.slice_scatter(k, u[:2], 0, 0, 2),
    "diag_scatter": lambda: torch.diagonal_scatter(torch.zeros(8, 8, device=d), u),
    "index_bwd": lambda: torch.autograd.grad(((w := u.clone().requires_grad_())[idx] * w).sum(), w)[0],
    "maxpool_bwd": lambda: torch.autograd.grad(
        (torch.nn.functional.max_pool1d((w := u.view(1, 1, 8).clone().requires_grad_()), 2) * w[..., :4]).sum(), w
    )[0],
    "avgpool": lambda: torch.nn.functional.avg_pool1d(u.view(1, 1, 8), 2),
    "adaptive": lambda: torch.nn.functional.adaptive_max_pool1d(u.view(1, 1, 8), 2),
    "interp": lambda: torch.nn.functional.interpolate(u.view(1, 1, 8), 16),
    "conv": lambda: torch.nn.functional.conv1d(u.view(1, 1, 8), k[:3].view(1, 1, 3), k[:1]),
    "conv_bwd": lambda: torch.autograd.grad(
        torch.nn.functional.conv1d(u.view(1, 1, 8), (w := k[:3].clone().view(1, 1, 3).requires_grad_())).sum(), w
    )[0],
    "ln": lambda: torch.nn.functional.layer_norm(u, (8,), k, k),
    "bn": lambda: torch.nn.functional.batch_norm(u.view(4, 2), k[:2].clone(), k[:2].clone(), training=True),
    "bn_stats": lambda: (
        lambda m: (torch.nn.functional.batch_norm(u.view(4, 2), m, k[:2].clone(), training=True), m)[1]
    )(k[:2].clone()),
    "gn": lambda: torch.nn.functional.group_norm(u.view(1, 4, 2), 2),
    "rms": lambda: torch.nn.functional.rms_norm(u, (8,)),
    "sm": lambda: u.softmax(0),
    "lse": lambda: u.logsumexp(0),
    "norm": lambda: u.norm(),
    "foreach_norm": lambda: torch._foreach_norm([u, k])[0],
    "foreach_add": lambda: torch._foreach_add([k, k], [u, u])[0],
    "foreach_": lambda: (lambda a: (torch._foreach_add_([a], [u]), a)[1])(k.clone()),
    "foreach_copy": lambda: (lambda a: (torch._foreach_copy_([a], [u]), a)[1])(k.clone()),
    "add_": lambda: k.clone().add_(u),
    "mul_": lambda: k.clone().mul_(u),
    "lerp_": lambda: k.clone().lerp_(u, 0.1),
    "copy_": lambda: k.clone().copy_(u),
    "setitem": lambda: (lambda a: (a.__setitem__(slice(0, 4), u[:4]), a)[1])(k.clone()),
    "setidx": lambda: (lambda a: (a.__setitem__(idx, u), a)[1])(k.clone()),
    "masked_set": lambda: (lambda a: (a.__setitem__(idx > 1, 0.5 * u[0]), a)[1])(k.clone()),
    "clamp": lambda: u.clamp(0, 1),
    "einsum": lambda: torch.einsum("i,j->ij", u, k),
    "outer": lambda: torch.outer(k, u),
    "dot": lambda: torch.dot(u, k),
    "matmul": lambda: u.view(2, 4) @ k.view(4, 2),
    "linear": lambda: torch.nn.functional.linear(u.view(2, 4), k.view(2, 4), k[:2]),
    "bilinear": lambda: torch.nn.functional.bilinear(u.view(2, 4), u.view(2, 4), torch.ones(1, 4, 4, device=d), k[:1]),
    "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(*[u.view(1, 1, 2, 4).half()] * 3),
    "hist": lambda: torch.histc(u, 4),
    "bincount": lambda: torch.bincount(idx, weights=u.double()),
    "unique": lambda: u.unique(),
    "argmax": lambda: u.argmax(),
    "nonzero": lambda: torch.count_nonzero(u),
    "any": lambda: (u > 0).any(),
    "isnan": lambda: u.isnan(),
    "cumsum_i": lambda: ui.cumsum(0),
    "iadd": lambda: idx.index_add(0, idx, ui),
    "iscat": lambda: torch.scatter_add(torch.zeros(8, dtype=torch.long, device=d), 0, idx, ui),
    "one_hot": lambda: torch.zeros(8, 4, device=d).scatter_(1, idx.view(-1, 1), u.view(-1, 1)),
    "adamw": lambda: (lambda p: (setattr(p, "grad", u.clone()), torch.optim.AdamW([p], lr=0.1).step(), p.detach())[2])(
        torch.nn.Parameter(k.clone())
    ),
    "adam_fused": lambda: (
        lambda p: (setattr(p, "grad", u.clone()), torch.optim.AdamW([p], lr=0.1, fused=True).step(), p.detach())[2]
    )(torch.nn.Parameter(k.clone())),
    "adam_foreach": lambda: (
        lambda p: (setattr(p, "grad", u.clone()), torch.optim.AdamW([p], lr=0.1, foreach=True).step(), p.detach())[2]
    )(torch.nn.Parameter(k.clone())),
    "sgd_mom": lambda: (
        lambda p: (setattr(p, "grad", u.clone()), torch.optim.SGD([p], lr=0.1, momentum=0.9).step(), p.detach())[2]
    )(torch.nn.Parameter(k.clone())),
    "fft": lambda: torch.fft.fft(u),
    "svd": lambda: torch.linalg.svdvals(u.view(2, 4)),
    "solve": lambda: torch.linalg.solve(k[:4].view(2, 2), u[:2]),
    "tri": lambda: torch.triangular_solve(u.view(2, 4), torch.eye(2, device=d))[0],
    "cdist": lambda: torch.cdist(u.view(2, 4), k.view(2, 4)),
    "renorm": lambda: torch.renorm(u.view(2, 4), 2, 0, 1.0),
    "lstm": lambda: torch.nn.LSTM(4, 3).cuda()(u.view(2, 1, 4))[0],
    "mode": lambda: u.mode()[0],
    "kth": lambda: u.kthvalue(2)[0],
    "median": lambda: u.median(),
    "quant": lambda: u.quantile(0.3),
    "cum_max": lambda: u.cummax(0)[1],
    "searchs": lambda: torch.searchsorted(k, u),
    "bucket": lambda: torch.bucketize(u, k),
    "grid": lambda: torch.nn.functional.grid_sample(torch.ones(1, 1, 2, 2, device=d), u.view(1, 2, 2, 2)),
    "unfold": lambda: torch.nn.functional.unfold(u.view(1, 1, 2, 4), 2),
    "ctc": lambda: torch.nn.functional.ctc_loss(
        u[:6].view(3, 1, 2).log_softmax(2),
        torch.ones(1, 1, dtype=torch.long, device=d),
        torch.tensor([3]),
        torch.tensor([1]),
    ),
    "multinom": lambda: torch.multinomial(u, 2),
    "bern": lambda: torch.bernoulli(u),
    "drop": lambda: torch.dropout(u, 0.5, True),
    "to16": lambda: u.half(),
    "toint": lambda: u.int(),
    "complex": lambda: torch.complex(u, k),
    "gelu": lambda: torch.nn.functional.gelu(u),
    "prelu": lambda: torch.nn.functional.prelu(u, k[:1]),
    "glu": lambda: torch.nn.functional.glu(u),
    "embed": lambda: torch.nn.functional.embedding(idx, u.view(4, 2)),
    "amp": lambda: (
        lambda g: (
            torch._amp_foreach_non_finite_check_and_unscale_([g], torch.zeros(1, device=d), torch.ones(1, device=d)),
            g,
        )[1]
    )(u.clone()),
    "trace": lambda: torch.trace(u[:4].view(2, 2)),
    # These fail for some matrices, but not for unknown ones.
    "cholesky": lambda: torch.linalg.cholesky(u[:4].view(2, 2)),
    "inv": lambda: torch.linalg.inv(u[:4].view(2, 2) + torch.eye(2, device=d)),
    "solve_u": lambda: torch.linalg.solve(u[:4].view(2, 2), k[:2]),
    "lu": lambda: torch.linalg.lu_factor(u[:4].view(1, 2, 2))[0],
    "ldl": lambda: torch.linalg.ldl_factor(u[:4].view(2, 2))[0],
    "det": lambda: torch.det(u[:4].view(2, 2)),
    "meshgrid": lambda: torch.meshgrid(u, k, indexing="ij")[0],
    "cartesian": lambda: torch.cartesian_prod(u, k),
    "tensordot": lambda: torch.tensordot(u.view(2, 4), k.view(4, 2), 1),
    "kron": lambda: torch.kron(u, k),
}
wrong = []
for name, operation in operations.items():
    result = operation()
    torch.cuda.synchronize()
    before = hook.phantora_unmodelled_reads()
    result.detach().cpu()
    if hook.phantora_unmodelled_reads() == before:
        wrong.append(name)
print(len(operations), "operations, known:", " ".join(wrong) or "none")
