"""Jobs whose steps wait for the host, and detectors whose sizes data decide, on real GPUs and emulated alike.

python host_jobs.py --jobs NAME,... [--out FILE]      or  torchrun --nproc-per-node 2 host_jobs.py --jobs tp2_small
"""

import argparse
import gc
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

R, W, L = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
JOBS = {}


def job(name, world=1):
    def keep(make):
        JOBS[name] = world, make
        return make

    return keep


def train(model, loss_of, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-4)

    def step():
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width=512, heads=8, layers=8, words=8192):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, caches=None):
        x = self.words(tokens)
        for n, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[n])
        return self.head(x)


def tokens(batch, length, words=8192):
    return torch.randint(words, (batch, length), device="cuda")


@job("decode_b1")
def decode():
    model = Gpt(768, 12, 12).cuda().bfloat16().eval()
    start = tokens(1, 1)

    @torch.no_grad()
    def step():
        caches, token = [[] for _ in model.blocks], start
        for _ in range(24):
            token = model(token, caches)[:, -1].argmax(-1, keepdim=True)
            int(token.item())

    return step


@job("item_loop")
def item_loop():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(12))).cuda()
    x = torch.randn(64, 256, device="cuda")
    step = train(model, lambda: model(x).pow(2).mean())

    def steps():
        for _ in range(4):
            step().item()

    return steps


@job("tiny_adam_loop")
def tiny_adam_loop():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(24))).cuda()
    x = torch.randn(32, 64, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=False)
    return train(model, lambda: model(x).square().mean(), optimizer)


@job("rl_policy")
def rl_policy():
    policy = nn.Sequential(nn.Linear(17, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 6)).cuda()
    value = nn.Sequential(nn.Linear(17, 128), nn.Tanh(), nn.Linear(128, 1)).cuda()
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 3e-4)
    state = torch.randn(16, 17, device="cuda")

    def step():
        logs, values, rewards = [], [], []
        for _ in range(24):
            choice = torch.distributions.Categorical(logits=policy(state))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            values.append(value(state).squeeze(-1))
            rewards.append(action.float().cpu().mean().item())
        returns = torch.tensor(rewards, device="cuda").flip(0).cumsum(0).flip(0)[:, None]
        logs, values = torch.stack(logs), torch.stack(values)
        loss = -(logs * (returns - values.detach())).mean() + F.mse_loss(values, returns.expand_as(values))
        loss.backward()
        nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 0.5)
        optimizer.step()
        optimizer.zero_grad()

    return step


@job("gradient_penalty")
def gradient_penalty():
    critic = nn.Sequential(
        *(nn.Sequential(nn.Linear(512, 512), nn.LeakyReLU(0.2)) for _ in range(8)), nn.Linear(512, 1)
    )
    critic.cuda()
    real, fake = torch.randn(64, 512, device="cuda"), torch.randn(64, 512, device="cuda")

    def loss():
        mix = torch.rand(64, 1, device="cuda")
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, 1) - 1).square().mean()

    return train(critic, loss)


@job("muon_gpt")
def muon_gpt():
    model = Gpt(384, 6, 8).cuda()
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "blocks" in name]
    moments = [torch.zeros_like(p) for p in matrices]
    rest = torch.optim.AdamW([p for name, p in model.named_parameters() if p.dim() != 2 or "blocks" not in name], 1e-3)
    x = tokens(2, 128)

    def step():
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        with torch.no_grad():
            for p, moment in zip(matrices, moments, strict=True):
                moment.lerp_(p.grad, 0.05)
                y = p.grad.lerp(moment, 0.95).bfloat16()
                tall = y.size(0) > y.size(1)
                y = y.T if tall else y
                y = y / (y.norm() + 1e-7)
                for _ in range(5):
                    a = y @ y.T
                    y = 3.4445 * y + (-4.775 * a + 2.0315 * a @ a) @ y
                p.add_(y.T if tall else y, alpha=-0.02)
        rest.step()
        model.zero_grad()

    return step


@job("moe_loop")
def moe_loop():
    experts = nn.ModuleList(nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 256)) for _ in range(8)).cuda()
    router = nn.Linear(256, 8).cuda()
    x = torch.randn(512, 256, device="cuda")

    def loss():
        weights, chosen = router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(experts):
            row, place = torch.where(chosen == n)
            out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
        return out.square().mean()

    return train(nn.ModuleList([experts, router]), loss)


