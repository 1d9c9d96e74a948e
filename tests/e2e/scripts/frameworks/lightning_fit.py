"""Trains with Lightning; prints the results of its timer, of its throughput monitor and of the loop's own clock."""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ThroughputMonitor, Timer
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, BATCH, WIDTH = 40, 1024, 4096


class Model(L.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)])
        self.at: list[float] = []
        self.began = self.ended = 0.0

    def on_train_start(self) -> None:
        self.began = time.perf_counter()

    def on_train_end(self) -> None:
        self.ended = time.perf_counter()

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return self.layers(batch[0].expand(-1, WIDTH)).sum()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        torch.cuda.synchronize()
        self.at.append(time.perf_counter())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


model, timer = Model(), Timer()
monitor = ThroughputMonitor(batch_size_fn=lambda batch: batch[0].size(0), window_size=10)
trainer = L.Trainer(
    max_steps=STEPS,
    accelerator="gpu",
    devices=2,
    strategy="ddp",
    log_every_n_steps=10,
    callbacks=[timer, monitor],
    logger=CSVLogger(sys.argv[1]),
    enable_checkpointing=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(TensorDataset(torch.ones(1 << 18, 1)), batch_size=BATCH))
if trainer.is_global_zero:
    (log,) = Path(sys.argv[1]).rglob("metrics.csv")
    rows = [row for row in csv.DictReader(log.open()) if row.get("train/device/batches_per_sec")]
    results = {
        "batches_per_sec": float(rows[-1]["train/device/batches_per_sec"]),
        "samples_per_sec": float(rows[-1]["train/device/samples_per_sec"]) / BATCH,
        "clock": 10 / (model.at[-1] - model.at[-11]),
        "timer": timer.time_elapsed("train"),
        "train": model.ended - model.began,
    }
    print(json.dumps(results), flush=True)
