"""torch.save/load and torch.distributed.checkpoint round trips."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import MLP, finish, start
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

rank, world, device = start()
folder = Path(sys.argv[1])

step = torch.arange(100, device=device) + rank
torch.save({"step": step, "note": "plain", "weights": torch.ones(3, 5, device=device)}, folder / f"plain{rank}.pt")
loaded = torch.load(folder / f"plain{rank}.pt", map_location=device)
assert loaded["note"] == "plain"
assert torch.equal(loaded["step"], step)
assert loaded["weights"].shape == (3, 5)
assert loaded["weights"].device == device

# A trained model whose values nobody knows, and a check for overflow as DeepSpeed and GradScaler make it.
plain = torch.nn.Linear(256, 256, device=device)
torch.nn.init.trunc_normal_(plain.weight)
plain(torch.randn(64, 256, device=device)).sum().backward()
torch.optim.AdamW(plain.parameters()).step()
torch.save({"model": plain.state_dict(), "random": torch.cuda.get_rng_state_all()}, folder / f"trained{rank}.pt")
torch.cuda.set_rng_state_all(torch.load(folder / f"trained{rank}.pt")["random"])
assert plain.weight.grad is not None
assert not plain.weight.grad.isinf().logical_or(plain.weight.grad.isnan()).any()
assert bool(torch.isfinite(plain.weight.grad).all())
assert bool(torch.isfinite(plain.bias.grad).all())

torch.manual_seed(0)
model = MLP(64, 2).to(device)
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 64, device=device)).mean().backward()
optimizer.step()
state, optim = get_state_dict(model, optimizer)
saved = {
    "model": state,
    "optim": optim,
    "progress": {"epoch": 3, "names": ["a", "b" * 1000]},
    "seen": torch.arange(world * 5),
}
dcp.save(saved, checkpoint_id=str(folder / "dcp"))
dist.barrier()

state, optim = get_state_dict(model, optimizer)
target = {
    "model": state,
    "optim": optim,
    "progress": {"epoch": 0, "names": []},
    "seen": torch.zeros(world * 5, dtype=torch.int64),
}
dcp.load(target, checkpoint_id=str(folder / "dcp"))
assert target["seen"].tolist() == list(range(world * 5))
set_state_dict(model, optimizer, model_state_dict=target["model"], optim_state_dict=target["optim"])
metadata = dcp.FileSystemReader(str(folder / "dcp")).read_metadata().state_dict_metadata
assert metadata["model.layers.0.1.weight"].size == torch.Size([256, 64])
assert len([name for name in metadata if name.startswith("model.")]) == 12
finish()
