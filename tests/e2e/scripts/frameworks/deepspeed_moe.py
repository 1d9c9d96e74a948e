"""Two of DeepSpeed's mixtures of experts. Arguments: `k`, `drop` or `keep` (tokens over the capacity), and over how
many ranks the experts are spread.

Each rank prints its tokens per expert, and how many tokens each of its experts gets, in the order of the calls.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import deepspeed
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from torch import Tensor, nn

K, DROPS, SPREAD = int(sys.argv[1]), sys.argv[2] == "drop", int(sys.argv[3])
WIDTH, EXPERTS = 256, 8
told: dict[str, list[list[int]]] = {"routed": [], "processed": []}
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
deepspeed.init_distributed("nccl")


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            MoE(WIDTH, Expert(), num_experts=EXPERTS, ep_size=SPREAD, k=K, drop_tokens=DROPS, min_capacity=4)
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            out, _, counts = layer(x)
            told["routed"].append(counts.tolist())
            x = x + out
        return x.float().pow(2).mean()


net = Net()
for module in net.modules():
    if type(module).__name__ == "Experts":
        module.register_forward_pre_hook(lambda _, inputs: told["processed"].append(list(inputs[0].shape[:-1])))
parameters = split_params_into_different_moe_groups_for_optimizer({"params": list(net.parameters()), "name": "all"})
config: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
engine, *_ = deepspeed.initialize(model=net, model_parameters=parameters, config=config)
for _ in range(2):
    loss = engine(torch.randn(1, 512, WIDTH, device="cuda", dtype=torch.bfloat16))
    engine.backward(loss)
    engine.step()
print(json.dumps(told), flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
