"""Jobs that hold memory and host time against a machine: python jobs.py --jobs A,B --out FILE, or by torchrun for two ranks.

Each job prints one line of JSON for each rank: step times, peaks of the allocator, memory in use of the GPU.
"""

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections import defaultdict

T_START = time.perf_counter()
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

R, W, L = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
DEV = torch.device("cuda", L)
JOBS = {}


def job(f):
    JOBS[f.__name__] = f
    return f


def noise(*shape, **k):
    return torch.randn(*shape, device=DEV, **k)


def ids(n, *shape):
    return torch.randint(n, shape, device=DEV)


def fused(model, lr=1e-4):
    return torch.optim.AdamW(model.parameters(), lr, fused=True)


def ddp(model, **k):
    return nn.parallel.DistributedDataParallel(model, device_ids=[L], **k)


def train(model, loss_of, optimizer, amp=torch.bfloat16, clip=None):
    def step():
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            loss = loss_of()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def hf(name, config, **k):
    import transformers

    torch.manual_seed(0)
    with DEV:
        return getattr(transformers, name)(getattr(transformers, config)(**k))


# memory


@job
def bert_large_ddp():
    model = ddp(hf("BertForMaskedLM", "BertConfig", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                   intermediate_size=4096))  # fmt: skip
    x = ids(30000, 16, 384)
    return train(model, lambda: model(input_ids=x, labels=x).loss, fused(model))


