"""Megatron-LM's own pretrain_gpt.py with the models and settings of Megatron-Bridge's performance recipes.

phantora-async run -n 64 --fold 'pp=4,dp*=16' --roles similar megatron_recipe.py CHECKOUT/pretrain_gpt.py gpt-oss-120b
    --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 1280

CHECKOUT: Megatron-LM. Bridge's recipes read models from Hugging Face's hub and set Megatron-core's fields: both are
given here as Megatron-LM's options, as scripts/performance of Megatron-Bridge sets them for the row's release.
"""

import os
import runpy
import sys
import types

FIXED = """
--mock-data --tokenizer-type NullTokenizer --eval-iters 0 --eval-interval 1000 --log-interval 1 --train-iters 6
--transformer-impl transformer_engine --bf16 --cross-entropy-loss-fusion --no-create-attention-mask-in-dataloader
--disable-gloo-process-groups --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
--grad-reduce-in-bf16 --no-check-for-nan-in-loss-and-grad --manual-gc --manual-gc-interval 100
--hidden-dropout 0 --attention-dropout 0 --init-method-std 0.02 --normalization RMSNorm
--untie-embeddings-and-output-weights --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --adam-beta2 0.95
--weight-decay 0.1 --clip-grad 1.0
"""
"""What all recipes have in common."""
LLAMA = """
--swiglu --disable-bias-linear --norm-epsilon 1e-5 --position-embedding-type rope --rotary-base 500000
--group-query-attention --num-query-groups 8 --vocab-size 128255 --seq-length 8192 --max-position-embeddings 8192
--ddp-average-in-collective
"""
EXPERTS = """
--moe-grouped-gemm --moe-permute-fusion --moe-router-fusion --moe-token-dispatcher-type alltoall
--moe-router-force-load-balancing --group-query-attention --seq-length 4096 --max-position-embeddings 4096
"""
MODELS = {
    "llama3-70b": f"""{LLAMA} --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64""",
    "llama31-405b": f"""{LLAMA} --num-layers 126 --hidden-size 16384 --ffn-hidden-size 53248
--num-attention-heads 128""",
    "gpt-oss-120b": f"""{EXPERTS} --num-layers 36 --hidden-size 2880 --ffn-hidden-size 2880 --num-attention-heads 64
--kv-channels 64 --num-query-groups 8 --vocab-size 201087 --norm-epsilon 1e-5 --quick-geglu --glu-linear-offset 1.0
--activation-func-clamp-value 7.0 --softmax-type learnable --window-size 127,0 --window-attn-skip-freq 2
--position-embedding-type rope --rotary-base 150000 --num-experts 128 --moe-router-topk 4 --moe-ffn-hidden-size 2880
--moe-router-load-balancing-type none --no-bias-dropout-fusion --calculate-per-token-loss
--recompute-granularity selective --recompute-modules layernorm moe_act""",
    "qwen3-30b-a3b": f"""{EXPERTS} --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32
--kv-channels 128 --num-query-groups 4 --vocab-size 151935 --norm-epsilon 1e-6 --swiglu --disable-bias-linear
--qk-layernorm --position-embedding-type rope --rotary-base 1000000 --num-experts 128 --moe-router-topk 8
--moe-ffn-hidden-size 768 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3
--ddp-average-in-collective""",
}


def fuse_accumulation() -> None:
    """Stands for Apex's extension, which needs nvcc: a product that adds to gradients is one call of cuBLAS there."""
    module = types.ModuleType("fused_weight_gradient_mlp_cuda")
    module.wgrad_gemm_accum_fp16 = lambda given, gradient, total: total.addmm_(gradient.t(), given)
    sys.modules[module.__name__] = module


if __name__ == "__main__":
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    script, model = sys.argv[1:3]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    fuse_accumulation()
    sys.argv = [script, *FIXED.split(), *MODELS[model].split(), *sys.argv[3:]]
    runpy.run_path(script, run_name="__main__")
