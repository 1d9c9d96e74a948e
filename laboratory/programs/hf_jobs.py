"""Ground truth with transformers' Trainer: Llama under DDP and FSDP2.   torchrun --nproc-per-node 4 hf_jobs.py --jobs hf1b_ddp [--out FILE]"""

import argparse, gc, json, os, tempfile, time, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

JOBS = dict(
    hf1b_ddp=dict(h=2048, L=16, B=4, T=1024),
    q_hf1b_fsdp2=dict(h=2048, L=16, B=2, T=2048, fsdp=True),
    t_hf2b_fsdp2_b8_s2048_gc=dict(h=4096, L=8, B=8, T=2048, fsdp=True, gc=True),
)
R, W, LR = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])


class DS(torch.utils.data.Dataset):
    def __init__(s, T):
        s.T = T

    def __len__(s):
        return 4096

    def __getitem__(s, i):
        x = torch.randint(0, 32000, (s.T,))
        return dict(input_ids=x, labels=x)


class Clock(TrainerCallback):
    def __init__(s):
        s.t = []

    def on_step_begin(s, *a, **k):
        torch.cuda.synchronize()
        s.t0 = time.perf_counter()

    def on_step_end(s, *a, **k):
        torch.cuda.synchronize()
        s.t.append(time.perf_counter() - s.t0)


def run(name, j, steps, warm):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    c = LlamaConfig(
        vocab_size=32000,
        hidden_size=j["h"],
        intermediate_size=5632,
        num_hidden_layers=j["L"],
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=4096,
    )
    m = LlamaForCausalLM(c)
    ck = Clock()
    kw = (
        dict(
            fsdp="full_shard auto_wrap",
            fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
        )
        if j.get("fsdp")
        else {}
    )
    a = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=j["B"],
        max_steps=warm + steps,
        logging_steps=1000,
        report_to=[],
        save_strategy="no",
        bf16=True,
        disable_tqdm=True,
        gradient_checkpointing=j.get("gc", False),
        **kw,
    )
    Trainer(model=m, args=a, train_dataset=DS(j["T"]), callbacks=[ck]).train()
    r = dict(
        job=name,
        world=W,
        step_s=ck.t[warm:],
        host_s=[],
        free_running_step_s=sorted(ck.t[warm:])[steps // 2],
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
    A = ap.parse_args()
    for n in JOBS if A.jobs == "all" else A.jobs.split(","):
        run(n, JOBS[n], A.steps, A.warm)
        gc.collect()
