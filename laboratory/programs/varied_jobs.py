"""Jobs as different as people's are, on one GPU: real and emulated alike.

    python varied_jobs.py --jobs NAME[,NAME...] [--out FILE.jsonl] [--detail FOLDER]     # --list prints the names

Each job prints one line of JSON: steps with and without synchronisation, peaks of memory. One process a job is what
`validate` runs. `--detail` adds, on a real GPU, what each signature took in two profiled steps (needs the repository
on PYTHONPATH), and the blocks that PyTorch's allocator gave in one step, so that those of libraries can be told.
Needs torchvision 0.26, transformers 5.17, torch-geometric 2.8."""

import argparse
import gc
import gzip
import json
import os
import time
from collections import defaultdict
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

import varied_models as models
import varied_vision as vision

JOBS = {}
DEV = "cuda"


def job(make):
    JOBS[make.__name__] = make
    return make


def train(model, loss_of, optimizer=None, amp=torch.bfloat16, scaler=False, clip=None):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer or torch.optim.AdamW(trained, 1e-4)
    scaler = torch.amp.GradScaler("cuda") if scaler else None

    def step():
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            loss = loss_of()
        (scaler.scale(loss) if scaler else loss).backward()
        if clip:
            if scaler:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(trained, clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()

    return step


def exact(tf32):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def noise(*shape):
    return torch.randn(shape, device=DEV)


def ids(most, *shape):
    return torch.randint(most, shape, device=DEV)


def pictures(name, batch, side, classes=1000, last=False, **options):
    """A model of torchvision, with random pictures and the loss of its classes (of each point, where it has them)."""
    model = vision.zoo(name, **options).to(DEV)
    x = noise(batch, 3, side, side)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y = ids(classes, batch, side, side) if "deeplab" in name else ids(classes, batch)

    def loss():
        out = model(x)
        return F.cross_entropy((out["out"] if isinstance(out, dict) else out).float(), y)

    return model, loss


def sgd(model, rate=0.1):
    return torch.optim.SGD(model.parameters(), rate, 0.9)


# ---- pictures ----
@job
def v_convnext_base_b24_tf32():
    return train(*pictures("convnext_base", 24, 224), amp=None)


@job
def v_efficientnet_v2_s_b48_s300():
    model, loss = pictures("efficientnet_v2_s", 48, 300, last=True)
    return train(model, loss, torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9))


@job
def v_unet_b8_s384():
    model = vision.UNet((64, 128, 256, 512, 1024), 3, 21).to(DEV, memory_format=torch.channels_last)
    x, y = noise(8, 3, 384, 384).to(memory_format=torch.channels_last), ids(21, 8, 384, 384)
    return train(model, lambda: F.cross_entropy(model(x).float(), y))


@job
def v_unet3d_b2_s96_fp16():
    model = vision.UNet((32, 64, 128, 256, 320), 1, 4, 3).to(DEV)
    x, y = noise(2, 1, 96, 96, 96), ids(4, 2, 96, 96, 96)
    return train(model, lambda: F.cross_entropy(model(x).float(), y), sgd(model, 0.01), torch.float16, True, 12.0)


@job
def v_vgg16_b48_fp32():
    exact(False)
    model, loss = pictures("vgg16", 48, 224)
    return train(model, loss, sgd(model, 0.01), None)


@job
def v_vgg16_bn_b48_tf32_benchmark():
    exact(True)
    torch.backends.cudnn.benchmark = True
    model, loss = pictures("vgg16_bn", 48, 224)
    return train(model, loss, sgd(model, 0.01), None)


@job
def v_deeplab101_b8_s385_fp16():
    model, loss = pictures("deeplabv3_resnet101", 8, 385, 21, weights_backbone=None, num_classes=21)
    return train(model, loss, sgd(model), torch.float16, True)


@job
def v_shufflenet_b192():
    model, loss = pictures("shufflenet_v2_x2_0", 192, 224, last=True)
    return train(model, loss, sgd(model))