@job
def ppo():
    body = lambda last: nn.Sequential(nn.Linear(60, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU(), nn.Linear(256, last))
    actor, critic = body(8).to(DEV), body(1).to(DEV)
    spread = nn.Parameter(torch.zeros(8, device=DEV))
    every = [*actor.parameters(), *critic.parameters(), spread]
    optimizer, state = torch.optim.Adam(every, 3e-4, fused=True), noise(2048, 60)

    def step():
        rows = defaultdict(list)
        with torch.no_grad():
            x = state
            for _ in range(8):
                choice = torch.distributions.Normal(actor(x), spread.exp())
                action = choice.sample()
                rows["x"].append(x)
                rows["a"].append(action)
                rows["p"].append(choice.log_prob(action).sum(-1))
                rows["v"].append(critic(x)[:, 0])
                x = (x + 0.1 * torch.randn_like(x)).clamp(-5, 5)
                rows["r"].append(-x.square().mean(-1))
            gain, gains = torch.zeros(2048, device=DEV), []
            values = [*rows["v"], critic(x)[:, 0]]
            for n in reversed(range(8)):
                gain = rows["r"][n] + 0.99 * values[n + 1] - values[n] + 0.95 * 0.99 * gain
                gains.insert(0, gain)
            x, a, p, v, g = (torch.cat(one) for one in (rows["x"], rows["a"], rows["p"], rows["v"], gains))
        for _ in range(4):
            for part in torch.randperm(len(x), device=DEV).chunk(4):
                choice = torch.distributions.Normal(actor(x[part]), spread.exp())
                ratio, good = (choice.log_prob(a[part]).sum(-1) - p[part]).exp(), g[part]
                good = (good - good.mean()) / (good.std() + 1e-8)
                loss = -torch.min(ratio * good, ratio.clamp(0.8, 1.2) * good).mean()
                loss = loss + 0.5 * (critic(x[part])[:, 0] - g[part] - v[part]).square().mean()
                loss = loss - 0.01 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(every, 0.5)
                optimizer.step()

    return step


@job
def dcgan():
    width, i, d = 96, 3, []
    g = [nn.ConvTranspose2d(100, 8 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU(True)]
    for m in (8, 4, 2):
        g += [nn.ConvTranspose2d(m * width, m // 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(m // 2 * width),
              nn.ReLU(True)]  # fmt: skip
    for m in (1, 2, 4, 8):
        d += [nn.Conv2d(i, m * width, 4, 2, 1, bias=False), nn.BatchNorm2d(m * width) if m > 1 else nn.Identity(),
              nn.LeakyReLU(0.2, True)]  # fmt: skip
        i = m * width
    maker = nn.Sequential(*g, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()).to(DEV)
    critic = nn.Sequential(*d, nn.Conv2d(i, 1, 4)).to(DEV)
    first, second = (torch.optim.Adam(part.parameters(), 2e-4, (0.5, 0.999)) for part in (maker, critic))
    real, yes, no = noise(256, 3, 64, 64), torch.ones(256, device=DEV), torch.zeros(256, device=DEV)

    def judge(x, label):
        return F.binary_cross_entropy_with_logits(critic(x).flatten(), label)

    def step():
        critic.zero_grad()
        fake = maker(noise(256, 100, 1, 1))
        judge(real, yes).backward()
        judge(fake.detach(), no).backward()
        second.step()
        maker.zero_grad()
        judge(fake, yes).backward()
        first.step()

    return step


@job
def clip_gathered():
    from torch.distributed.nn.functional import all_gather

    model = ddp(hf("CLIPModel", "CLIPConfig"), find_unused_parameters=False)
    x, words = noise(96, 3, 224, 224), ids(49000, 96, 77)

    def loss():
        out = model(input_ids=words, pixel_values=x)
        images, texts = (torch.cat(all_gather(x, group=dist.group.WORLD)) for x in (out.image_embeds, out.text_embeds))
        logits = 14.0 * texts @ images.T + 0 * out.logits_per_text.sum()
        y = torch.arange(len(logits), device=DEV)
        return F.cross_entropy(logits.float(), y) + F.cross_entropy(logits.float().T, y)

    return train(model, loss, fused(model))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.l1, self.qkv, self.o = h, nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.l2, self.up, self.dn = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.h, -1).transpose(1, 2) for y in self.qkv(self.l1(x)).split(d, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.dn(F.gelu(self.up(self.l2(x))))


class Gpt(nn.Module):
    def __init__(self, v=50304, d=1024, n=24, h=16, t=1024):
        super().__init__()
        self.tok, self.pos = nn.Embedding(v, d), nn.Embedding(t, d)
        self.blocks, self.ln = nn.ModuleList(Block(d, h) for _ in range(n)), nn.LayerNorm(d)
        self.head = nn.Linear(d, v, bias=False)

    def forward(self, x):
        y = self.tok(x) + self.pos(torch.arange(x.shape[1], device=x.device))
        for b in self.blocks:
            y = b(y)
        return self.head(self.ln(y))


@job
def gpt2_medium_hook_ddp():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = ddp(Gpt().to(DEV), gradient_as_bucket_view=True)
    model.register_comm_hook(None, bf16_compress_hook)
    x = ids(50304, 6, 1024)
    return train(model, lambda: F.cross_entropy(model(x).flatten(0, 1), x.flatten()), fused(model), clip=1.0)


def detector(name, size):
    import torchvision

    torch.manual_seed(7)
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None, num_classes=91)
    model = model.to(DEV).train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, 0.9)
    images = [torch.rand(3, *size).to(DEV) for _ in range(2)]
    targets = []
    for _ in images:
        corner, extent = torch.rand(8, 2) * 400, torch.rand(8, 2) * 300 + 40
        target = {"boxes": torch.cat([corner, corner + extent], 1), "labels": torch.randint(1, 91, (8,))}
        target["masks"] = (torch.rand(8, *size) > 0.5).to(torch.uint8)
        targets.append({key: value.to(DEV) for key, value in target.items()})

    def step():
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


@job
def mask_rcnn():
    return detector("maskrcnn_resnet50_fpn", (800, 1088))


@job
def faster_rcnn():
    return detector("fasterrcnn_resnet50_fpn", (800, 1088))


class Experts(nn.Module):
    """Experts whose sizes the host reads."""

    def __init__(self, d, f, n, k):
        super().__init__()
        self.n, self.k, self.gate = n, k, nn.Linear(d, n, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(n, d, f) * 0.02), nn.Parameter(torch.randn(n, f, d) * 0.02)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        p, e = self.gate(flat).float().softmax(-1).topk(self.k, -1)
        order = e.flatten().argsort(stable=True)
        sizes = torch.bincount(e.flatten(), minlength=self.n).tolist()
        SIZES.append(sizes)
        parts = flat[order // self.k].split(sizes)
        y = torch.cat([F.gelu(z @ self.up[i].to(z.dtype)) @ self.down[i].to(z.dtype) for i, z in enumerate(parts)])
        y = y * p.flatten()[order, None].to(y.dtype)
        return x + torch.zeros_like(flat, dtype=y.dtype).index_add(0, order // self.k, y).view_as(x)


SIZES = []


@job
def moe_tolist():
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        layers += [nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True, dropout=0.0),
                   Experts(1024, 4096, 8, 2)]  # fmt: skip
    model = nn.Sequential(*layers).to(DEV, torch.bfloat16)
    x = noise(4, 2048, 1024, dtype=torch.bfloat16)
    return train(model, lambda: model(x).float().pow(2).mean(), fused(model), None)


@job
def ddp_freed():
    """No steps: what is allocated and in use after each thing a program does with a deleted model."""
    seen = []

    def say(tag):
        free, total = torch.cuda.mem_get_info(L)
        seen.append([tag, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), total - free])

    for n, k in (("plain", {}), ("views", dict(gradient_as_bucket_view=True)), ("static", dict(static_graph=True))):
        model = ddp(nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)]).to(DEV), **k)
        step = train(model, lambda: model(noise(64, 2048)).pow(2).mean(), fused(model), None)
        for i in range(30):
            step()
            torch.cuda.synchronize()
        say(f"{n}: 30 steps")
        del model, step
        say(f"{n}: deleted")
        gc.collect()
        torch.cuda.empty_cache()
        say(f"{n}: collected")
        time.sleep(2)
        say(f"{n}: 2 s later")
        torch.cuda.empty_cache()
        say(f"{n}: emptied again")
        dist.barrier()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        say(f"{n}: barrier")
    return {"seen": seen}


