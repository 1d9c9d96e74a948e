"""Sparse, nested, conjugated and other uncommon tensors have the values that the CPU computes. Plain PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap

HOOK = ctypes.CDLL(None)
HOOK.phantora_unmodelled_reads.restype = ctypes.c_uint64


def random(device: str, *sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(device)


def coo(device: str) -> Tensor:
    indices = torch.tensor([[0, 1, 1, 2], [2, 0, 0, 2]], device=device)
    return torch.sparse_coo_tensor(indices, random(device, 4), (3, 4))


def sparse(device: str) -> object:
    s, d = coo(device), random(device, 4, 2)
    once = s.coalesce()
    return (
        *(s.to_dense(), s @ d, torch.sparse.mm(s, d), once.indices(), once.values(), s._nnz(), once._nnz()),
        *((s * 2).to_dense(), (s + s).to_dense(), s.t().to_dense(), torch.sparse.sum(s, 0).to_dense()),
        *(torch.sparse.softmax(once, 1).to_dense(), torch.ones(3, 4, device=device).add_(s)),
        coo(device).mul_(3).coalesce().values(),
    )


def compressed(device: str) -> object:
    dense = random(device, 4, 4) * (random(device, 4, 4, seed=1) > 0)
    row, column, blocks = dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2))
    return (
        *(row.crow_indices(), row.col_indices(), row.values(), column.row_indices(), blocks.values()),
        *(row @ dense, row.to_dense(), (row * 2).to_dense(), coo(device).coalesce().to_sparse_csr().col_indices()),
    )


def sparse_gradient(device: str) -> object:
    table = nn.Embedding(10, 4, sparse=True, device=device)
    table.weight.data.copy_(random(device, 10, 4))
    optimizer = torch.optim.SGD(table.parameters(), 0.1)
    table(torch.tensor([1, 3, 3], device=device)).sum().backward()
    optimizer.step()
    assert table.weight.grad is not None
    gradient = table.weight.grad.coalesce()
    adam = torch.optim.SparseAdam(table.parameters(), 0.1)
    adam.step()
    return gradient.indices(), gradient.values(), table.weight


def bags(device: str) -> object:
    """Indices in bags, the last of which is empty; the mean leaves padding out."""
    indices, offsets = torch.tensor([1, 2, 3, 3, 0], device=device), torch.tensor([0, 2, 5], device=device)
    found: list[Tensor] = []
    for mode, padding in (("sum", None), ("mean", 0), ("max", None)):
        table = nn.EmbeddingBag(6, 4, mode=mode, padding_idx=padding, device=device)
        table.weight.data.copy_(random(device, 6, 4))
        out = table(indices, offsets)
        (out * random(device, 3, 4, seed=1)).sum().backward()
        assert table.weight.grad is not None
        found += [out, table.weight.grad]
    return found


def nested(device: str) -> object:
    rows = [random(device, 3, 4), random(device, 5, 4)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    weight = random(device, 4, 2).requires_grad_()
    (jagged @ weight).values().sum().backward()
    padded = torch.nested.to_padded_tensor(jagged.detach(), -1.0)
    return jagged.offsets(), padded, jagged.detach().sin().values(), jagged.detach().sum(-1).values(), weight.grad


def nested_in_layers(device: str) -> object:
    """Without gradients, a Transformer's encoder gives its kernels nested tensors if some tokens are padding."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).to(device).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2], device=device)
    with torch.no_grad():
        out = encoder(random(device, 2, 5, 16), src_key_padding_mask=padding)
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], device=device)
    turned = rows.transpose(1, 2)
    assert turned.is_nested
    assert not turned.is_contiguous()
    return torch.tensor(out.shape), torch.tensor([one.shape for one in turned.contiguous().unbind()])


def conjugated(device: str) -> object:
    z = torch.complex(random(device, 6, 4), random(device, 6, 4, seed=1))
    values = (
        *(z.conj(), z.conj().t(), z.conj()[1:, ::2].clone(), z.clone().copy_(z.conj()), z.mH @ z, z.conj() * 2),
        *(z * 1j, 1j + z.real, z.to(torch.complex128) * (0.1 + 0.2j), z.real.double() * 0.1j),
        *(torch.cat([z.conj(), z]), torch.fft.ihfft(z.real, dim=0), torch.fft.hfft(z, dim=0), z.conj().imag + 1),
    )
    return (*(value.cpu().resolve_conj() for value in values), z.conj().imag.t().cpu().resolve_neg())


def in_inference_mode(device: str) -> object:
    with torch.inference_mode():
        torch.zeros(9000, 2, device=device).to(torch.int32)  # of a matrix that is too large to be computed
        scores = nn.Linear(8, 4, device=device).weight.mul_(0).add_(random(device, 4, 8))
        return scores.half().float().argmax(1), torch.arange(6.0).to(device).double()


def searched(device: str) -> object:
    edges, whole = torch.tensor([1.0, 3.0, 5.0], device=device), torch.tensor([1, 3, 5], device=device)
    return (
        *(torch.searchsorted(edges, 2.0), torch.searchsorted(whole, 2.5), torch.searchsorted(edges, 3, right=True)),
        *(torch.bucketize(2.5, edges), torch.bucketize(4, whole)),
    )