@job
def v_swin_v2_s_b32_s256():
    return train(*pictures("swin_v2_s", 32, 256), clip=5.0)


@job
def v_mvit_b8_t16():
    model, x, y = vision.zoo("mvit_v2_s").to(DEV), noise(8, 3, 16, 224, 224), ids(400, 8)
    return train(model, lambda: F.cross_entropy(model(x).float(), y))


@job
def v_vit_huge_l12_b32_recompute():
    model, x, y = (
        vision.Patches(1280, 16, 12, 3, 224, 14, recompute=True).to(DEV),
        noise(32, 3, 224, 224),
        ids(1000, 32),
    )
    return train(
        model, lambda: F.cross_entropy(model(x).float(), y), torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    )


@job
def v_dcgan_b256():
    maker, critic = (part.to(DEV) for part in vision.dcgan())
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
def v_stylegan_b16_r1():
    maker, critic = vision.StyleGenerator().to(DEV), vision.style_critic().to(DEV)
    first, second = (torch.optim.Adam(part.parameters(), 2e-3, (0.0, 0.99)) for part in (maker, critic))
    real = noise(16, 3, 64, 64)

    def step():
        loss = F.softplus(critic(maker(noise(16, 512)).detach())).mean() + F.softplus(-critic(real)).mean()
        x = real.detach().requires_grad_()
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        (loss + 5 * slope.square().sum((1, 2, 3)).mean()).backward()
        second.step()
        second.zero_grad()
        F.softplus(-critic(maker(noise(16, 512)))).mean().backward()
        first.step()
        first.zero_grad()
        second.zero_grad()

    return step


@job
def v_ddpm_b48_s64_fp16():
    model = vision.Denoiser().to(DEV, memory_format=torch.channels_last)
    x = noise(48, 3, 64, 64).to(memory_format=torch.channels_last)

    def loss():
        t, e = ids(1000, 48), torch.randn_like(x)
        signal = torch.cos(t / 1000 * 1.57)[:, None, None, None]
        return F.mse_loss(model(signal * x + (1 - signal**2).sqrt() * e, t).float(), e)

    return train(model, loss, torch.optim.AdamW(model.parameters(), 1e-4), torch.float16, True, 1.0)


@job
def v_dit_b_b64_average():
    model, mean = (vision.Patches(768, 12, 12, 4, 32, 2, conditions=1001).to(DEV) for _ in range(2))
    x, y, target = noise(64, 4, 32, 32), ids(1000, 64), noise(64, 256, 16)
    step = train(model, lambda: F.mse_loss(model(x, y).float(), target))

    def both():
        step()
        with torch.no_grad():
            torch._foreach_lerp_(list(mean.parameters()), list(model.parameters()), 1e-4)

    return both


@job
def v_edsr_b16_s48_fp16():
    model = vision.Edsr().to(DEV, memory_format=torch.channels_last)
    x, y = noise(16, 3, 48, 48).to(memory_format=torch.channels_last), noise(16, 3, 192, 192)
    return train(model, lambda: F.l1_loss(model(x).float(), y), amp=torch.float16, scaler=True)


@job
def v_codes_b64_s128():
    model, x = vision.VectorCodes().to(DEV), noise(64, 3, 128, 128)
    return train(model, lambda: model(x), amp=None)


@job
def v_dgcnn_b16_n1024():
    model, x, y = vision.Dgcnn().to(DEV), noise(16, 3, 1024), ids(40, 16)
    return train(model, lambda: F.cross_entropy(model(x), y), sgd(model), None)


# ---- sound ----
@job
def v_hifigan_b16():
    model, x, y = vision.HifiGenerator().to(DEV), noise(16, 80, 32), noise(16, 1, 8192)
    return train(model, lambda: F.l1_loss(model(x), y), amp=None)


@job
def v_wav2vec2_b6_5s():
    import transformers

    config = transformers.Wav2Vec2Config(layerdrop=0.0, mask_time_prob=0.0, vocab_size=32)
    model, x, y = transformers.Wav2Vec2ForCTC(config).to(DEV).train(), noise(6, 80000), ids(31, 6, 60) + 1
    return train(model, lambda: model(input_values=x, labels=y).loss, amp=torch.float16, scaler=True)


