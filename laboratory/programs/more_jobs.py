"""Ground-truth jobs of other kinds: vision, HF models, mixture of experts, compile, CUDA graphs, AMP fp16.
torchrun --nproc-per-node N more_jobs.py --jobs a,b [--out FILE]      (N = 1 too; needs torchvision 0.26, transformers 5.17)"""

import argparse, gc, json, os, sys, time, traceback
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist

R, W, L = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))
dev = torch.device("cuda", L)
JOBS = {}


def job(world, **o):
    return lambda f: JOBS.__setitem__(f.__name__ + o.pop("suffix", f"_{world}gpu"), (world, f, o)) or f


def ddp(m, **k):
    return nn.parallel.DistributedDataParallel(m, device_ids=[L], **k) if W > 1 else m


def trainer(m, loss_of, opt, amp=torch.bfloat16, scaler=None, clip=None):
    def step():
        with torch.autocast("cuda", amp, enabled=amp is not None):
            loss = loss_of(m)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(m.parameters(), clip)
            opt.step()
        opt.zero_grad()

    return step


def image(b, s=224, last=True):
    x = torch.randn(b, 3, s, s, device=dev)
    return (x.to(memory_format=torch.channels_last) if last else x), torch.randint(0, 1000, (b,), device=dev)


def vision(name, b, opt="adamw", amp=torch.bfloat16, last=True, scaler=False, compile=False):
    import torchvision

    m = getattr(torchvision.models, name)(weights=None).to(dev)
    m = m.to(memory_format=torch.channels_last) if last else m
    if compile:
        m = torch.compile(m)
    m = ddp(m)
    x, y = image(b, last=last)
    o = (
        torch.optim.AdamW(m.parameters(), 1e-4, fused=True)
        if opt == "adamw"
        else torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    )
    return trainer(
        m, lambda m: F.cross_entropy(m(x).float(), y), o, amp, torch.amp.GradScaler("cuda") if scaler else None
    )


@job(1)
def vit_l16_b64():
    return vision("vit_l_16", 64, last=False)


@job(4)
def vit_l16_b64_ddp():
    return vision("vit_l_16", 64, last=False)


@job(1)
def resnet50_fp16_scaler_b128():
    return vision("resnet50", 128, "sgd", torch.float16, scaler=True)


def hf(cfg_name, cls, kw, b, t, vocab, fsdp=False, ckpt=False, compile=False, labels=True):
    import transformers

    torch.manual_seed(0)
    cfg = getattr(transformers, cfg_name)(**kw)
    m = getattr(transformers, cls)(cfg).to(dev)
    m.train()
    if ckpt:
        m.gradient_checkpointing_enable()
    if compile:
        m = torch.compile(m)
    if fsdp:
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy

        mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for l in m.model.layers:
            fully_shard(l, mp_policy=mp)
        fully_shard(m, mp_policy=mp)
    else:
        m = ddp(m)
    x = torch.randint(0, vocab, (b, t), device=dev)
    return trainer(
        m,
        lambda m: m(input_ids=x, labels=x).loss,
        torch.optim.AdamW(m.parameters(), 1e-4, fused=True),
        None if fsdp else torch.bfloat16,
        clip=1.0,
    )


@job(1)
def bert_base_b32_s512():
    return hf("BertConfig", "BertForMaskedLM", {}, 32, 512, 30522)


@job(1)
def mixtral_small_b4_s1024():
    return hf(
        "MixtralConfig",
        "MixtralForCausalLM",
        dict(
            hidden_size=1024,
            num_hidden_layers=6,
            num_attention_heads=16,
            num_key_value_heads=8,
            intermediate_size=3584,
            num_local_experts=8,
            num_experts_per_tok=2,
            vocab_size=32000,
            use_cache=False,
        ),
        4,
        1024,
        32000,
    )


def gpt(d, h, n, b, t, compile=None, V=50304, kind="adamw", capture=False):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from train_jobs import GPT2

    m = GPT2(d, h, n, V, t).to(dev)
    for blk in m.layers:
        blk.drop.p = 0.0
    m.eval() if capture else m.train()
    x = torch.randint(0, V, (b, t), device=dev)
    y = torch.randint(0, V, (b, t), device=dev)
    if compile:
        m = torch.compile(m, mode=None if compile is True else compile)
    m = ddp(m)
    return (
        m,
        lambda m: F.cross_entropy(m(x).float().flatten(0, 1), y.flatten()),
        torch.optim.AdamW(m.parameters(), 1e-4, fused=True, capturable=capture),
    )


@job(1)
def gpt2_compile_b16():
    m, l, o = gpt(768, 12, 12, 16, 1024, True)
    return trainer(m, l, o)