# host


class Decoder(nn.Module):
    """A model with a static cache, for one captured step of decoding."""

    def __init__(self, batch, v=32000, d=1024, n=16, h=16, t=512):
        super().__init__()
        self.h, self.tok, self.head = h, nn.Embedding(v, d), nn.Linear(d, v, bias=False)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(n))
        self.k, self.v = ([torch.zeros(batch, h, t, d // h, device=DEV, dtype=torch.bfloat16) for _ in range(n)]
                          for _ in range(2))  # fmt: skip
        self.at = torch.zeros(1, dtype=torch.long, device=DEV)
        self.places = torch.arange(t, device=DEV)

    def forward(self, x):
        y = self.tok(x)
        b, t, d = y.shape
        mask = (self.places <= self.at)[None, None, None]
        for n, block in enumerate(self.blocks):
            q, k, v = (z.view(b, t, self.h, -1).transpose(1, 2) for z in block.qkv(block.l1(y)).split(d, 2))
            self.k[n].index_copy_(2, self.at, k)
            self.v[n].index_copy_(2, self.at, v)
            a = F.scaled_dot_product_attention(q, self.k[n], self.v[n], attn_mask=mask)
            y = y + block.o(a.transpose(1, 2).reshape(b, t, d))
            y = y + block.dn(F.gelu(block.up(block.l2(y))))
        self.at += 1
        return self.head(y)[:, -1].argmax(-1, keepdim=True)


def captured(batch, replay):
    model = Decoder(batch).to(DEV, torch.bfloat16).eval()
    token = ids(32000, batch, 1)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(token)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        if replay:
            with torch.cuda.graph(graph):
                token.copy_(model(token))

    @torch.no_grad()
    def step():
        model.at.zero_()
        for _ in range(64):
            if replay:
                graph.replay()
            else:
                token.copy_(model(token))
            token.cpu()

    return step


@job
def decode_captured_b1():
    return captured(1, True)


@job
def decode_captured_b8():
    return captured(8, True)


@job
def decode_eager_b1():
    return captured(1, False)


def llama():
    return hf("LlamaForCausalLM", "LlamaConfig", vocab_size=32000, hidden_size=1024, intermediate_size=2816,
              num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4,
              eos_token_id=None, bos_token_id=1, pad_token_id=0)  # fmt: skip


def generate(batch, cache):
    model, x = llama().to(torch.bfloat16).eval(), ids(30000, batch, 32)
    k = {} if cache is None else {"cache_implementation": cache, "disable_compile": True}

    def step():
        y = model.generate(
            x, attention_mask=torch.ones_like(x), do_sample=False, max_new_tokens=24, min_new_tokens=24, **k
        )
        assert y.shape == (batch, 56), y.shape

    return step


@job
def generate_b1():
    return generate(1, None)


@job
def generate_b8():
    return generate(8, None)


@job
def generate_static_b1():
    return generate(1, "static")


@job
def generate_static_b8():
    return generate(8, "static")


@job
def grpo():
    model, other = llama().to(torch.bfloat16), llama().to(torch.bfloat16).eval()
    optimizer, prompts = fused(model), ids(30000, 2, 32).repeat_interleave(8, 0)

    def logs(m, y):
        out = m(y).logits[:, 31:-1].float().log_softmax(-1)
        return out.gather(-1, y[:, 32:, None])[..., 0]

    def step():
        with torch.no_grad():
            y = model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, max_new_tokens=24,
                               min_new_tokens=24)  # fmt: skip
            old, ref = logs(model, y), logs(other, y)
            reward = (y[:, 32:] % 7 == 0).float().mean(1).view(2, 8)
            good = ((reward - reward.mean(1, True)) / (reward.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        new = logs(model, y)
        ratio, apart = (new - old).exp(), ref - new
        loss = -torch.min(ratio * good, ratio.clamp(0.8, 1.2) * good) + 0.04 * (apart.exp() - apart - 1)
        loss.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def small_cnn():
    layers, i = [], 3
    for o in (32, 64, 128, 256):
        layers += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
                   nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True), nn.MaxPool2d(2)]  # fmt: skip
        i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10)).to(DEV)