def of_no_dimensions(device: str) -> object:
    number, index = torch.tensor(3.0, device=device), torch.tensor(0, device=device)
    return torch.gather(number, 0, index), torch.index_select(number, 0, index)


def numbers(device: str) -> object:
    """The dtype of a tensor of no dimensions wins over a number's."""
    half, whole = random(device, 1)[0].bfloat16(), torch.tensor(7, dtype=torch.int32, device=device)
    single, flag = random(device, 1)[0], torch.tensor(True, device=device)
    return (
        *(half * 0.1, half / 3, 2 - half, half > 0.1, half.half() * 0.1, torch.where(flag, half, 0.3), half**2),
        *(
            whole * 2,
            whole // 2,
            whole + 1.5,
            whole / 2,
            5 % whole,
            flag + 1,
            flag * 0.5,
            single * 2,
            single.double() * 0.1,
        ),
        *(whole.to(torch.int16) + 1, half.add_(0.1), whole.to(torch.uint8) << 1, half.clamp(max=0.2)),
    )


def modes(device: str) -> object:
    whole = torch.randint(0, 9, (6, 30), generator=torch.Generator().manual_seed(0)).to(device)
    return whole.mode().values, whole.mode(0, keepdim=True).values, whole.flatten().mode().values


def recurrent(device: str) -> object:
    """The weights of a recurrent network outlive its forward pass, which is not computed."""
    torch.manual_seed(0)
    network, cell = nn.LSTM(4, 5, 2).to(device), nn.LSTMCell(3, 4).to(device)
    network(random(device, 3, 2, 4))
    h, c = cell(random(device, 2, 3))
    h, c = cell(random(device, 2, 3), (h, c))
    (h.sum() + c.square().sum()).backward()
    return [*network.parameters()], h, c, [weight.grad for weight in cell.parameters()]


def norms_in_bfloat16(device: str) -> object:
    norm = nn.LayerNorm(8).to(device).bfloat16()
    x = random(device, 3, 8).bfloat16().requires_grad_()
    (norm(x).float() * random(device, 3, 8, seed=4)).sum().backward()
    assert x.grad is not None
    return [value.float() / 1000 for value in (norm(x), x.grad, norm.bias.grad)]  # the CPU rounds more


def vectors(device: str) -> object:
    x, w = random(device, 4, 6), random(device, 6, seed=1)
    return (
        *(x.mv(w), F.linear(x, w), x @ w, torch.addmv(torch.full((4,), torch.nan, device=device), x, w, beta=0)),
        *(vmap(lambda row: (row @ w).tanh())(x), grad(lambda v: (x @ v).tanh().sum())(w), jacrev(lambda v: x @ v)(w)),
    )


CASES: list[Callable[[str], object]] = [
    *(
        sparse,
        compressed,
        sparse_gradient,
        bags,
        nested,
        nested_in_layers,
        conjugated,
        in_inference_mode,
        searched,
        of_no_dimensions,
    ),
    *(numbers, modes, recurrent, norms_in_bfloat16, vectors),
]


def flat(value: object) -> list[Tensor]:
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in flat(item)]
    return [value.detach() if isinstance(value, Tensor) else torch.tensor(value)]


def stale_dense() -> None:
    """A dense tensor that is known gets a sparse one added whose values are not: it is not known any more."""
    unknown = (torch.ones(100, 100, device="cuda") @ torch.ones(100, 100, device="cuda"))[0, :4]
    indices = torch.tensor([[0, 1, 1, 2], [2, 0, 0, 2]], device="cuda")
    dense = torch.ones(3, 4, device="cuda")
    dense.add_(torch.sparse_coo_tensor(indices, unknown, (3, 4)))
    before = HOOK.phantora_unmodelled_reads()
    assert dense.tolist() == [[0.0] * 4] * 3
    assert HOOK.phantora_unmodelled_reads() > before


def sizes_from_the_first_batch() -> None:
    """Parameters that have no sizes yet are moved and converted, and nothing else is done with them."""
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)).to("cuda").half()
    assert model(torch.ones(2, 3, 8, 8, device="cuda").half()).shape == (2, 3)
    loaded = nn.LazyLinear(4).cuda()
    loaded.load_state_dict(nn.Linear(3, 4).state_dict())
    assert loaded.weight.shape == (4, 3)
    try:
        nn.LazyLinear(4).cuda().weight + 1
    except ValueError:
        return
    raise AssertionError("it has no values")


def main() -> None:
    for case in CASES:
        before = HOOK.phantora_unmodelled_reads()
        for i, (expected, got) in enumerate(zip(flat(case("cpu")), flat(case("cuda")), strict=True)):
            value = got.cpu()
            same = expected.shape == value.shape and expected.dtype == value.dtype
            assert same, f"{case.__name__}, result {i}: {value}, expected {expected}"
            if value.dtype == torch.bool:
                expected, value = expected.int(), value.int()
            assert torch.allclose(expected, value, rtol=1e-3, atol=1e-4), f"{case.__name__}, result {i}: {value}"
        assert HOOK.phantora_unmodelled_reads() == before, f"{case.__name__}: a value was not computed"
    stale_dense()
    sizes_from_the_first_batch()
    print("PASSED")


main()