@job("lstm_cells")
def lstm_cells():
    cell, head = nn.LSTMCell(128, 256).cuda(), nn.Linear(256, 10).cuda()
    x = torch.randn(48, 32, 128, device="cuda")

    def loss():
        h = c = torch.zeros(32, 256, device="cuda")
        for one in x:
            h, c = cell(one, (h, c))
        return head(h).square().mean()

    return train(nn.ModuleList([cell, head]), loss)


@job("resnet18_b8_amp")
def resnet18():
    import torchvision

    model, x = torchvision.models.resnet18().cuda(), torch.randn(8, 3, 128, 128, device="cuda")
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), 0.1, 0.9)

    def step():
        with torch.autocast("cuda", torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


@job("gpt_small_b1")
def gpt_small():
    model, x = Gpt(512, 8, 8).cuda(), tokens(1, 64)

    def loss():
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(model(x).flatten(0, 1), x.flatten())

    return train(model, loss)


def detector(masks):
    import torchvision

    models = torchvision.models.detection
    make = models.maskrcnn_resnet50_fpn if masks else models.fasterrcnn_resnet50_fpn
    model = make(weights=None, weights_backbone=None, num_classes=91).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, 0.9)
    images = [torch.rand(3, 800, 1088, device="cuda") for _ in range(2)]
    targets = []
    for _ in images:
        corner, size = torch.rand(8, 2) * 400, torch.rand(8, 2) * 300 + 40
        target = {"boxes": torch.cat([corner, corner + size], 1), "labels": torch.randint(1, 91, (8,))}
        if masks:
            target["masks"] = (torch.rand(8, 800, 1088) > 0.5).to(torch.uint8)
        targets.append({name: value.cuda() for name, value in target.items()})

    def step():
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


job("faster_rcnn_b2")(lambda: detector(False))
job("mask_rcnn_b2")(lambda: detector(True))


@job("tp2_small", 2)
def tp2_small():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, model, x = init_device_mesh("cuda", (2,)), Gpt(512, 8, 8).cuda(), tokens(2, 128)
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=False)
    return train(model, lambda: F.cross_entropy(model(x).flatten(0, 1), x.flatten()), optimizer)


@job("fsdp2_small", 2)
def fsdp2_small():
    from torch.distributed.fsdp import fully_shard

    model, x = Gpt(512, 8, 8).cuda(), tokens(2, 128)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return train(model, lambda: F.cross_entropy(model(x).flatten(0, 1), x.flatten()))


@job("small_collectives", 2)
def small_collectives():
    model, x = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))).cuda(), torch.randn(32, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        model(x).square().mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        total = torch.ones(1, device="cuda")
        dist.all_reduce(total)
        total.item()

    return step


def sizes(step):
    """Returns the sizes that `nonzero` gives in one step, by line: real sizes of detectors."""
    import traceback

    from torch.utils._python_dispatch import TorchDispatchMode

    found = {}

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if function.overloadpacket is torch.ops.aten.nonzero:
                frame = next(f for f in reversed(traceback.extract_stack()) if "torchvision" in f.filename)
                line = f"{os.path.basename(frame.filename)}:{frame.lineno}"
                found.setdefault(line, []).append((out.size(0), args[0].numel()))
            return out

    with Note():
        step()
    return found


def run(name, steps, warm, with_sizes):
    torch.manual_seed(R)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = JOBS[name][1]()
    for _ in range(warm):
        step()
    each, host = [], []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        issued = time.perf_counter()
        torch.cuda.synchronize()
        each.append(time.perf_counter() - begin)
        host.append(issued - begin)
    if W > 1:
        dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    free = (time.perf_counter() - begin) / steps
    told = {"job": name, "world": W, "step_s": each, "host_s": host, "free_running_step_s": free,
            "max_alloc": torch.cuda.max_memory_allocated(), "max_reserved": torch.cuda.max_memory_reserved(),
            "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}  # fmt: skip
    if with_sizes and "rcnn" in name:
        told["sizes"] = sizes(step)
    if R == 0:
        print("RESULT " + json.dumps(told), flush=True)
        if A.out:
            with open(A.out, "a") as file:
                file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--out")
    A = parser.parse_args()
    torch.cuda.set_device(L)
    if W > 1:
        dist.init_process_group("nccl")
    for name in A.jobs.split(","):
        for _ in range(A.repeat):
            run(name, A.steps, A.warm, A.sizes)
            gc.collect()
    if W > 1:
        dist.destroy_process_group()
