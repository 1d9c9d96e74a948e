"""ZeRO-3 gathers an expert's weights when it runs, and one rank's tokens do not need every expert."""

import deepspeed
import torch
from job import start
from torch import nn

rank, _, device = start()


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))
        self.head = nn.Linear(64, 32)

    def forward(self, tokens, chosen):
        for number in chosen:
            tokens = tokens + self.experts[number](tokens)  # W
        return self.head(tokens)  # G


config = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
with deepspeed.zero.Init(config_dict_or_path=config):
    model = Experts()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
chosen = [0, 1] if rank == 0 else [0]
engine.backward(engine(torch.rand(4, 64, device=device), chosen).sum())
engine.step()
torch.cuda.synchronize()
