"""Trains with Hugging Face's Trainer; prints its speed metrics and the times of the loop's own clock."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

STEPS, BATCH, WIDTH = 40, 1024, 4096


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)])

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        y = self.layers(x.expand(-1, WIDTH))
        return {"loss": nn.functional.mse_loss(y, labels.expand_as(y)), "logits": y}


class Samples(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.ones(1), "labels": torch.zeros(1)}


class Steps(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.at: list[float] = []
        self.began = self.ended = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The Trainer's clock begins here: before that it collects garbage, which takes longer than some steps."""
        self.began = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.ended = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        torch.cuda.synchronize()
        self.at.append(time.perf_counter())


steps = Steps()
trainer = Trainer(
    Model(),
    TrainingArguments(
        output_dir=sys.argv[1],
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
    ),
    train_dataset=Samples(),
    callbacks=[steps],
)
metrics = trainer.train().metrics
clock = {"train": steps.ended - steps.began, "step": (steps.at[-1] - steps.at[4]) / (STEPS - 5)}
if trainer.is_world_process_zero():
    samples = STEPS * BATCH * trainer.args.world_size
    print(json.dumps({"metrics": metrics, "clock": clock, "steps": STEPS, "samples": samples}), flush=True)
