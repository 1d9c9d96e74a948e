"""Trains a small Llama with Accelerate: DistributedDataParallel, or one of its plugins."""

from __future__ import annotations

import argparse

import tiny_llama
import torch
from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin

parser = argparse.ArgumentParser()
parser.add_argument("--plugin", choices=("fsdp2", "zero2", "zero3"))
parser.add_argument("--mixed-precision", choices=("no", "fp16", "bf16"), default="no")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--save", action="store_true", help="save the state and load it")
options = parser.parse_args()
STEPS, BATCH = 4, 4

plugins: dict[str, object] = {}
if options.plugin == "fsdp2":
    plugins["fsdp_plugin"] = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"]
    )
elif options.plugin:
    plugins["deepspeed_plugin"] = DeepSpeedPlugin(zero_stage=int(options.plugin[-1]), gradient_clipping=1.0)
accelerator = Accelerator(
    mixed_precision=options.mixed_precision, gradient_accumulation_steps=options.accumulate, **plugins
)
model = tiny_llama.model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader(tiny_llama.Tokens(), batch_size=BATCH)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.print(f"wrapped as {type(model).__name__}")
steps = 0
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    steps += accelerator.sync_gradients
    accelerator.print(f"step {steps} loss {accelerator.gather(loss.detach()).mean().item():.4f}")
    if steps == STEPS:
        break
if accelerator.scaler is not None:
    accelerator.print(f"loss scale {accelerator.scaler.get_scale()}")
if options.save:
    accelerator.save_state("state")
    accelerator.wait_for_everyone()
    accelerator.load_state("state")
    accelerator.print("state loaded")
accelerator.print(f"{steps} steps done")
accelerator.end_training()
