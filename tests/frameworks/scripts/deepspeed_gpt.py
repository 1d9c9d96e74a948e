"""Trains a small GPT with DeepSpeed: its ZeRO engines, its pipeline engine, Ulysses and AutoTP."""

from __future__ import annotations

import argparse
import functools
import json
import os
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.sequence.layer import DistributedAttention
from tiny_gpt import GPT, LAYERS, TOKENS, VOCABULARY, WIDTH, Block, Embedding, attention, loss_of
from torch import Tensor, nn

parser = argparse.ArgumentParser()
parser.add_argument("--config", type=json.loads, default={}, help="more of DeepSpeed's configuration, as JSON")
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--init", action="store_true", help="make the model under zero.Init")
parser.add_argument("--pipeline", type=int, default=0, help="stages")
parser.add_argument("--ulysses", type=int, default=1, help="ranks that share a sequence")
parser.add_argument("--autotp", type=int, default=1, help="ranks that share a layer")
parser.add_argument("--cpu-adam", action="store_true", help="DeepSpeedCPUAdam in place of torch's AdamW")
parser.add_argument("--fused-adam", action="store_true", help="FusedAdam in place of torch's AdamW")
parser.add_argument("--checkpointing", action="store_true", help="DeepSpeed's activation checkpointing")
parser.add_argument("--save", action="store_true", help="save a checkpoint and load it")
options = parser.parse_args()

deepspeed.init_distributed()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
config: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": options.batch,
    "gradient_accumulation_steps": 4 if options.pipeline else 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "steps_per_print": 1,
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 1e-4, "torch_adam": not (options.fused_adam or options.cpu_adam)},
    },
} | options.config
SPLIT = [
    {"patterns": [r".*\.qkv\.weight$"], "partition_type": "column", "shape": [3, -1]},
    {"patterns": [r".*\.up\.weight$"], "partition_type": "column"},
    {"patterns": [r".*\.(out|down)\.weight$"], "partition_type": "row"},
]
"""How AutoTP splits the layers of a block: by columns, then by rows."""
dtype = torch.bfloat16 if config["bf16"]["enabled"] else torch.float16


def batch(tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    shape = (options.batch, tokens)
    return (
        torch.randint(0, VOCABULARY, shape, device="cuda"),
        torch.randint(0, VOCABULARY, shape, device="cuda"),
    )


def train_stages() -> None:
    layers = [
        LayerSpec(Embedding),
        *(LayerSpec(Block) for _ in range(LAYERS)),
        LayerSpec(nn.Linear, WIDTH, VOCABULARY, bias=False),
    ]
    model = PipelineModule(layers, num_stages=options.pipeline, loss_fn=loss_of)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    data = iter(batch, None)
    for _ in range(options.steps):
        engine.train_batch(data)
    print(f"{type(engine).__name__}: {options.steps} steps done", flush=True)


def train() -> None:
    attend: Any = attention
    if options.ulysses > 1:
        config["sequence_parallel_size"] = options.ulysses
        config["data_parallel_size"] = dist.get_world_size() // options.ulysses
        first = dist.get_rank() // options.ulysses * options.ulysses
        for start in range(0, dist.get_world_size(), options.ulysses):
            group = dist.new_group(list(range(start, start + options.ulysses)))
            if start == first:
                shared = DistributedAttention(attention, group, scatter_idx=2, gather_idx=1)
                attend = functools.partial(shared, batch_dim_idx=0)
        print(f"Ulysses over {options.ulysses} ranks", flush=True)
    if options.autotp > 1:
        config["tensor_parallel"] = {"autotp_size": options.autotp, "partition_config": {"layer_specs": SPLIT}}
        print(f"tensor parallel over {options.autotp} ranks", flush=True)
    through = deepspeed.checkpointing.checkpoint if options.checkpointing else None
    if options.init:
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = GPT(attend, through)
    else:
        model = GPT(attend, through)
    if options.checkpointing:
        deepspeed.checkpointing.configure(None, partition_activations=False)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    print(f"{type(engine).__name__} with ZeRO stage {engine.zero_optimization_stage()}, {dtype}", flush=True)
    for _ in range(options.steps):
        tokens, labels = batch(TOKENS // options.ulysses)
        loss = engine(tokens, labels)
        engine.backward(loss)
        engine.step()
    if options.save:
        engine.save_checkpoint("checkpoint")
        engine.load_checkpoint("checkpoint")
        print("checkpoint loaded", flush=True)
    print(f"{options.steps} steps done", flush=True)


if options.pipeline:
    train_stages()
else:
    train()
dist.barrier()
dist.destroy_process_group()
