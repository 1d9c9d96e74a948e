"""Cases that end well on GPUs, many in one job: each is a function that all ranks call."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

CASES: list[tuple[str, Callable[[], object]]] = []
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def case(*choices: Iterable[Any]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Makes a function a case, or one case for each choice of its arguments."""

    def add(function: Callable[..., object]) -> Callable[..., object]:
        for chosen in choices or [()]:
            arguments = tuple(chosen)
            name = "_".join([function.__name__, *map(str, arguments)])
            CASES.append((name, lambda arguments=arguments: function(*arguments)))
        return function

    return add


def ones(count: int = 8) -> torch.Tensor:
    return torch.ones(count, device=device)


def new_groups(*parts: Iterable[int], **options: Any) -> Any:
    """Makes a group of each part, on all ranks, and returns the first that this rank is in."""
    made = [(list(part), dist.new_group(list(part), **options)) for part in parts]
    return next((group for part, group in made if rank in part), None)


def main() -> None:
    """Runs all cases. A case that raises ends the program with an error, after the others."""
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    failed = 0
    for name, run in CASES:
        try:
            run()
            torch.cuda.synchronize()
        except Exception:
            failed += 1
            print(f"case {name} has failed", flush=True)
            traceback.print_exc()
        if rank == 0:
            print(f"case {name}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(failed != 0)
