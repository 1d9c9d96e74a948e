"""torchtitan's trainer with random text and a tokenizer made here, for sweeps.

phantora-async run -n 256 --fold auto titan.py --model.flavor 70B --parallelism.data_parallel_shard_degree 32 --parallelism.tensor_parallel_degree 8

--flash-attention takes FlashAttention 2, as its releases of 2024 and early 2025 did on these GPUs, where 0.2.2 takes cuDNN's attention.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from titan_jobs import COMMON, tokenizer

if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    tokenizer(folder)
    os.chdir(tempfile.mkdtemp())
    given = COMMON | {"model__name": "llama3", "model__hf_assets_path": folder}
    flags = []
    for key, value in given.items():
        flags += [f"--{key.replace('__', '.')}"] + ([] if value is True else [str(value)])
    asked = sys.argv[1:]
    # torchtitan's configuration takes the arguments when it is imported.
    sys.argv = ["torchtitan", *flags, *(word for word in asked if word != "--flash-attention")]
    if "--flash-attention" in asked:
        from torch.nn.attention import SDPBackend
        from torchtitan.models.attention import ScaledDotProductAttentionWrapper

        ScaledDotProductAttentionWrapper.sdpa_backends = [SDPBackend.FLASH_ATTENTION]
    from torchtitan.train import Trainer, main

    main(Trainer)
