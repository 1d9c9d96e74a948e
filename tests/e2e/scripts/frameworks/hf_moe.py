"""Two layers of a mixture of experts of Hugging Face's. Arguments: the model (mixtral, qwen2_moe ...), the
implementation of its experts, and `ddp`, `fsdp2` or `compile` (the whole model, under DistributedDataParallel).

Each rank prints its tokens per expert, in the order of the calls.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

MODEL, EXPERTS, PARALLEL = sys.argv[1:4]
CLASSES = {
    "mixtral": "Mixtral",
    "qwen2_moe": "Qwen2Moe",
    "qwen3_moe": "Qwen3Moe",
    "olmoe": "Olmoe",
    "gpt_oss": "GptOss",
    "deepseek_v2": "DeepseekV2",
    "deepseek_v3": "DeepseekV3",
}
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "use_cache": False,
    "experts_implementation": EXPERTS,
}
_QWEN = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 128, "decoder_sparse_step": 1}
_DEEPSEEK = {
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "kv_lora_rank": 64,
    "first_k_dense_replace": 0,
    "moe_intermediate_size": 128,
}
COUNTS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": _QWEN,
    "qwen3_moe": _QWEN,
    "olmoe": {"num_experts": 16, "num_experts_per_tok": 4},
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 64},
    "deepseek_v2": _DEEPSEEK | {"q_lora_rank": None, "topk_method": "group_limited_greedy"},
    "deepseek_v3": _DEEPSEEK | {"q_lora_rank": 64},
}
told: dict[str, list[list[int]]] = {"routed": [], "sent": [], "received": []}

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
torch.manual_seed(0)
config = getattr(transformers, f"{CLASSES[MODEL]}Config")(**(SIZES | COUNTS[MODEL]))
model = getattr(transformers, f"{CLASSES[MODEL]}ForCausalLM")(config).to(device, torch.bfloat16)
experts = COUNTS[MODEL].get("num_local_experts") or COUNTS[MODEL].get("num_experts") or 16


def note(_: Any, inputs: tuple[Any, ...]) -> None:
    told["routed"].append(torch.bincount(inputs[1].flatten(), minlength=experts).tolist())


wrapped: Any
if PARALLEL == "compile":
    model.forward = torch.compile(model.forward)
else:
    for module in model.modules():
        if type(module).__name__.endswith(("Experts", "NaiveMoe")):
            module.register_forward_pre_hook(note)
if PARALLEL == "fsdp2":
    for layer in model.model.layers:
        fully_shard(layer)
    wrapped = fully_shard(model)
else:
    wrapped = DistributedDataParallel(model, device_ids=[device])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(0, 1000, (2, 128), device=device)
for _ in range(2):
    wrapped(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps(told), flush=True)
dist.destroy_process_group()
