"""Large tensors through random moves, fills and views: what is read back is what the CPU has, or counted as uncomputed.

`python kept_eager.py SEED OPERATIONS`. The tensors' memory is recycled all the time.
"""

from __future__ import annotations

import ctypes
import io
import random
import sys
from collections.abc import Callable

import torch
from torch import Tensor

HOOK = ctypes.CDLL(None)
HOOK.phantora_unmodelled_reads.restype = ctypes.c_uint64
Op = Callable[[Tensor], Tensor]
ROWS, COLUMNS = 600, 1100


def set_(tensor: Tensor, index: object, value: object) -> Tensor:
    made = tensor.clone()
    made[index] = value
    return made


def filled(tensor: Tensor, value: float) -> Tensor:
    made = torch.empty_like(tensor)
    made[: tensor.shape[0] // 2] = value
    made[tensor.shape[0] // 2 :] = tensor[tensor.shape[0] // 2 :]
    return made


def saved(tensor: Tensor) -> Tensor:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    return torch.load(file, map_location=tensor.device)


def columns(tensor: Tensor) -> Tensor:
    made = torch.empty_like(tensor)
    half = tensor.shape[1] // 2
    made[:, :half].copy_(tensor[:, :half])
    made[:, half:].copy_(tensor[:, half:])
    return made


def overlapping_write(tensor: Tensor) -> Tensor:
    """A kernel that is not executed writes to some rows, then known values to others."""
    made = tensor.clone()
    made[10:20].sigmoid_()
    made[10:20] = tensor[30:40]
    return made


MOVES: dict[str, Op] = {
    "clone": lambda t: t.clone(),
    "transposed": lambda t: t.t().contiguous().t().contiguous(),
    "dtypes": lambda t: t.bfloat16().float().half().float(),
    "scaled": lambda t: t.mul(0.5).add_(1).clamp_(-1, 1),
    "concatenated": lambda t: torch.cat([t[:100], t[200:], t[100:200]]),
    "concatenated columns": lambda t: torch.cat([t[:, 7:], t[:, :7]], 1),
    "row": lambda t: set_(t, 5, 2.0),
    "column": lambda t: set_(t, (slice(None), 5), -1.0),
    "block": lambda t: set_(t, (slice(10, 400), slice(3, 900)), t[50:440, 100:997]),
    "element": lambda t: set_(t, (3, 4), 7.0),
    "filled": lambda t: filled(t, 0.25),
    "columns": columns,
    "saved": saved,
    "flat": lambda t: torch._utils._flatten_dense_tensors([t[:300], t[300:]]).view_as(t),
    "steps": lambda t: t[::2].repeat_interleave(1, 0).repeat(2, 1)[: t.shape[0]].contiguous(),
    "moved": lambda t: t.to("cpu").to(t.device),
    "overwritten": overlapping_write,
    "foreach": lambda t: _foreach(t),
}


def _foreach(tensor: Tensor) -> Tensor:
    made = torch.empty_like(tensor)
    torch._foreach_copy_([made[:200], made[200:]], [tensor[:200], tensor[200:]])
    return made


def main() -> None:
    generator = random.Random(int(sys.argv[1]))
    torch.manual_seed(int(sys.argv[1]))
    pool = [torch.randn(ROWS, COLUMNS).clamp_(-3, 3) for _ in range(3)]
    known = [tensor.cuda() for tensor in pool]
    right = 0
    for _ in range(int(sys.argv[2])):
        at = generator.randrange(len(pool))
        name = generator.choice(sorted(MOVES))
        stale = [torch.full((generator.randrange(1, ROWS), COLUMNS), 777.0, device="cuda") for _ in range(3)]
        del stale
        expected, got = MOVES[name](pool[at]), MOVES[name](known[at])
        if generator.random() < 0.5:
            lost = got @ got.t()  # not executed, into recycled memory
            before = HOOK.phantora_unmodelled_reads()
            assert not lost.sigmoid().cpu().any(), "what nobody computed is 0"
            assert HOOK.phantora_unmodelled_reads() > before
        before = HOOK.phantora_unmodelled_reads()
        value = got.cpu()
        assert torch.equal(value, expected), f"{name}: {(value - expected).abs().max()}"
        assert HOOK.phantora_unmodelled_reads() == before, f"{name} counts as uncomputed"
        row = generator.randrange(expected.shape[0])
        assert got[row, 3].item() == expected[row, 3].item(), name
        right += 2
        pool[at], known[at] = expected, got
    print(f"PASSED {right}")


main()
