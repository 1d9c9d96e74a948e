"""Policy gradients on a language model: each step generates answers with transformers, rewards them and trains on them.

Sampled tokens are not computed, so `--lengths` states how long the answers are.
"""

from __future__ import annotations

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

END, PAD = 2, 0


def logarithms(model: LlamaForCausalLM, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The logarithm of each token's probability, but for the first one."""
    logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1]
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--answers", type=int, default=4, help="answers to each prompt")
    parser.add_argument("--most", type=int, default=256, help="the most tokens of an answer")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=options.width,
        intermediate_size=options.width * 4,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 128,
        num_key_value_heads=options.width // 256,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    generator = torch.Generator().manual_seed(0)

    for step in range(options.steps):
        prompts = torch.randint(3, 32000, (options.prompts, 64), generator=generator).repeat_interleave(
            options.answers, 0
        )
        prompts = prompts.cuda()
        with torch.no_grad():
            tokens = model.generate(
                prompts, attention_mask=torch.ones_like(prompts), do_sample=True, max_new_tokens=options.most
            )
        answers = tokens[:, prompts.shape[1] :]
        # A token counts until the end token, which is the last one that does.
        counts = ((answers == END).cumsum(1) - (answers == END).long() == 0).long()
        lengths = counts.sum(1)
        rewards = torch.rand(len(tokens), generator=generator).cuda().view(options.prompts, options.answers)
        advantages = (rewards - rewards.mean(1, keepdim=True)).flatten()

        mask = torch.cat([torch.ones_like(prompts), counts], 1)
        chosen = logarithms(model, tokens, mask)[:, prompts.shape[1] - 1 :]
        loss = -(chosen * counts * advantages[:, None]).sum() / counts.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: answers of {lengths.float().mean().item():.1f} tokens, at most {lengths.max().item()}")


if __name__ == "__main__":
    main()
