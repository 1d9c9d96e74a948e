"""Hugging Face's Trainer with a Llama of random weights; nothing is downloaded.

Needs `pip install transformers accelerate`.

Arguments are those of TrainingArguments:
phantora-async run -n 2 examples/hf_trainer.py --bf16 True --max_steps 6
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import Dataset
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

DEFAULTS = (
    "--output_dir out --max_steps 5 --per_device_train_batch_size 2 --logging_steps 1 --report_to none "
    "--save_strategy no"
)


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(1024) * (index + 1)) % 32000
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([*DEFAULTS.split(), *sys.argv[1:]])
    config = LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16
    )
    Trainer(LlamaForCausalLM(config), arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
