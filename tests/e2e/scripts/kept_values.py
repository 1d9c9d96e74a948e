"""Parameters that nothing has updated are right when they are read from the device: beside DDP, FSDP2, in checkpoints.

Every rank prints what is wrong, or PASSED and how many values it has compared.
"""

from __future__ import annotations

import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
wrong: list[str] = []
compared = 0


def check(name: str, got: Tensor, expected: Tensor) -> None:
    global compared
    compared += 1
    got = got.detach().cpu()
    if got.dtype != expected.dtype or not torch.equal(got, expected):
        wrong.append(f"{name}: {(got.double() - expected.double()).abs().max().item()}")


def check_all(name: str, got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(got) == set(expected), (set(got), set(expected))
    for key, value in expected.items():
        check(f"{name} {key}", got[key], value)


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(1003, 640), nn.Linear(640, 1024), nn.BatchNorm1d(1024), nn.Linear(1024, 641))


def model(seed: int) -> nn.Sequential:
    """Large parameters, small ones, one of an odd size and a buffer."""
    generator = torch.Generator().manual_seed(seed)
    made = layers()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made


def state(of: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in of.state_dict().items()}


def sharded(of: nn.Module) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in (of[1], of[3]):
        fully_shard(layer, mp_policy=policy)
    fully_shard(of, mp_policy=policy)
    return of


def data_parallel() -> None:
    ours = model(10 + RANK)
    wrapped = DistributedDataParallel(copy.deepcopy(ours).to(DEVICE), device_ids=[DEVICE.index])
    check_all("DDP", wrapped.module.state_dict(), state(model(10)))


def fully_sharded() -> None:
    full = get_model_state_dict(sharded(model(3).to(DEVICE)), options=FULL)
    if RANK == 0:
        check_all("FSDP2", full, state(model(3)))


def broadcast_from_rank_0() -> None:
    with torch.device("meta"):
        ours = sharded(layers())
    ours.to_empty(device=DEVICE)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(ours, state(model(4)) if RANK == 0 else {}, options=options)
    full = get_model_state_dict(ours, options=FULL)
    if RANK == 0:
        check_all("broadcast_from_rank0", full, state(model(4)))
    with torch.no_grad():
        ours[1].unshard()
    check("unsharded", ours[1].weight, state(model(4))["1.weight"].bfloat16())
    ours[1].reshard()


def checkpoint() -> None:
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder, 0)
    ours, theirs = sharded(model(5).to(DEVICE)), sharded(model(6).to(DEVICE))
    dcp.save({"model": get_model_state_dict(ours)}, checkpoint_id=folder[0])
    loaded = {"model": get_model_state_dict(theirs)}
    dcp.load(loaded, checkpoint_id=folder[0])
    set_model_state_dict(theirs, loaded["model"])
    full = get_model_state_dict(theirs, options=FULL)
    if RANK == 0:
        check_all("distributed checkpoint", full, state(model(5)))
        path = f"{folder[0]}/model.pt"
        torch.save(full, path)
        check_all("torch.save", torch.load(path, map_location=DEVICE), state(model(5)))


def drawn_on_the_device() -> None:
    """Each rank draws its own shard; all see the same whole."""
    with torch.device("meta"):
        ours = nn.Linear(1200, 1104, bias=False)
    fully_shard(ours)
    ours.to_empty(device=DEVICE)
    torch.manual_seed(RANK)
    with torch.no_grad():
        ours.weight.normal_(0.0, 0.02)
    own = ours.weight.to_local().cpu()
    whole = ours.weight.full_tensor().cpu()
    check("own shard", whole.chunk(dist.get_world_size())[RANK], own)
    seen = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(seen, own, group=dist.new_group(backend="gloo"))
    check("all shards", whole, torch.cat(seen))
    assert 0.0199 < whole.std() < 0.0201


def parts_of_what_was_drawn() -> None:
    """A read of a small part makes that part alone, of the same numbers; the generators begin in the same state."""
    for dtype in (torch.float32, torch.bfloat16, torch.float64):

        def drawn(dtype: torch.dtype = dtype) -> Tensor:
            torch.cuda.manual_seed(5)
            return torch.empty(3_000_001, dtype=dtype, device=DEVICE).normal_()

        whole, again = drawn().cpu(), drawn()
        for begin, end in (
            (0, 1),
            (1_081_340, 1_081_350),
            (3_000_000, 3_000_001),
            (500_001, 1_600_000),
            (7, 2_900_000),
        ):
            check(f"elements {begin} to {end} of {dtype}", again[begin:end], whole[begin:end])


def main() -> None:
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE)
    data_parallel()
    fully_sharded()
    broadcast_from_rank_0()
    checkpoint()
    drawn_on_the_device()
    parts_of_what_was_drawn()
    print("WRONG " + "; ".join(wrong) if wrong else f"PASSED {compared}", flush=True)
    dist.destroy_process_group()


main()
