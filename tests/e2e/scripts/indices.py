"""Indices in large tensors that nobody reads: those out of range stop the program, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SIZE = 300
ONES = torch.ones(SIZE, SIZE, device="cuda")
LARGE = ONES @ ONES
MASK = torch.ones(SIZE, dtype=torch.bool, device="cuda")

FROM_START: dict[str, Callable[[Tensor], Any]] = {
    "scatter": lambda i: LARGE.scatter(0, i[None], 1.0),
    "scatter_": lambda i: LARGE.scatter_(1, i[None], ONES),
    "scatter_add_": lambda i: LARGE.scatter_add_(0, i[None], ONES),
    "scatter_reduce_": lambda i: LARGE.scatter_reduce_(0, i[None], ONES, "amax"),
    "index_add_": lambda i: LARGE.index_add_(0, i, ONES[:1]),
    "index_copy_": lambda i: LARGE.index_copy_(1, i, ONES[:, :1]),
    "index_reduce_": lambda i: LARGE.index_reduce_(0, i, ONES[:1], "amax"),
    "index_select": lambda i: LARGE.index_select(0, i),
    "gather": lambda i: LARGE.gather(0, i[None]),
    "embedding": lambda i: F.embedding(i, LARGE),
    "embedding_bag": lambda i: F.embedding_bag(i[None], LARGE),
}
FROM_BOTH_ENDS: dict[str, Callable[[Tensor], Any]] = {
    "index": lambda i: LARGE[i],
    "index of known values": lambda i: ONES[i],
    "second index": lambda i: LARGE[:, i],
    "index beside a mask": lambda i: LARGE[MASK, i],
    "index_put_": lambda i: LARGE.index_put_((i,), ONES[0], accumulate=True),
    "index_fill_": lambda i: LARGE.index_fill_(0, i, 1.0),
    "take": lambda i: LARGE.take(i * SIZE),
    "put_": lambda i: LARGE.put_(i * SIZE, ONES[0, :1]),
}


def stops(operation: Callable[[Tensor], Any], index: int) -> bool:
    try:
        operation(torch.tensor([index], device="cuda"))
    except torch.AcceleratorError as error:
        if "device-side assert" not in str(error):
            raise
        return True
    return False


def main() -> None:
    for least, operations in ((0, FROM_START), (-SIZE, FROM_BOTH_ENDS)):
        for name, operation in operations.items():
            found = [index for index in (-SIZE - 1, -SIZE, -1, 0, SIZE - 1, SIZE) if stops(operation, index)]
            assert found == [i for i in (-SIZE - 1, -SIZE, -1, 0, SIZE - 1, SIZE) if not least <= i < SIZE], name
    print("PASSED")


if __name__ == "__main__":
    main()
