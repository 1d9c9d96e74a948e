"""LitGPT's models, finetuned or asked as its scripts do: `litgpt_job.py '{"how": "lora", "model": "Llama-2-7b-hf", ...}'`.

The model is LitGPT's, its weights are random; each sequence has as many tokens as the longest one of the data. Two
optimizer steps of two micro-batches, or a prompt of five tokens and three more. Needs `pip install litgpt`.
"""

from __future__ import annotations

import json
import sys

import torch
from litgpt import adapter, adapter_v2, lora, model
from litgpt.utils import chunked_cross_entropy

MODULES = {"lora": lora, "adapter": adapter, "adapter_v2": adapter_v2, "full": model, "inference": model}
CHUNK = 128
"""Tokens whose logits are made at a time, but for full finetuning."""
NEW_TOKENS = 50


def main() -> None:
    row = json.loads(sys.argv[1])
    how = MODULES[row["how"]]
    settings = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_query": True, "lora_value": True}
    config = how.Config.from_name(row["model"], **(settings | row.get("lora", {}) if how is lora else {}))
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        made = how.GPT(config)
    if row["how"] == "inference":
        asked(made)
    else:
        trained(made, how, row)
    print("PEAK", torch.cuda.max_memory_allocated(), flush=True)


def trained(made, how, row) -> None:
    if hasattr(how, "mark_only_lora_as_trainable"):
        how.mark_only_lora_as_trainable(made)
    elif hasattr(how, "mark_only_adapter_as_trainable"):
        how.mark_only_adapter_as_trainable(made)
    elif how is adapter_v2:
        how.mark_only_adapter_v2_as_trainable(made)
    trainable = [one for one in made.parameters() if one.requires_grad]
    print("TRAINABLE", sum(one.numel() for one in trainable), flush=True)
    optimizer = torch.optim.AdamW(trainable, lr=3e-4, weight_decay=0.02)
    tokens = made.max_seq_length = min(row["tokens"], made.config.block_size)
    made.train()
    for _ in range(2):
        for _ in range(2):
            for module in made.modules():
                if hasattr(module, "adapter_kv_cache"):
                    module.adapter_kv_cache = None  # kept for inference
            words = torch.randint(made.config.vocab_size, (row["micro_batch"], tokens), device="cuda")
            if row["how"] == "full":
                logits = made(words)
                loss = chunked_cross_entropy(logits[..., :-1, :], words[..., 1:])
            else:
                logits = made(words, lm_head_chunk_size=CHUNK)
                logits[-1] = logits[-1][..., :-1, :]
                loss = chunked_cross_entropy(logits, words[..., 1:])
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.inference_mode()
def asked(made) -> None:
    prompt = torch.randint(made.config.vocab_size, (1, 5), device="cuda")
    made.max_seq_length = prompt.shape[1] + NEW_TOKENS
    made.set_kv_cache(batch_size=1, device="cuda")
    made.eval()
    words, places = prompt, torch.arange(prompt.shape[1], device="cuda")
    for _ in range(4):
        words = made(words, places)[:, -1:].argmax(-1)
        places = places[-1:] + 1


if __name__ == "__main__":
    main()
