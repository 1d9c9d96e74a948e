"""Generates with a small model of transformers, and prints how many tokens each response has."""

from __future__ import annotations

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria

END, PAD = 5, 7


def lengths(sequences: torch.Tensor, prompt: int, ends: tuple[int, ...] = (END,)) -> list[int]:
    """The tokens of each response, its end token included; negative without one."""
    found = []
    for row in sequences[:, prompt:].tolist():
        at = next((place for place, token in enumerate(row) if token in ends), None)
        found.append(-len(row) if at is None else at + 1)
        assert at is None or set(row[at + 1 :]) <= {PAD}, row
    return found


def model_of(vocabulary: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    with torch.device("cuda"):
        return LlamaForCausalLM(config)


def main() -> None:
    model = model_of(4000)
    told: dict[str, list[int]] = {}
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    model.register_forward_hook(count)
    first = torch.tensor([[7, 7, 11, 12], [21, 22, 23, 24]], device="cuda")
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]], device="cuda")
    greedy = {"do_sample": False, "max_new_tokens": 64}
    told["greedy"] = lengths(model.generate(first, attention_mask=mask, **greedy), 4)
    # The same prompts in another order and with other padding, each for the second time.
    swapped = torch.tensor([[7, 21, 22, 23, 24], [7, 7, 7, 11, 12]], device="cuda")
    swapped_mask = torch.tensor([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1]], device="cuda")
    told["sampled"] = lengths(
        model.generate(swapped, attention_mask=swapped_mask, do_sample=True, max_new_tokens=64, top_k=50), 5
    )
    told["several"] = lengths(
        model.generate(first, attention_mask=mask, do_sample=True, num_return_sequences=3, max_new_tokens=64), 4
    )
    told["ends"] = lengths(model.generate(first, attention_mask=mask, eos_token_id=[9, END], **greedy), 4, (9, END))
    told["cut"] = lengths(model.generate(first, attention_mask=mask, do_sample=False, max_new_tokens=3), 4)
    criteria = StoppingCriteriaList([EosTokenCriteria(13)])
    told["criteria"] = lengths(
        model.generate(first, attention_mask=mask, eos_token_id=None, stopping_criteria=criteria, **greedy), 4, (13,)
    )
    told["steps"] = [steps]
    # The probabilities of so few tokens are small tensors, whose draws are computed.
    small = model_of(300).generate(first, attention_mask=mask, do_sample=True, max_new_tokens=64)
    told["small"] = lengths(small, 4)
    model.generate(first, attention_mask=mask, num_beams=2, max_new_tokens=2)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