def cnn(parallel):
    model = ddp(small_cnn()) if parallel else small_cnn()
    x, y = noise(64, 3, 32, 32), ids(10, 64)
    step = train(model, lambda: F.cross_entropy(model(x), y), torch.optim.SGD(model.parameters(), 0.1, 0.9), None)

    def ten():
        for _ in range(10):
            step()

    return ten


@job
def small_cnn_ddp():
    return cnn(True)


@job
def small_cnn_1gpu():
    return cnn(False)


@job
def lstm():
    model = nn.ModuleDict({"e": nn.Embedding(10000, 512), "l": nn.LSTM(512, 512, 3, batch_first=True, dropout=0.1),
                           "h": nn.Linear(512, 10000)}).to(DEV)  # fmt: skip
    x = ids(10000, 32, 65)

    def loss():
        y = model["h"](model["l"](model["e"](x[:, :-1]))[0])
        return F.cross_entropy(y.flatten(0, 1), x[:, 1:].flatten())

    return train(model, loss, torch.optim.Adam(model.parameters(), 1e-3), None, clip=0.5)


@job
def lstm_cells():
    cell, head = nn.LSTMCell(128, 256).to(DEV), nn.Linear(256, 10).to(DEV)
    x, model = noise(48, 32, 128), nn.ModuleList([cell, head])

    def loss():
        h = c = torch.zeros(32, 256, device=DEV)
        for one in x:
            h, c = cell(one, (h, c))
        return head(h).square().mean()

    return train(model, loss, torch.optim.AdamW(model.parameters(), 1e-4), None)


@job
def int8_weights():
    d, n = 2048, 16
    weights = [torch.randint(-127, 128, (4 * d, d), dtype=torch.int8, device=DEV) for _ in range(n)]
    back = [torch.randint(-127, 128, (d, 4 * d), dtype=torch.int8, device=DEV) for _ in range(n)]
    scales = [noise(4 * d, 1, dtype=torch.bfloat16) for _ in range(n)]
    back_scales = [noise(d, 1, dtype=torch.bfloat16) for _ in range(n)]
    x = noise(64, d, dtype=torch.bfloat16)

    @torch.no_grad()
    def step():
        y = x
        for w, s, b, t in zip(weights, scales, back, back_scales, strict=True):
            y = y + F.linear(F.silu(F.linear(y, w.to(y.dtype) * s)), b.to(y.dtype) * t)
            q = y.abs().amax(1, keepdim=True) / 127
            z = torch._int_mm((y / q).round().to(torch.int8), w.t())
            y = y + F.linear(z.to(y.dtype) * q * s.view(1, -1), b.to(y.dtype) * t)
        y.cpu()

    return step


# the machine itself