@job
def v_whisper_small_b8():
    import transformers

    config = transformers.WhisperConfig(
        d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, use_cache=False,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).to(DEV).train()
    x, y = noise(8, 80, 3000), ids(50000, 8, 192)
    return train(model, lambda: model(input_features=x, labels=y).loss)


@job
def v_conformer_b16_t1200():
    model, x, y = models.Conformer().to(DEV), noise(16, 1200, 80), ids(1023, 16, 40) + 1
    frames, letters = torch.full((16,), 299), torch.full((16,), 40)

    def loss():
        out = model(x).float().log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(out, y, frames, letters, zero_infinity=True)

    return train(model, loss, clip=1.0)


# ---- sequences ----
def words(model, batch, length, most, **options):
    x = ids(most, batch, length)
    return train(model, lambda: F.cross_entropy(model(x).float().flatten(0, 1), x.flatten()), **options)


@job
def v_scan_b8_s1024():
    return words(models.Scan().to(DEV), 8, 1024, 32000)


@job
def v_lstm_both_3x512_b32_s200_fp16():
    return words(
        models.Recurrent("LSTM", 512, 3, 8000, True, 0.3).to(DEV), 32, 200, 8000, amp=torch.float16, scaler=True
    )


@job
def v_gru_4x768_b96_s120():
    return words(models.Recurrent("GRU", 768, 4, 12000, dropout=0.1).to(DEV), 96, 120, 12000, amp=None, clip=0.5)


@job
def v_lstm_2x1500_b20_s35_tf32():
    exact(True)
    model = models.Recurrent("LSTM", 1500, 2, 10000, dropout=0.65, tied=True).to(DEV)
    return words(model, 20, 35, 10000, amp=None, clip=5.0, optimizer=torch.optim.SGD(model.parameters(), 1.0))


def hf(name, config, **options):
    import transformers

    with torch.device(DEV):
        return getattr(transformers, name)(getattr(transformers, config)(**options)).train()


