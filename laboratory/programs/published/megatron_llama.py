"""Megatron-LM's own pretrain_gpt.py with Transformer Engine's layers, as a Llama 3.1 8B of MLPerf Training.

phantora-async run -n 64 --fold 'dp*=64' --roles similar megatron_llama.py CHECKOUT/pretrain_gpt.py --micro-batch-size 1

CHECKOUT: Megatron-LM. Submissions run NeMo, whose layers, optimizer and schedule are those of Megatron-core: the options
that they set are given here as Megatron-LM's.
"""

import os
import runpy
import sys
import types

FIXED = """
--mock-data --tokenizer-type NullTokenizer --vocab-size 128255 --train-iters 6 --eval-iters 0 --eval-interval 1000 --log-interval 1
--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
--num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --swiglu --disable-bias-linear
--normalization RMSNorm --norm-epsilon 1e-5 --position-embedding-type rope --rotary-base 500000
--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 --init-method-std 0.02
--transformer-impl transformer_engine --te-rng-tracker --bf16 --cross-entropy-loss-fusion
--no-create-attention-mask-in-dataloader --disable-gloo-process-groups
--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --grad-reduce-in-bf16 --ddp-average-in-collective
--lr 8e-4 --min-lr 8e-5 --lr-decay-style cosine --adam-beta2 0.95 --adam-eps 1e-5 --weight-decay 0.1 --clip-grad 1.0
"""
"""What all submissions have in common."""


def fuse_accumulation() -> None:
    """Stands for Apex's extension, which needs nvcc: a product that adds to gradients is one call of cuBLAS there."""
    module = types.ModuleType("fused_weight_gradient_mlp_cuda")
    vars(module)["wgrad_gemm_accum_fp16"] = lambda given, gradient, total: total.addmm_(gradient.t(), given)
    sys.modules[module.__name__] = module


def keep_whole_batches() -> None:
    """With context parallelism Megatron-LM puts a rank's part of a batch into the table of the buffers that a graph of
    the whole iteration reads, and copies the next batch there.
    """
    from megatron.core.full_cuda_graph import StaticBufferLoader

    load = StaticBufferLoader.__call__
    StaticBufferLoader.__call__ = lambda self, *given: dict(load(self, *given))


if __name__ == "__main__":
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    script = sys.argv[1]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    fuse_accumulation()
    if "full_iteration" in sys.argv:
        keep_whole_batches()
    sys.argv = [script, *FIXED.split(), *sys.argv[2:]]
    runpy.run_path(script, run_name="__main__")
