"""Ground truth with Megatron-core (local spec, no Transformer Engine): Llama-like GPT under TP, PP, DP with the distributed optimizer.
torchrun --nproc-per-node 4 megatron_jobs.py --jobs m1b_dp4_m4 [--out FILE]"""

import argparse, gc, json, os, time, torch
from megatron.core import parallel_state as ps
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

JOBS = dict(
    m1b_dp4_m4=dict(h=2048, L=16, f=5632, a=16, tp=1, pp=1, m=4, T=2048),
    t_m3b_l8_tp2_m4_s4096=dict(h=3072, L=8, f=8192, a=24, tp=2, pp=1, m=4, T=4096),
    # On four H100s: simulated before they were measured.
    q_m3b_tp2rc_m4=dict(h=3072, L=16, f=8192, a=24, tp=2, pp=1, m=4, T=2048, rc=True),
    s_m3b_tp4_m4=dict(h=3072, L=24, f=8192, a=24, tp=4, pp=1, m=4, T=2048),
    s_m3b_tp2pp2_m8=dict(h=3072, L=24, f=8192, a=24, tp=2, pp=2, m=8, T=2048),
)
R, W, LR = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])


def run(name, j, steps, warm):
    ps.destroy_model_parallel()
    ps.initialize_model_parallel(j["tp"], j["pp"])
    model_parallel_cuda_manual_seed(1)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    c = TransformerConfig(
        num_layers=j["L"],
        hidden_size=j["h"],
        ffn_hidden_size=j["f"],
        num_attention_heads=j["a"],
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=j["tp"],
        pipeline_model_parallel_size=j["pp"],
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
        **(
            dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
            if j.get("rc")
            else {}
        ),
    )
    m = GPTModel(
        config=c,
        transformer_layer_spec=get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=32000,
        max_sequence_length=j["T"],
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
        pre_process=ps.is_pipeline_first_stage(),
        post_process=ps.is_pipeline_last_stage(),
    ).cuda()
    m = DistributedDataParallel(
        c, DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=True), Float16Module(c, m)
    )
    o = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=True,
            clip_grad=1.0,
        ),
        [m],
    )
    c.finalize_model_grads_func = finalize_model_grads
    c.grad_scale_func = o.scale_loss
    c.no_sync_func = m.no_sync
    mask = torch.ones(1, 1, j["T"], j["T"], dtype=torch.bool, device="cuda").tril().logical_not()
    pos = torch.arange(j["T"], device="cuda")[None]

    def data():
        while True:
            t = torch.randint(0, 32000, (1, j["T"] + 1))
            yield t[:, :-1].contiguous().cuda(), t[:, 1:].contiguous().cuda()

    def fwd(d, model):
        x, y = next(d)
        out = model(x, pos, mask, labels=y)

        def loss(out):
            l = out.float().mean()
            return l, {"lm loss": l.detach()}

        return out, loss

    fb, d = get_forward_backward_func(), data()

    def step():
        m.zero_grad_buffer()
        o.zero_grad()
        fb(
            forward_step_func=fwd,
            data_iterator=d,
            model=[m],
            num_microbatches=j["m"],
            seq_length=j["T"],
            micro_batch_size=1,
            forward_only=False,
        )
        o.step()

    ts, hs = [], []
    for i in range(warm + steps):
        torch.cuda.synchronize()
        t = time.perf_counter()
        step()
        h = time.perf_counter()
        torch.cuda.synchronize()
        e = time.perf_counter()
        if i >= warm:
            ts.append(e - t)
            hs.append(h - t)
    t = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    free = (time.perf_counter() - t) / steps
    r = dict(
        job=name,
        world=W,
        step_s=ts,
        host_s=hs,
        free_running_step_s=free,
        max_alloc=torch.cuda.max_memory_allocated(),
        max_reserved=torch.cuda.max_memory_reserved(),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0),
    )
    if R == 0:
        print("RESULT " + json.dumps(r), flush=True)
        if A.out:
            open(A.out, "a").write(json.dumps(r) + "\n")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--jobs", default="all")
    ap.add_argument("--steps", type=int, default=6)
    ap.add_argument("--warm", type=int, default=3)
    ap.add_argument("--out")
    A = ap.parse_args()
    torch.cuda.set_device(LR)
    torch.distributed.init_process_group("nccl")
    ps.initialize_model_parallel()
    for n in JOBS if A.jobs == "all" else A.jobs.split(","):
        try:
            run(n, JOBS[n], A.steps, A.warm)
        except torch.cuda.OutOfMemoryError:
            print("OOM", n, R, flush=True)
            os._exit(1)
        gc.collect()
        torch.cuda.empty_cache()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
