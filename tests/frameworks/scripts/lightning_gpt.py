"""Trains a small GPT with Lightning. Arguments: `trainer` or `fabric`, the strategy, the precision."""

from __future__ import annotations

import sys
from typing import Any

import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy as FabricFSDP
from lightning.fabric.strategies import ModelParallelStrategy
from lightning.pytorch.strategies import FSDPStrategy
from tiny_gpt import GPT, Block, Tokens
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

KIND, STRATEGY, PRECISION = sys.argv[1:4]
STEPS, BATCH = 4, 4


class Model(L.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT()

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss: Tensor = self.gpt(*batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def fit() -> None:
    strategy: Any = FSDPStrategy(auto_wrap_policy={Block}) if STRATEGY == "fsdp" else STRATEGY
    trainer = L.Trainer(
        max_steps=STEPS,
        accelerator="gpu",
        devices=2,
        strategy=strategy,
        precision=PRECISION,
        log_every_n_steps=1,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(Model(), DataLoader(Tokens(), batch_size=BATCH))
    print(f"{type(trainer.strategy).__name__}: {trainer.global_step} steps done", flush=True)


def shard(model: Any, mesh: Any) -> Any:
    for block in model.blocks:
        fully_shard(block, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


def fabric_strategy() -> Any:
    if STRATEGY == "fsdp":
        return FabricFSDP(auto_wrap_policy={Block})
    return ModelParallelStrategy(shard) if STRATEGY == "fsdp2" else STRATEGY


def loop() -> None:
    fabric = L.Fabric(accelerator="gpu", devices=2, strategy=fabric_strategy(), precision=PRECISION)
    fabric.launch()
    with fabric.init_module(empty_init=False):
        model = GPT()
    model = fabric.setup(model)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-4))
    loader = fabric.setup_dataloaders(DataLoader(Tokens(), batch_size=BATCH))
    for step, batch in enumerate(loader, 1):
        loss = model(*batch)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        fabric.print(f"step {step} loss {loss.item():.4f}")
        if step == STEPS:
            break
    print(f"{type(fabric.strategy).__name__}: {STEPS} steps done", flush=True)


fit() if KIND == "trainer" else loop()
