"""A small Llama of Hugging Face's, and random tokens for it."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 256


def config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        use_cache=False,
    )


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(config())


class Tokens(torch.utils.data.Dataset[dict[str, Tensor]]):
    """A data set of random tokens, as many as twenty batches need."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = torch.randint(2, 1024, (TOKENS,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}