@job(1)
def gpt2_cudagraph_b2():
    m, l, o = gpt(768, 12, 12, 2, 1024, capture=True)
    st = trainer(m, l, o)
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(3):
            st()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        st()
    return g.replay


# Jobs whose names, times and memory were kept, built again from the names. Where memory was measured, `validate` compares it: another peak is another job.
def named(name, world, function, *args, **options):
    JOBS[name] = (world, lambda: function(*args, **options), {})


for name, model, batch in (
    ("h_efficientnet_b0_b64", "efficientnet_b0", 64),
    ("h_convnext_tiny_b64", "convnext_tiny", 64),
    ("n_resnet34_b192", "resnet34", 192),
    ("n_resnext50_b96", "resnext50_32x4d", 96),
    ("n_densenet121_b64", "densenet121", 64),
    ("n_convnext_small_b48", "convnext_small", 48),
):
    named(name, 1, vision, model, batch)
for name, model, batch in (
    ("h_vit_b16_b128", "vit_b_16", 128),
    ("h_swin_t_b64", "swin_t", 64),
    ("n_vit_b32_b256", "vit_b_32", 256),
    ("p_vit_l32_b128", "vit_l_32", 128),
):
    named(name, 1, vision, model, batch, last=False)
named("h_mobilenet_v3_large_b128", 1, vision, "mobilenet_v3_large", 128, "sgd")
named("h_resnet101_bf16_b64", 1, vision, "resnet101", 64, "sgd")
named("p_resnext101_b48", 1, vision, "resnext101_32x8d", 48, "sgd")
named("p_regnet_y_8gf_b96", 1, vision, "regnet_y_8gf", 96, "sgd")
named("h_vgg16_fp32_b32", 1, vision, "vgg16", 32, "sgd", None, last=False)
named("p_wide_resnet50_b96_fp16", 1, vision, "wide_resnet50_2", 96, "sgd", torch.float16, scaler=True)
named("h_vit_b16_b64_ddp4", 4, vision, "vit_b_16", 64, last=False)
named("q_convnext_tiny_ddp4_b96", 4, vision, "convnext_tiny", 96)
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
named("h_bert_large_b8_s384", 1, hf, "BertConfig", "BertForMaskedLM", LARGE, 8, 384, 30522)
named("q_bert_large_ddp4_b16_s384", 4, hf, "BertConfig", "BertForMaskedLM", LARGE, 16, 384, 30522)
named("n_bert_base_b96_s128", 1, hf, "BertConfig", "BertForMaskedLM", {}, 96, 128, 30522)
named("n_roberta_large_b16_s256", 1, hf, "RobertaConfig", "RobertaForMaskedLM", LARGE, 16, 256, 50265)
named(
    "n_mixtral_b2_s2048",
    1,
    hf,
    "MixtralConfig",
    "MixtralForCausalLM",
    dict(
        hidden_size=1024,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=8,
        intermediate_size=3584,
        num_local_experts=8,
        num_experts_per_tok=2,
        vocab_size=32000,
        use_cache=False,
    ),
    2,
    2048,
    32000,
)


def gpt_job(*args):
    m, l, o = gpt(*args)
    return trainer(m, l, o)


named("n_gpt2_medium_b8", 1, gpt_job, 1024, 16, 24, 8, 1024)
for name, args in (
    ("h_gpt2_medium_compile_b4", (1024, 16, 24, 4, 1024, True)),
    ("n_gpt2_compile_b12", (768, 12, 12, 12, 1024, True)),
    ("h_gpt2_compile_reduce_overhead_b4", (768, 12, 12, 4, 1024, "reduce-overhead")),
):
    named(name, 1, gpt_job, *args)


def run(name, steps, warm):
    torch.manual_seed(R)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    step = JOBS[name][1]()
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
    if W > 1:
        dist.barrier()
        torch.cuda.synchronize()
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
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--warm", type=int, default=4)
    ap.add_argument("--out")
    ap.add_argument("--list", action="store_true")
    A = ap.parse_args()
    if A.list:
        print("\n".join(f"{n} {j[0]}" for n, j in JOBS.items()))
        sys.exit()
    torch.cuda.set_device(L)
    if W > 1:
        dist.init_process_group("nccl")
    for n in [n for n, j in JOBS.items() if j[0] == W] if A.jobs == "all" else A.jobs.split(","):
        t = time.time()
        try:
            run(n, A.steps, A.warm)
        except Exception as e:
            print("FAILED", n, R, repr(e)[:300], flush=True)
            traceback.print_exc()
            if W > 1:
                os._exit(1)
        if R == 0:
            print(f"-- {n} took {time.time() - t:.1f}s", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    if W > 1:
        dist.destroy_process_group()
