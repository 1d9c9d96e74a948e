"""Fine-tunes a small Llama with TRL, and with PEFT under Trainer."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import tiny_llama
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("method", choices=("sft", "dpo", "grpo", "reward", "lora", "dora"))
parser.add_argument("--lora", action="store_true")
parser.add_argument("--packing", action="store_true")
options = parser.parse_args()
SHARED: dict[str, Any] = {
    "output_dir": "out",
    "max_steps": 4,
    "per_device_train_batch_size": 4,
    "logging_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "bf16": True,
}


def lora(**more: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **more)


def data_set(rows: list[dict[str, str]]) -> Any:
    from datasets import load_dataset

    with open(f"rows{os.environ['RANK']}.json", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return load_dataset("json", data_files=file.name, split="train")


def text(n: int) -> str:
    return " ".join(("of", "and", "the", "to")[(n + i) % 4] for i in range(40))


def trl_trainer() -> Any:
    import trl

    tokenizer = PreTrainedTokenizerFast.from_pretrained("tests/assets/tokenizer")
    tokenizer.pad_token = tokenizer.eos_token
    adapter = lora() if options.lora else None
    n = range(64)
    common = {"processing_class": tokenizer, "peft_config": adapter}
    if options.method == "sft":
        rows = data_set([{"text": text(i)} for i in n])
        arguments = trl.SFTConfig(**SHARED, max_length=128, packing=options.packing)
        return trl.SFTTrainer(tiny_llama.model(), arguments, train_dataset=rows, **common)
    if options.method == "grpo":
        rows = data_set([{"prompt": text(i)[:20]} for i in n])
        arguments = trl.GRPOConfig(**SHARED, max_completion_length=16, num_generations=4)
        return trl.GRPOTrainer(tiny_llama.model(), lengths, arguments, train_dataset=rows, **common)
    pairs = data_set([{"prompt": text(i)[:20], "chosen": text(i), "rejected": text(i + 1)} for i in n])
    if options.method == "dpo":
        return trl.DPOTrainer(
            tiny_llama.model(), tiny_llama.model(), trl.DPOConfig(**SHARED), train_dataset=pairs, **common
        )
    from transformers import LlamaForSequenceClassification

    config = tiny_llama.config()
    config.num_labels = 1
    model = LlamaForSequenceClassification(config)
    return trl.RewardTrainer(model, trl.RewardConfig(**SHARED), train_dataset=pairs, **common)


def lengths(completions: list[str], **_: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


def peft_trainer() -> Any:
    from peft import get_peft_model

    model = get_peft_model(tiny_llama.model(), lora(use_dora=options.method == "dora"))
    model.print_trainable_parameters()
    return Trainer(model, TrainingArguments(**SHARED), train_dataset=tiny_llama.Tokens())


trainer = peft_trainer() if options.method in ("lora", "dora") else trl_trainer()
result = trainer.train()
print(f"steps {result.global_step} in {result.metrics['train_runtime']:.3f} s", flush=True)
