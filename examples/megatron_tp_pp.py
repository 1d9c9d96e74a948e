"""A GPT of Megatron-core with tensor and pipeline parallelism. Needs `pip install megatron-core`.

phantora-async run -n 8 examples/megatron_tp_pp.py --tp 2 --pp 2
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

WORDS, TOKENS, MICROBATCHES = 32000, 2048, 8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=2, help="GPUs that share a layer")
    parser.add_argument("--pp", type=int, default=2, help="stages of the pipeline")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def batches() -> Iterator[Tensor]:
    while True:
        yield torch.randint(WORDS, (1, TOKENS + 1), device="cuda")


def forward_step(data: Iterator[Tensor], model: Any) -> tuple[Tensor, Any]:
    tokens = next(data)
    positions = torch.arange(TOKENS, device="cuda")[None]
    losses = model(tokens[:, :-1], positions, None, labels=tokens[:, 1:])
    return losses, partial(mean)


def mean(losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = losses.float().mean()
    return loss, {"loss": loss.detach()}


def main() -> None:
    args = arguments()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(args.tp, args.pp)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_attention_heads=args.hidden // 128,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
    )
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        WORDS,
        TOKENS,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    ).cuda()
    data_parallel = DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=True)
    model = DistributedDataParallel(config, data_parallel, Float16Module(config, model))
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=3e-4, bf16=True, use_distributed_optimizer=True), [model]
    )
    run_step = get_forward_backward_func()
    for step in range(1, args.steps + 1):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        run_step(
            forward_step_func=forward_step,
            data_iterator=batches(),
            model=[model],
            num_microbatches=MICROBATCHES,
            seq_length=TOKENS,
            micro_batch_size=1,
            forward_only=False,
        )
        optimizer.step()
        if torch.distributed.get_rank() == 0:
            print(f"step {step}/{args.steps}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