def spread(times):
    s = sorted(times)
    return {"first": times[0], "second": times[1], "p10": s[len(s) // 10], "median": s[len(s) // 2],
            "p90": s[len(s) * 9 // 10], "n": len(s)}  # fmt: skip


@job
def cpu_pages():
    import resource

    rows = []
    faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt * 4 / 1024
    for threads in (1, 8):
        torch.set_num_threads(threads)
        for mib in (1, 4, 16, 31, 32, 33, 64):
            n = mib << 18
            rounds = max(6, min(24, 256 // mib))
            fills, copies, adds = [], [], []
            kept, other = torch.ones(n), torch.ones(n)
            for _ in range(rounds):
                t = time.perf_counter()
                kept.fill_(1.0)
                fills.append(time.perf_counter() - t)
                t = time.perf_counter()
                kept.copy_(other)
                copies.append(time.perf_counter() - t)
                t = time.perf_counter()
                kept.add_(other)
                adds.append(time.perf_counter() - t)
            row = dict(threads=threads, mib=mib, fill=spread(fills), copy=spread(copies), add_=spread(adds))
            one, new_add, several, all_free = [], [], [], []
            paged = [faults()]
            for _ in range(rounds):
                t = time.perf_counter()
                x = torch.empty(n)
                x.fill_(1.0)
                one.append(time.perf_counter() - t)
                t = time.perf_counter()
                del x
                all_free.append(time.perf_counter() - t)
            paged.append(faults())
            for _ in range(rounds):
                t = time.perf_counter()
                x = kept + other
                new_add.append(time.perf_counter() - t)
                del x
            paged.append(faults())
            for _ in range(max(4, rounds // 4)):
                t = time.perf_counter()
                xs = [torch.empty(n).fill_(1.0) for _ in range(4)]
                several.append((time.perf_counter() - t) / 4)
                del xs
            paged.append(faults())
            row["faulted_mib"] = [round(b - a, 1) for a, b in zip(paged, paged[1:])]
            row["rounds"] = rounds
            row.update(
                new_fill=spread(one), new_add=spread(new_add), four_new_fills=spread(several), free=spread(all_free)
            )
            rows.append(row)
    torch.set_num_threads(1)
    return {"rows": rows}


@job
def torch_calls():
    """Host time of single calls with an idle GPU, in microseconds."""
    rows, bf, f8 = [], torch.bfloat16, torch.float8_e4m3fn

    def timed(name, f, n=200):
        ts = []
        for i in range(n):
            if i % 16 == 0:
                torch.cuda.synchronize()
            t = time.perf_counter()
            f()
            ts.append((time.perf_counter() - t) * 1e6)
        rows.append({"call": name, **spread(ts)})

    one = torch.ones((), device=DEV)
    with torch.no_grad():
        for m, n, k in ((16, 64, 64), (64, 512, 512), (512, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)):
            x, w, b = noise(m, k, dtype=bf), noise(n, k, dtype=bf), noise(n, dtype=bf)
            xq, wq = x.to(f8), w.to(f8)
            timed(f"linear bf16 {m} {n} {k}", lambda: F.linear(x, w))
            timed(f"linear+bias bf16 {m} {n} {k}", lambda: F.linear(x, w, b))
            timed(f"mm out bf16 {m} {n} {k}", lambda o=x.new_empty(m, n): torch.mm(x, w.t(), out=o))
            timed(
                f"_scaled_mm {m} {n} {k}",
                lambda: torch._scaled_mm(xq, wq.t(), one, one, out_dtype=bf, use_fast_accum=True),
            )
            x32, w32 = x.float(), w.float()
            timed(f"linear f32 {m} {n} {k}", lambda: F.linear(x32, w32))
        x = noise(64, 512)
        timed("add", lambda: x + x)
        timed("add_", lambda: x.add_(1.0))
        timed("empty", lambda: torch.empty(64, 512, device=DEV))
        timed("view", lambda: x.view(-1))
        timed("layer_norm", lambda: F.layer_norm(x, (512,)))
        event = torch.cuda.Event()
        timed("event", lambda: event.record())
    return {"rows": rows}


@job
def lt_calls():
    """Host time of cublasLt's calls, in microseconds, in the order in which Transformer Engine makes them."""
    import ctypes as c

    noise(8, 8, dtype=torch.bfloat16) @ noise(8, 8, dtype=torch.bfloat16)
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "libcublasLt.so" in line}
    lt = c.CDLL(sorted(paths)[0])
    now = time.perf_counter

    def ok(status):
        assert status == 0, status

    handle = c.c_void_p()
    t = now()
    ok(lt.cublasLtCreate(c.byref(handle)))
    rows = [{"call": "create", "first": (now() - t) * 1e6}]
    F32, BF16, E4M3, E5M2 = 0, 14, 28, 29
    space = torch.empty(64 << 20, dtype=torch.uint8, device=DEV)
    scale = torch.ones(4, device=DEV)
    stream = c.c_void_p(torch.cuda.current_stream().cuda_stream)
    one, zero = c.c_float(1.0), c.c_float(0.0)

    def attribute(d, which, value):
        ok(lt.cublasLtMatmulDescSetAttribute(d, which, c.byref(value), c.c_size_t(c.sizeof(value))))

    def call(kinds, m, n, k, *rest, **more):
        try:
            matmul(kinds, m, n, k, *rest, **more)
        except AssertionError as e:
            rows.append({"call": "refused", "kinds": kinds, "mnk": [m, n, k], "rest": rest, "error": repr(e)})

    def matmul(kinds, m, n, k, ta, tb, epilogue, repeats, with_matmul=True):
        a_t, b_t, d_t = kinds
        nb = {F32: 4, BF16: 2, E4M3: 1, E5M2: 1}
        a, b, d = (
            torch.zeros(r * nb[t], dtype=torch.uint8, device=DEV) for r, t in ((m * k, a_t), (k * n, b_t), (m * n, d_t))
        )
        bias = torch.zeros(max(m, n) * 4, dtype=torch.uint8, device=DEV)
        parts = defaultdict(list)
        for i in range(repeats):
            if i % 8 == 0:
                torch.cuda.synchronize()
            t0 = now()
            la, lb, ld, desc, pref = (c.c_void_p() for _ in range(5))
            ok(
                lt.cublasLtMatrixLayoutCreate(
                    c.byref(la), a_t, c.c_uint64(k if ta else m), c.c_uint64(m if ta else k), c.c_int64(k if ta else m)
                )
            )
            ok(
                lt.cublasLtMatrixLayoutCreate(
                    c.byref(lb), b_t, c.c_uint64(n if tb else k), c.c_uint64(k if tb else n), c.c_int64(n if tb else k)
                )
            )
            ok(lt.cublasLtMatrixLayoutCreate(c.byref(ld), d_t, c.c_uint64(m), c.c_uint64(n), c.c_int64(m)))
            t1 = now()
            ok(lt.cublasLtMatmulDescCreate(c.byref(desc), 68, 0))
            attribute(desc, 3, c.c_int32(ta))
            attribute(desc, 4, c.c_int32(tb))
            if a_t in (E4M3, E5M2):
                attribute(desc, 25, c.c_int8(1))
                attribute(desc, 17, c.c_void_p(scale.data_ptr()))
                attribute(desc, 18, c.c_void_p(scale.data_ptr() + 4))
            if epilogue:
                attribute(desc, 8, c.c_void_p(bias.data_ptr()))
                attribute(desc, 26, c.c_int32(BF16))
            attribute(desc, 7, c.c_int32(epilogue or 1))
            t2 = now()
            ok(lt.cublasLtMatmulPreferenceCreate(c.byref(pref)))
            size = c.c_size_t(32 << 20)
            ok(lt.cublasLtMatmulPreferenceSetAttribute(pref, 1, c.byref(size), c.c_size_t(8)))
            t3 = now()
            result, found = (c.c_uint64 * 12)(), c.c_int()
            ok(
                lt.cublasLtMatmulAlgoGetHeuristic(
                    handle, desc, la, lb, ld, ld, pref, 1, c.byref(result), c.byref(found)
                )
            )
            t4 = now()
            assert found.value == 1
            state = c.c_uint32.from_buffer(result, 72).value
            assert state == 0, ("state", state)
            if with_matmul:
                ok(lt.cublasLtMatmul(handle, desc, c.byref(one), c.c_void_p(a.data_ptr()), la, c.c_void_p(b.data_ptr()), lb,
                                     c.byref(zero), c.c_void_p(d.data_ptr()), ld, c.c_void_p(d.data_ptr()), ld, c.byref(result),
                                     c.c_void_p(space.data_ptr()), size, stream))  # fmt: skip
            t5 = now()
            ok(lt.cublasLtMatmulPreferenceDestroy(pref))
            for layout in (ld, lb, la):
                ok(lt.cublasLtMatrixLayoutDestroy(layout))
            ok(lt.cublasLtMatmulDescDestroy(desc))
            t6 = now()
            for name, x, y in (("layouts", t0, t1), ("desc", t1, t2), ("pref", t2, t3), ("heuristic", t3, t4), ("matmul", t4, t5),
                               ("destroy", t5, t6), ("whole", t0, t6)):  # fmt: skip
                parts[name].append((y - x) * 1e6)
        torch.cuda.synchronize()
        for name, ts in parts.items():
            rows.append(
                {
                    "call": name,
                    "kinds": kinds,
                    "mnk": [m, n, k],
                    "t": [ta, tb],
                    "epilogue": epilogue,
                    "matmul": with_matmul,
                    **spread(ts),
                }
            )

    # column-major: m is the output's width, n tokens
    for m, n, k in ((1024, 256, 1024), (6144, 2048, 4096), (4096, 4096, 4096), (3072, 8192, 1024), (2048, 4096, 8192)):
        for kinds, layouts in (((BF16, BF16, BF16), ((1, 0), (0, 0), (0, 1))), ((BF16, BF16, F32), ((0, 1),)),
                               ((E4M3, E4M3, BF16), ((1, 0),)), ((E4M3, E5M2, BF16), ((1, 0),)), ((E4M3, E5M2, F32), ((1, 0),))):  # fmt: skip
            for ta, tb in layouts:
                call(kinds, m, n, k, ta, tb, 0, 64)
        call((BF16, BF16, BF16), m, n, k, 1, 0, 4, 64)
        call((E4M3, E4M3, BF16), m, n, k, 1, 0, 4, 64)
        call((BF16, BF16, BF16), m, n, k, 1, 0, 0, 64, with_matmul=False)
    # many shapes in turns, as layers have them: does the library remember an answer?
    turns, shapes = [], [(256 * i, 512, 1024) for i in range(1, 13)]
    for _ in range(4):
        for m, n, k in shapes:
            before = len(rows)
            call((BF16, BF16, BF16), m, n, k, 1, 0, 0, 2)
            turns.append(
                [m]
                + [(r["call"], r["first"], r["second"]) for r in rows[before:] if r["call"] in ("heuristic", "matmul")]
            )
            del rows[before:]
    return {"rows": rows, "turns": turns}


def used():
    free, total = torch.cuda.mem_get_info(L)
    return total - free


def run(name, steps, warm, all_sizes=False):
    if W > 1:
        dist.init_process_group("nccl", device_id=DEV)
        dist.barrier()
    torch.manual_seed(R)
    torch.cuda.reset_peak_memory_stats()
    before, SIZES[:] = used(), []
    step = JOBS[name]()
    row = dict(job=name, rank=R, world=W)
    if isinstance(step, dict):
        row.update(step)
    else:
        ts, hs, allocated, reserved = [], [], [], []
        for _ in range(warm + steps):
            torch.cuda.synchronize()
            t = time.perf_counter()
            step()
            h = time.perf_counter()
            torch.cuda.synchronize()
            ts.append(time.perf_counter() - t)
            hs.append(h - t)
            allocated.append(torch.cuda.max_memory_allocated())
            reserved.append(torch.cuda.max_memory_reserved())
        if W > 1:
            dist.barrier()
            torch.cuda.synchronize()
        t = time.perf_counter()
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        row.update(step_s=[round(x, 7) for x in ts], host_s=[round(x, 7) for x in hs], free_step_s=(time.perf_counter() - t) / 4,
                   allocated=allocated, reserved=reserved, now_allocated=torch.cuda.memory_allocated())  # fmt: skip
        if SIZES:
            row["sizes"] = list(SIZES) if all_sizes else SIZES[:12] + SIZES[-6:]
    row.update(max_alloc=torch.cuda.max_memory_allocated(), max_reserved=torch.cuda.max_memory_reserved(), used=used(),
               used_before=before, torch=torch.__version__, gpu=torch.cuda.get_device_name(0))  # fmt: skip
    del step
    if W > 1:
        dist.barrier()
        torch.cuda.synchronize()
        dist.destroy_process_group()
    return row


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--jobs")
    ap.add_argument("--out")
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--warm", type=int, default=2)
    A = ap.parse_args()
    torch.cuda.set_device(L)
    for name in A.jobs.split(","):
        began = time.time()
        try:
            row = run(name, A.steps, A.warm)
        except Exception as e:
            traceback.print_exc()
            row = dict(job=name, rank=R, world=W, error=repr(e)[:500])
        row["took_s"] = round(time.time() - began, 2)
        line = json.dumps(row)
        if A.out:
            with open(A.out, "a") as f:
                f.write(line + "\n")
        print(f"{name} rank {R} took {row['took_s']} s", row.get("error", ""), row.get("max_alloc"), flush=True)
        if "error" in row and W > 1:
            os._exit(1)
        gc.collect()
        torch.cuda.empty_cache()
