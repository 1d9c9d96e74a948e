"""Small integer and bool tensors on the device give the answers that the CPU gives. Plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

g = torch.Generator().manual_seed(0)
A = torch.randint(-50, 50, (6, 7), generator=g)
B = torch.randint(1, 20, (6, 7), generator=g)
M = A > 0
V = torch.randint(0, 9, (40,), generator=g)
F = torch.randn(5, 6, generator=g)

Case = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], object]
CASES: dict[str, Case] = {
    "add": lambda a, b, m, v, f: a + b,
    "add scalar": lambda a, b, m, v, f: (a + 3, 3 + a, a + 2.5, m + 1),
    "sub": lambda a, b, m, v, f: (a - b, 7 - a, a - 1),
    "mul": lambda a, b, m, v, f: (a * b, a * 2, a * 0.1, m * a),
    "div": lambda a, b, m, v, f: (a / b, a // b, a % b, a // 3, a % 3, 7 % b, torch.div(a, b, rounding_mode="trunc")),
    "int32": lambda a, b, m, v, f: (a.int() * 2, a.int() + b, a.to(torch.int16) + 1, a.to(torch.uint8)),
    "in place": lambda a, b, m, v, f: a.clone().add_(b).mul_(2).sub_(1).floor_divide_(3),
    "power": lambda a, b, m, v, f: (a**2, b ** a.clamp(0, 3)),
    "unary": lambda a, b, m, v, f: (-a, a.abs(), a.sign(), ~m, ~a, a.logical_not()),
    "compare": lambda a, b, m, v, f: (a == b, a != 3, a < b, a <= 0, a > b, a >= 1, f > 0.5, f == f),
    "logic": lambda a, b, m, v, f: (
        m & (b > 3),
        m | (b > 3),
        m ^ m,
        torch.logical_and(m, a),
        a & b,
        a | b,
        a << 2,
        b >> 1,
    ),
    "where": lambda a, b, m, v, f: (
        torch.where(m, a, b),
        torch.where(m, a, 0),
        torch.where(m, 1.5, f.sum().new_zeros(())),
    ),
    "clamp": lambda a, b, m, v, f: (a.clamp(-3, 8), a.clamp_min(0), torch.maximum(a, b), torch.minimum(a, b)),
    "sums": lambda a, b, m, v, f: (
        a.sum(),
        a.sum(0),
        a.sum(1, keepdim=True),
        m.sum(),
        m.sum(-1),
        a.prod(1),
        a.cumsum(0),
    ),
    "extremes": lambda a, b, m, v, f: (a.max(), a.min(), *a.max(1), *a.min(0), a.amax(1), a.argmax(), a.argmin(1)),
    "any": lambda a, b, m, v, f: (m.any(), m.all(), m.any(1), m.all(0), (a > 1000).any(), (a > -1000).all()),
    "cat": lambda a, b, m, v, f: (torch.cat([a, b]), torch.cat([a, b], 1), torch.stack([a, b]), torch.cat([m, m])),
    "index": lambda a, b, m, v, f: (
        a[2],
        a[:, 3],
        a[1:4, ::2],
        a[m],
        a[v[:3] % 6],
        a[v[:3] % 6, v[3:6] % 7],
        a[..., None],
    ),
    "index cpu": lambda a, b, m, v, f: a[torch.tensor([0, 2, 4])],
    "select": lambda a, b, m, v, f: (a.index_select(0, v[:4] % 6), a.gather(1, b % 7), a.masked_select(m), a.take(v)),
    "put": lambda a, b, m, v, f: (
        put(a, m),
        a.clone().masked_fill_(m, 9),
        a.masked_fill(m, -1),
        a.scatter(1, b % 7, 5),
    ),
    "scatter": lambda a, b, m, v, f: (a.scatter(1, b % 7, torch.zeros_like(a)), a.scatter_add(0, b % 6, b)),
    "index add": lambda a, b, m, v, f: (a.index_add(0, v[:6] % 6, b), a.index_fill(0, v[:2] % 6, 3)),
    "nonzero": lambda a, b, m, v, f: (m.nonzero(), *torch.where(m), v.nonzero(), (v > 100).nonzero()),
    "sort": lambda a, b, m, v, f: (
        *a.sort(dim=1, stable=True),
        *a.sort(dim=0, descending=True, stable=True),
        v.argsort(stable=True),
    ),
    "topk": lambda a, b, m, v, f: (a.topk(3, 1)[0], a.flatten().topk(5)[0], v.kthvalue(3)[0]),
    "unique": lambda a, b, m, v, f: (v.unique(), *v.unique(return_inverse=True, return_counts=True)),
    "unique consecutive": lambda a, b, m, v, f: (*torch.unique_consecutive(v, return_counts=True), a.unique(dim=0)),
    "bincount": lambda a, b, m, v, f: (v.bincount(), v.bincount(minlength=20)),
    "repeat": lambda a, b, m, v, f: (v.repeat_interleave(2), v[:4].repeat_interleave(v[:4]), a.repeat(2, 1), a.tile(2)),
    "shapes": lambda a, b, m, v, f: (
        a.flip(0),
        a.roll(1, 1),
        a.tril(),
        a.triu(1),
        a.t().contiguous(),
        a.expand(2, 6, 7).clone(),
    ),
    "search": lambda a, b, m, v, f: (
        torch.searchsorted(v.sort()[0], b),
        torch.isin(a, v),
        torch.bucketize(a, v.sort()[0]),
    ),
    "copies": lambda a, b, m, v, f: (
        a.t().clone(),
        a.float(),
        a.double() / 3,
        m.long(),
        a.bool(),
        a.half(),
        f.double(),
        f.long(),
    ),
    "strided": lambda a, b, m, v, f: strided(a, b),
    "factories": lambda a, b, m, v, f: factories(a.device),
    "known floats": lambda a, b, m, v, f: (
        (f * 2 + 1),
        f.sum() * 0 + 3,
        f.max(),
        torch.tensor(2.5, device=f.device) * 3,
    ),
    "equal": lambda a, b, m, v, f: (
        torch.tensor(torch.equal(a, b)),
        torch.tensor(torch.equal(a, a.clone())),
        a.eq(a).all(),
    ),
    "items": lambda a, b, m, v, f: torch.tensor([a[1, 2].item(), int(v.sum()), bool(m.any()), len(v), float(b.max())]),
    "aminmax": lambda a, b, m, v, f: (*a.aminmax(), a.count_nonzero(), v.median()),
    "outs": lambda a, b, m, v, f: (
        torch.add(a, b, out=torch.empty_like(a)),
        torch.cumsum(v, 0, out=torch.empty_like(v)),
    ),
}


def put(a: Tensor, m: Tensor) -> Tensor:
    a = a.clone()
    a[m] = 7
    a[0] = 1
    a[2, 3:5] = torch.tensor([8, 9], device=a.device)
    return a


def strided(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    a = a.clone()
    a[:, 1].add_(100)
    a[::2, ::3] = b[::2, ::3]
    a.t()[3] = 5
    return a, a.t() + b.t(), a[:, 2].contiguous()


def factories(device: torch.device) -> tuple[Tensor, ...]:
    return (
        torch.zeros(3, dtype=torch.long, device=device),
        torch.ones(2, 2, device=device, dtype=torch.int32),
        torch.full((4,), 7, device=device),
        torch.arange(3, 20, 4, device=device),
        torch.eye(3, dtype=torch.long, device=device),
        torch.tensor([[1, 2], [3, 4]], device=device),
        torch.tril_indices(3, 3, device=device),
        torch.ones(5, dtype=torch.bool, device=device),
        torch.linspace(0, 1, 5, device=device),
    )


def flatten(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    assert isinstance(value, tuple | list), value
    return [tensor for item in value for tensor in flatten(item)]


class _Mapped:
    """Pinned memory of the host's, as a device tensor over the same bytes is made of it."""

    def __init__(self, host: Tensor) -> None:
        assert host.dtype == torch.int32
        assert host.is_pinned()
        self.__cuda_array_interface__ = {
            "shape": tuple(host.shape),
            "typestr": "<i4",
            "data": (host.data_ptr(), False),
            "version": 3,
        }


