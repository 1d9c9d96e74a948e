"""Saves what an optimizer has updated in every way, below the folder that is its argument."""

import contextlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
plain, sharded = (torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(2)]).cuda() for _ in range(2))
fully_shard(sharded)
optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (plain, sharded)]
for _ in range(2):
    (plain(torch.randn(4, 512, device="cuda")) + sharded(torch.randn(4, 512, device="cuda"))).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
if rank == 0:
    for name in ("path", "copied", "stream"):
        (folder / name).mkdir()
    torch.save({"model": plain.state_dict()}, folder / "path" / "model.pt")
    torch.save({name: value.cpu() for name, value in plain.state_dict().items()}, folder / "copied" / "model.pt")
    with (folder / "stream" / "model.pt").open("wb") as file:
        torch.save(plain.state_dict(), file)
    with contextlib.suppress(ImportError):
        from safetensors.torch import save_file

        (folder / "safe").mkdir()
        save_file(
            {f"{number}": torch.full((64,), 2.0, device="cuda") for number in range(4)}, folder / "computed.safetensors"
        )
        save_file(plain.state_dict() | {"small": plain[0].weight[0].clone()}, folder / "safe" / "model.safetensors")
    torch.save(torch.ones(1 << 20), folder / "computed.pt")
dcp.save({"model": get_model_state_dict(sharded)}, checkpoint_id=folder / "sharded")
dist.destroy_process_group()
