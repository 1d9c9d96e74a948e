"""KempnerForge's own training script, whose model is built on the GPU: published models without tensor parallelism are built
in the host's memory, of which they need four bytes a parameter and rank.

phantora-async run -n 8 --fold dp_shard*=8 kempner_fsdp.py CHECKOUT/scripts/train.py CHECKOUT/configs/train/debug.toml --distributed.dp_shard=8
"""

import runpy
import sys

import torch
from kempnerforge.distributed import parallel

Transformer = parallel.Transformer


def on_gpu(config):
    with torch.device("cuda"):
        return Transformer(config).to(torch.bfloat16)


if __name__ == "__main__":
    parallel.Transformer = on_gpu
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
