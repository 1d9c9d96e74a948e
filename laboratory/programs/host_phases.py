"""Measures what the host needs for each phase of a step, alone and beside other ranks: real and emulated alike.

    python host_phases.py OUT.jsonl NAME ...                               # torchrun --nproc-per-node 2 for the d_ ones

The GPU is idle at each phase's begin (a synchronisation before it), so that no phase waits for an earlier one's
kernels; kernels are few and short. A line is a job: us of each phase, medians over steps."""

import json
import os
import sys
import time
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fresh_jobs
from varied_jobs import DEV, hf, ids, noise, sgd

WARM, STEPS = 5, 10
WORLD = int(os.environ.get("WORLD_SIZE", 1))


def resnet(dtype, last=True, batch=4, side=64):
    import torchvision

    model, x = torchvision.models.resnet50(weights=None).to(DEV), noise(batch, 3, side, side)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y = ids(1000, batch)
    return model, lambda: F.cross_entropy(model(x), y), sgd(model), dtype


def qwen(layers=8):
    return hf("Qwen3ForCausalLM", "Qwen3Config", hidden_size=512, intermediate_size=1024, num_hidden_layers=layers,
              num_attention_heads=8, num_key_value_heads=4, head_dim=64, vocab_size=4096, tie_word_embeddings=True,
              use_cache=False)  # fmt: skip


def bert(layers=8):
    return hf("BertForMaskedLM", "BertConfig", hidden_size=512, num_hidden_layers=layers, num_attention_heads=8,
              intermediate_size=1024, vocab_size=4096)  # fmt: skip


def language(model, wrap=lambda model: model):
    model, x = wrap(model), ids(4000, 2, 128)
    return model, lambda: model(input_ids=x, labels=x).loss, fresh_jobs.fused(model), None


def fsdp1(model):
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.bert.modeling_bert import BertLayer

    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={BertLayer}),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
        use_orig_params=True,
    )


def ddp_with_hook(model):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = fresh_jobs.ddp(model, gradient_as_bucket_view=True)
    model.register_comm_hook(None, bf16_compress_hook)
    return model


def synced_resnet():
    import torchvision

    model = nn.SyncBatchNorm.convert_sync_batchnorm(torchvision.models.resnet50(weights=None)).to(DEV)
    model = fresh_jobs.ddp(model.to(memory_format=torch.channels_last))
    x, y = noise(4, 3, 64, 64).to(memory_format=torch.channels_last), ids(1000, 4)
    return model, lambda: F.cross_entropy(model(x), y), sgd(model), torch.bfloat16


JOBS = {
    "resnet50_fp32": lambda: resnet(None),
    "resnet50_bf16": lambda: resnet(torch.bfloat16),
    "resnet50_fp16": lambda: resnet(torch.float16),
    "resnet50_fp16_contiguous": lambda: resnet(torch.float16, False),
    "resnet50_bf16_b128": lambda: resnet(torch.bfloat16, True, 128, 224),
    "resnet50_fp16_b128": lambda: resnet(torch.float16, True, 128, 224),
    "qwen": lambda: language(qwen()),
    "bert": lambda: language(bert()),
    "d_qwen_ddp": lambda: language(qwen(), fresh_jobs.ddp),
    "d_qwen_fsdp2": lambda: language(qwen(), lambda model: fresh_jobs.sharded(model, model.model.layers)),
    "d_bert_fsdp1": lambda: language(bert(), fsdp1),
    "d_bert_ddp_hook": lambda: language(bert(), ddp_with_hook),
    "d_resnet50_syncbn": synced_resnet,
}


def measured(name):
    torch.manual_seed(0)
    model, loss_of, optimizer, dtype = JOBS[name]()
    scaler = torch.amp.GradScaler("cuda") if dtype == torch.float16 else None
    parameters = list(model.parameters())
    phases = {}

    def phase(kind, work):
        torch.cuda.synchronize()
        if WORLD > 1:
            dist.barrier()
            torch.cuda.synchronize()
        begin = time.perf_counter()
        done = work()
        phases.setdefault(kind, []).append((time.perf_counter() - begin) * 1e6)
        return done

    def forward():
        with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            return loss_of()

    for _ in range(WARM + STEPS):
        loss = phase("forward", forward)
        phase("backward", (scaler.scale(loss) if scaler else loss).backward)
        if scaler:
            phase("unscale", lambda: scaler.unscale_(optimizer))
        phase("clip", lambda: nn.utils.clip_grad_norm_(parameters, 1.0))
        phase("step", lambda: scaler.step(optimizer) if scaler else optimizer.step())
        if scaler:
            phase("update", scaler.update)
        phase("zero_grad", optimizer.zero_grad)
    return {kind: round(median(us[WARM:]), 1) for kind, us in phases.items()}


if __name__ == "__main__":
    if WORLD > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    for name in sys.argv[2:]:
        told = {"job": name, "world": WORLD, "us": measured(name)}
        if int(os.environ.get("RANK", 0)) == 0:
            print(json.dumps(told), flush=True)
            with open(sys.argv[1], "a") as file:
                file.write(json.dumps(told) + "\n")
    if WORLD > 1:
        dist.destroy_process_group()