def mapped_memory() -> list[str]:
    """Kernels see in mapped host memory what the program has written there, and the program what they have written."""
    host = torch.zeros(16, dtype=torch.int32, pin_memory=True)
    device = torch.as_tensor(_Mapped(host), device="cuda")
    host[:] = torch.arange(16)
    wrong = []
    if (device + 1).tolist() != list(range(1, 17)) or device[5:].sum().item() != sum(range(5, 16)):
        wrong.append("kernels do not see what the host wrote to mapped memory")
    device[3:5].add_(100)
    torch.cuda.synchronize()
    if host[2:6].tolist() != [2, 103, 104, 5]:
        wrong.append(f"the host sees {host.tolist()} in mapped memory")
    return wrong


def main() -> None:
    cpu, wrong = (A, B, M, V, F), []
    for name, case in CASES.items():
        expected = flatten(case(*cpu))
        try:
            found = flatten(case(*(tensor.cuda() for tensor in cpu)))
            for index, (one, other) in enumerate(zip(expected, found, strict=True)):
                back = other.cpu()
                if (
                    one.shape != back.shape
                    or one.dtype != back.dtype
                    or not torch.allclose(one.double(), back.double())
                ):
                    wrong.append(
                        f"{name}[{index}]: expected {one.tolist()} ({one.dtype}), found {back.tolist()} ({back.dtype})"
                    )
        except RuntimeError as error:
            wrong.append(f"{name}: {error}")
    drawn = torch.randint(0, 10, (1000,), device="cuda")
    if not 5 < len(drawn.unique()) <= 10:
        wrong.append("randint draws nothing")
    if sorted(torch.randperm(50, device="cuda").tolist()) != list(range(50)):
        wrong.append("randperm is no permutation")
    wrong += mapped_memory()
    print("\n".join(wrong) if wrong else "PASSED", flush=True)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
