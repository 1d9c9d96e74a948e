"""Megatron-core's mixture of experts (without Transformer Engine), in two layers or one for each pipeline stage.

Each rank prints its tokens per expert and what it sends and receives, in the order of the calls.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import Any

import megatron.core.transformer.moe.moe_utils as moe_utils
import torch
from torch import Tensor

if not hasattr(moe_utils, "te_general_gemm"):  # 0.16.1 asks for this name without Transformer Engine, too
    vars(moe_utils)["te_general_gemm"] = None

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

parser = argparse.ArgumentParser()
for option in ("tp", "pp", "ep"):
    parser.add_argument(f"--{option}", type=int, default=1)
parser.add_argument("--etp", type=int)
parser.add_argument("--experts", type=int, default=8)
parser.add_argument("--topk", type=int, default=2)
parser.add_argument("--config", default="{}", help="JSON: more fields of TransformerConfig")
options = parser.parse_args()
TOKENS, WORDS = 256, 1000
told: dict[str, list[list[int]]] = {"routed": [], "sent": [], "received": [], "processed": []}

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
parallel_state.initialize_model_parallel(
    options.tp, options.pp, expert_model_parallel_size=options.ep, expert_tensor_parallel_size=options.etp
)
model_parallel_cuda_manual_seed(1)
first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
config = TransformerConfig(
    num_layers=2 * options.pp,
    hidden_size=256,
    ffn_hidden_size=512,
    num_attention_heads=4,
    bf16=True,
    params_dtype=torch.bfloat16,
    pipeline_dtype=torch.bfloat16,
    tensor_model_parallel_size=options.tp,
    pipeline_model_parallel_size=options.pp,
    expert_model_parallel_size=options.ep,
    expert_tensor_parallel_size=options.etp or options.tp,
    sequence_parallel=options.tp > 1,
    num_moe_experts=options.experts,
    moe_router_topk=options.topk,
    moe_aux_loss_coeff=0.01,
    add_bias_linear=False,
    gated_linear_unit=True,
    activation_func=torch.nn.functional.silu,
    normalization="RMSNorm",
    hidden_dropout=0.0,
    attention_dropout=0.0,
    gradient_accumulation_fusion=False,
    bias_dropout_fusion=False,
    masked_softmax_fusion=False,
    bias_activation_fusion=False,
    **({"moe_token_dispatcher_type": "alltoall"} | json.loads(options.config)),
)


class Norm(torch.nn.RMSNorm):
    """Megatron-core's norm without Transformer Engine and Apex refuses sequence parallelism."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        vars(self.weight)["sequence_parallel"] = config.sequence_parallel


layer = get_gpt_layer_local_spec(
    num_experts=options.experts, moe_grouped_gemm=config.moe_grouped_gemm, normalization="RMSNorm"
)
layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
model = GPTModel(
    config=config,
    transformer_layer_spec=TransformerBlockSubmodules(layer_specs=[layer] * 2, layer_norm=Norm),
    vocab_size=WORDS,
    max_sequence_length=TOKENS,
    position_embedding_type="rope",
    share_embeddings_and_output_weights=False,
    pre_process=first,
    post_process=last,
).cuda()


def note_routing(_: Any, __: Any, results: tuple[Tensor, Tensor]) -> None:
    told["routed"].append(results[1].sum(0).tolist())


def note_dispatch(dispatcher: Any) -> None:
    postprocess = dispatcher.dispatch_postprocess

    def noted(*args: Any, **kwargs: Any) -> Any:
        result = postprocess(*args, **kwargs)
        told["processed"].append([int(count) for count in result[1].tolist()])
        if getattr(dispatcher, "output_splits", None) is not None:
            told["sent"].append([int(count) for count in dispatcher.input_splits])
            told["received"].append([int(count) for count in dispatcher.output_splits])
        assert result[0].shape[0] == sum(told["processed"][-1])
        return result

    dispatcher.dispatch_postprocess = noted


for module in model.modules():
    if isinstance(module, TopKRouter):
        module.register_forward_hook(note_routing)
    if hasattr(module, "token_dispatcher"):
        note_dispatch(module.token_dispatcher)

model = DistributedDataParallel(
    config,
    DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=True),
    Float16Module(config, model),
)
optimizer = get_megatron_optimizer(
    OptimizerConfig(
        optimizer="adam",
        lr=1e-4,
        bf16=True,
        params_dtype=torch.bfloat16,
        use_distributed_optimizer=True,
        clip_grad=1.0,
    ),
    [model],
)
config.finalize_model_grads_func = finalize_model_grads
config.grad_scale_func = optimizer.scale_loss
config.no_sync_func = model.no_sync
mask = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool, device="cuda").tril().logical_not()
positions = torch.arange(TOKENS, device="cuda")[None]


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        tokens = torch.randint(0, WORDS, (1, TOKENS + 1)).cuda()
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def forward(data: Iterator[tuple[Tensor, Tensor]], model: Any) -> Any:
    tokens, labels = next(data)

    def loss(out: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mean = out.float().mean()
        return mean, {"loss": mean.detach()}

    return model(tokens, positions, mask, labels=labels), loss


run, data = get_forward_backward_func(), batches()
for _ in range(2):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    run(
        forward_step_func=forward,
        data_iterator=data,
        model=[model],
        num_microbatches=2,
        seq_length=TOKENS,
        micro_batch_size=1,
        forward_only=False,
    )
    optimizer.step()
print(json.dumps(told), flush=True)
torch.distributed.destroy_process_group()
