"""A GPT or a Llama of Megatron-core with tensor and pipeline parallelism. Needs `pip install megatron-core`.

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

TOKENS = 2048
MODELS = {
    "gpt": {"layers": 8, "hidden": 2048, "inner": 8192, "groups": 0, "words": 32000},
    "llama-8b": {"layers": 32, "hidden": 4096, "inner": 14336, "groups": 8, "words": 128256},
    "llama-70b": {"layers": 80, "hidden": 8192, "inner": 28672, "groups": 8, "words": 128256},
}
"""`groups`: of heads that share keys and values; 0: a GPT."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=2, help="GPUs that share a layer")
    parser.add_argument("--pp", type=int, default=2, help="stages of the pipeline")
    parser.add_argument("--virtual", type=int, default=1, help="parts of the model on each stage")
    parser.add_argument("--model", choices=MODELS, default="gpt")
    for size in ("layers", "hidden", "inner", "words"):
        parser.add_argument(f"--{size}", type=int, help="default: the model's")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--whole-optimizer", action="store_true", help="each rank updates all of its parameters")
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    given = {name: value for name, value in vars(args).items() if value is not None}
    return argparse.Namespace(**(MODELS[args.model] | given))


def batches(words: int) -> Iterator[Tensor]:
    while True:
        yield torch.randint(words, (1, TOKENS + 1), device="cuda")


def forward_step(data: Iterator[Tensor], model: Any) -> tuple[Tensor, Any]:
    tokens = next(data)
    positions = torch.arange(TOKENS, device="cuda")[None]
    losses = model(tokens[:, :-1], positions, None, labels=tokens[:, 1:])
    return losses, partial(mean)


def mean(losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = losses.float().mean()
    return loss, {"loss": loss.detach()}


def config_of(args: argparse.Namespace) -> TransformerConfig:
    llama = args.groups > 0
    return TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        ffn_hidden_size=args.inner,
        num_attention_heads=args.hidden // 128,
        num_query_groups=args.groups if llama else None,
        normalization="RMSNorm" if llama else "LayerNorm",
        add_bias_linear=not llama,
        gated_linear_unit=llama,
        activation_func=torch.nn.functional.silu if llama else torch.nn.functional.gelu,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.virtual if args.virtual > 1 else None,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
    )


def part_of_model(args: argparse.Namespace, config: TransformerConfig, part: int) -> Any:
    """Of this rank's stage; `part`: of those that an interleaved pipeline gives it."""
    place = {"ignore_virtual": False, "vp_stage": part} if args.virtual > 1 else {}
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(normalization=config.normalization),
        args.words,
        TOKENS,
        pre_process=parallel_state.is_pipeline_first_stage(**place),
        post_process=parallel_state.is_pipeline_last_stage(**place),
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
        vp_stage=part if args.virtual > 1 else None,
    )
    return Float16Module(config, model.cuda())


def main() -> None:
    args = arguments()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    parts = args.virtual if args.virtual > 1 else None
    parallel_state.initialize_model_parallel(args.tp, args.pp, parts, create_gloo_process_groups=False)
    model_parallel_cuda_manual_seed(1)
    config = config_of(args)
    sharded = not args.whole_optimizer
    data_parallel = DistributedDataParallelConfig(use_distributed_optimizer=sharded, overlap_grad_reduce=True)
    model = [
        DistributedDataParallel(config, data_parallel, part_of_model(args, config, part), disable_bucketing=part > 0)
        for part in range(args.virtual)
    ]
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=3e-4, bf16=True, use_distributed_optimizer=sharded),
        model,
        use_gloo_process_groups=False,
    )
    run_step = get_forward_backward_func()
    for step in range(1, args.steps + 1):
        for part in model:
            part.zero_grad_buffer()
        optimizer.zero_grad()
        run_step(
            forward_step_func=forward_step,
            data_iterator=[batches(args.words) for _ in model],
            model=model,
            num_microbatches=args.microbatches,
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