@job
def v_t5_large_b4_s384():
    model = hf(
        "T5ForConditionalGeneration", "T5Config", d_model=1024, d_ff=2816, d_kv=64, num_layers=24, num_heads=16,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    x, y = ids(32000, 4, 384), ids(32000, 4, 128)
    return train(model, lambda: model(input_ids=x, labels=y).loss, torch.optim.Adafactor(model.parameters()))


@job
def v_llama_hf_l12_b4_s1536_recompute():
    model = hf(
        "LlamaForCausalLM", "LlamaConfig", hidden_size=1536, intermediate_size=4096, num_hidden_layers=12, vocab_size=49152,
        num_attention_heads=24, num_key_value_heads=6, use_cache=False, tie_word_embeddings=True,
    ).to(torch.bfloat16)  # fmt: skip
    model.gradient_checkpointing_enable()
    x = ids(49000, 4, 1536)
    return train(
        model, lambda: model(input_ids=x, labels=x).loss, torch.optim.AdamW(model.parameters(), fused=True), None
    )


@job
def v_lora_l20_b2_s2048():
    model = hf(
        "LlamaForCausalLM", "LlamaConfig", hidden_size=3072, intermediate_size=8192, num_hidden_layers=20, vocab_size=32000,
        num_attention_heads=24, num_key_value_heads=8, use_cache=False,
    ).to(torch.bfloat16)  # fmt: skip
    model, x = models.with_low(model).to(DEV), ids(32000, 2, 2048)
    return train(model, lambda: model(input_ids=x, labels=x).loss, clip=1.0)


@job
def v_mixtral_e16_b8_s512():
    model = hf(
        "MixtralForCausalLM", "MixtralConfig", hidden_size=768, intermediate_size=2048, num_hidden_layers=8, vocab_size=32000,
        num_attention_heads=12, num_key_value_heads=4, num_local_experts=16, num_experts_per_tok=2, use_cache=False,
    )  # fmt: skip
    x = ids(32000, 8, 512)
    return train(model, lambda: model(input_ids=x, labels=x).loss, clip=1.0)


@job
def v_electra_b48_s128_fp16():
    model = hf(
        "ElectraForMaskedLM",
        "ElectraConfig",
        embedding_size=768,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    )
    x = ids(30000, 48, 128)
    return train(model, lambda: model(input_ids=x, labels=x).loss, amp=torch.float16, scaler=True, clip=1.0)


@job
def v_generate_gpt2_b16():
    model = hf("GPT2LMHeadModel", "GPT2Config").to(torch.bfloat16).eval()
    x = ids(50000, 16, 128)
    keep = dict(
        attention_mask=torch.ones_like(x), do_sample=False, min_new_tokens=24, max_new_tokens=24, pad_token_id=0
    )
    return torch.no_grad()(lambda: model.generate(x, **keep))


@job
def v_muon_gpt_b8_s1024():
    import train_jobs

    model = train_jobs.GPT2(1024, 16, 12, 32000, 1024).to(DEV)
    inside = [p for n, p in model.named_parameters() if p.dim() == 2 and n.startswith("layers")]
    muon = torch.optim.Muon(inside, 0.02)
    rest = torch.optim.AdamW(
        [p for n, p in model.named_parameters() if p.dim() != 2 or not n.startswith("layers")], 1e-4
    )
    step = words(model, 8, 1024, 32000, optimizer=muon)

    def both():
        step()
        rest.step()
        rest.zero_grad()

    return both


# ---- tables, graphs, fields, games ----
@job
def v_gat_n40000_e800000():
    model, edges = models.graph_net("GATConv", 128, 32, 47, heads=8).to(DEV), ids(40000, 2, 800000)
    x, y = noise(40000, 128), ids(47, 40000)
    return train(model, lambda: F.cross_entropy(model(x, edges), y), amp=None)


@job
def v_gin_n200000_e1600000():
    model, edges = models.graph_net("GraphConv", 100, 192, 47).to(DEV), ids(200000, 2, 1600000)
    x, y = noise(200000, 100), ids(47, 200000)
    return train(model, lambda: F.cross_entropy(model(x, edges), y), amp=None)


def ranking(rows, batch, per, sparse):
    model = models.Ranking(rows, sparse=sparse).to(DEV)
    dense, label = noise(batch, 13), torch.rand(batch, device=DEV).round()
    bags, starts = [ids(n, batch * per) for n in rows], torch.arange(0, batch * per, per, device=DEV)
    loss = lambda: F.binary_cross_entropy_with_logits(model(dense, bags, starts)[:, 0], label)
    return train(model, loss, torch.optim.SGD(model.parameters(), 0.01), None)


@job
def v_ranking_b16384():
    return ranking([200000] * 16 + [5000] * 10, 16384, 4, False)


@job
def v_ranking_b8192_sparse():
    return ranking([1000000] * 16 + [5000] * 10, 8192, 1, True)


@job
def v_nerf_b4096():
    model, start, way, seen = models.Radiance().to(DEV), noise(4096, 3), noise(4096, 3), torch.rand(4096, 3, device=DEV)
    return train(model, lambda: F.mse_loss(model(start, way), seen), torch.optim.Adam(model.parameters(), 5e-4), None)


@job
def v_heat_equation_n65536():
    layers = [layer for n in range(7) for layer in (nn.Linear(2 if n == 0 else 128, 128), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(128, 1)).to(DEV)
    x, t = torch.rand(65536, 1, device=DEV, requires_grad=True), torch.rand(65536, 1, device=DEV, requires_grad=True)

    def loss():
        u = model(torch.cat([x, t], 1))
        ux, ut = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True)
        return (ut - 0.1 * uxx).square().mean() + (u - torch.sin(3.14 * x)).square().mean()

    return train(model, loss, torch.optim.Adam(model.parameters(), 1e-3), None)


@job
def v_ppo_b16384():
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
                for name, value in (
                    ("x", x),
                    ("a", action),
                    ("p", choice.log_prob(action).sum(-1)),
                    ("v", critic(x)[:, 0]),
                ):
                    rows[name].append(value)
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
                loss = (
                    loss
                    + 0.5 * (critic(x[part])[:, 0] - g[part] - v[part]).square().mean()
                    - 0.01 * choice.entropy().mean()
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(every, 0.5)
                optimizer.step()

    return step


@job
def v_shampoo_mlp_b2048():
    widths = (784, 1024, 512, 256, 10)
    layers = [layer for i, o in zip(widths, widths[1:], strict=False) for layer in (nn.Linear(i, o), nn.GELU())]
    model, x, y = nn.Sequential(*layers[:-1]).to(DEV), noise(2048, 784), ids(10, 2048)
    return train(model, lambda: F.cross_entropy(model(x), y), models.Shampoo(model.parameters()), None)


# ---- what is measured ----
def blocks_of(step):
    """Returns each block that PyTorch's allocator gave or took back in one call, libraries' workspaces among them."""
    torch.cuda.memory._record_memory_history(context=None, max_entries=400000)
    step()
    torch.cuda.synchronize()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [(one["action"], one["size"]) for one in history]


def profiled(step, calls=2):
    """Events of a trace of this many steps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    path = f"/tmp/varied.{os.getpid()}.json"
    found.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    os.unlink(path)
    return events


def totals(each):
    """Returns rows of (name, microseconds) summed by name: name, launches, microseconds in all, and of the median
    launch.
    """
    rows = defaultdict(list)
    for name, us in each:
        rows[name].append(us)
    return [[name, len(us), round(sum(us), 2), round(median(us), 3)] for name, us in rows.items()]


def segments():
    sizes = defaultdict(int)
    for one in torch.cuda.memory._snapshot()["segments"]:
        sizes[f"{one['segment_type']} {one['total_size']} stream {one['stream'] and 1}"] += 1
    return sizes


def keep(folder, name, more):
    with gzip.open(os.path.join(folder, f"{name}.json.gz"), "wt") as file:
        json.dump(more, file)


def run(name, steps, warm, detail):
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = JOBS[name]()
    first = blocks_of(step) if detail else step()
    for _ in range(warm - 1):
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
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    free = (time.perf_counter() - begin) / steps
    told = {"job": name, "world": 1, "step_s": each, "host_s": host, "free_running_step_s": free,
            "max_alloc": torch.cuda.max_memory_allocated(), "max_reserved": torch.cuda.max_memory_reserved(),
            "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}  # fmt: skip
    more = None
    if detail:
        more = told | {
            "cudnn": torch.backends.cudnn.version(),
            "segments": segments(),
            "first": first,
            "step": blocks_of(step),
        }
    return told, more, step


def main(rank=0, world=1):
    """Measures the jobs that the command line names; of several ranks, the first one tells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", default="")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--out")
    parser.add_argument("--detail", help="a folder for NAME.json.gz")
    parser.add_argument("--no-profile", action="store_true", help="with --detail: allocator's blocks alone")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(JOBS))
        return
    for name in options.jobs.split(","):
        told, more, step = run(name, options.steps, options.warm, options.detail)
        told["world"] = world
        if rank == 0:
            print("RESULT " + json.dumps(told), flush=True)
        if rank == 0 and options.out:
            with open(options.out, "a") as file:
                file.write(json.dumps(told) + "\n")
        if options.detail:
            keep(options.detail, name, more)
            if not options.no_profile:
                from profiles.timings import trace

                events = profiled(step)
                more["kernels"] = totals((e["name"], e["dur"]) for e in events if e.get("cat") in trace.DEVICE)
                keep(options.detail, name, more)
                more["works"] = totals((one.signature, one.for_us) for one in trace.works(events))
                keep(options.detail, name, more)
        del step
        gc.collect()


if __name__ == "__main__":
    main()
