"""torchtitan of an earlier day, unmodified, with random text and a tokenizer of Llama 3's size made here.

phantora-async run -n 8 --fold dp=8 titan_then.py CHECKOUT/train.py --model.name llama3 --model.flavor 8B

CHECKOUT: torchtitan at 6b03ffa (December 2024) or, with CHECKOUT/torchtitan/train.py, at e7c0cae (June 2025), installed
without its dependencies. PyTorch of those days took FlashAttention 2 where newer ones take cuDNN's attention
(pytorch/pytorch#138522).
"""

import base64
import os
import runpy
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import titan_jobs  # noqa: F401  it puts its random text in the data sets' place

WORDS = 128_000
"""Without the 256 special ones."""


def words() -> str:
    """All bytes, all pairs of them, and some triples."""
    lines = []
    for number in range(WORDS):
        word = bytes([number]) if number < 256 else (number - 256).to_bytes(2 if number < 65_792 else 3)
        lines.append(f"{base64.b64encode(word).decode()} {number}\n")
    return "".join(lines)


if __name__ == "__main__":
    torch.backends.cuda.enable_cudnn_sdp(False)
    train = str(Path(sys.argv[1]).absolute())
    os.chdir(tempfile.mkdtemp())
    Path("tokenizer.model").write_text(words())
    given = ["--model.tokenizer_path", "tokenizer.model", "--training.dataset", "c4_test"]
    sys.argv = [train, *given, *sys.argv[2:]]
    runpy.run_path(train, run_name="__main__")
