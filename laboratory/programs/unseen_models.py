"""The models and loops of unseen_jobs.py that no library has."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

DEV = "cuda"


# ---- language ----
class RaggedLayer(nn.Module):
    """A layer over sequences of several lengths without padding: nested tensors of the jagged layout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.all(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class Ragged(nn.Module):
    def __init__(self, words, width, layers, heads):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(RaggedLayer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def loss(self, words):
        h = torch.nested.nested_tensor_from_jagged(*self.joined([w[:-1] for w in words]))
        h = self.tokens(h)
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(self.head(self.norm(h).values()).float(), torch.cat([w[1:] for w in words]))

    def joined(self, words):
        ends = torch.tensor([0, *(len(w) for w in words)], device=DEV).cumsum(0)
        return torch.cat(words), ends


def trainer(name, config, batch, length):
    """The inner loop of transformers' Trainer, with its own data loader, accelerator, scheduler and optimizer."""
    import transformers

    class Words(torch.utils.data.Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, at):
            words = torch.randint(25000, (length,), generator=torch.Generator().manual_seed(at))
            return {"input_ids": words, "labels": words}

    model = getattr(transformers, name)(getattr(transformers, config)())
    args = transformers.TrainingArguments(
        output_dir=f"/tmp/trainer.{os.getpid()}", per_device_train_batch_size=batch, bf16=True, report_to=[],
        max_steps=1000, dataloader_num_workers=2, optim="adamw_torch_fused",
    )  # fmt: skip
    made = transformers.Trainer(model=model, args=args, train_dataset=Words())
    loader = made.get_train_dataloader()
    made.create_optimizer_and_scheduler(1000)
    model, optimizer = made.accelerator.prepare(made.model, made.optimizer)
    made.model_wrapped, made.current_gradient_accumulation_steps = model, 1
    batches = iter(loader)

    def step():
        made.training_step(model, next(batches))
        made.accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        made.lr_scheduler.step()
        model.zero_grad()

    return step


# ---- pictures, sounds ----
def own_teacher(batch):
    """A student that sees two large and six small crops, and a teacher that follows it and sees the large ones."""
    import torchvision

    def made():
        model = torchvision.models.vit_b_16(weights=None)
        model.heads = nn.Sequential(
            nn.Linear(768, 2048), nn.GELU(), nn.Linear(2048, 256), nn.Linear(256, 16384, bias=False)
        )
        return model.to(DEV)

    def seen(model, x):
        if x.shape[-1] == 224:
            return model(x)
        x = model.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat((model.class_token.expand(len(x), -1, -1), x), 1)
        places = F.interpolate(
            model.encoder.pos_embedding[:, 1:].transpose(1, 2).unflatten(2, (14, 14)), (6, 6), mode="bicubic"
        )
        x = x + torch.cat((model.encoder.pos_embedding[:, :1], places.flatten(2).transpose(1, 2)), 1)
        return model.heads(model.encoder.ln(model.encoder.layers(x))[:, 0])

    student, teacher = made(), made().requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-4, fused=True)
    large = [torch.randn(batch, 3, 224, 224, device=DEV) for _ in range(2)]
    small = [torch.randn(batch, 3, 96, 96, device=DEV) for _ in range(6)]
    center = torch.zeros(1, 16384, device=DEV)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            with torch.no_grad():
                aims = [((teacher(x).float() - center) / 0.04).softmax(-1) for x in large]
            outs = [seen(student, torch.cat(x)).float().chunk(len(x)) for x in (large, small)]
            outs = [o for part in outs for o in part]
            pairs = [(a, o) for i, a in enumerate(aims) for j, o in enumerate(outs) if i != j]
            loss = sum(-(a * (o / 0.1).log_softmax(-1)).sum(-1).mean() for a, o in pairs) / len(pairs)
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            center.mul_(0.9).add_(0.1 * torch.cat(aims).mean(0, keepdim=True))
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.004)

    return step


class StateSpace(nn.Module):
    """A long convolution by FFT, its kernel made from states (diagonal), then a gate."""

    def __init__(self, width, length, states=32):
        super().__init__()
        self.length = length
        self.rate = nn.Parameter(torch.rand(width) * -4)
        self.decay, self.turn = nn.Parameter(torch.zeros(width, states)), nn.Parameter(torch.rand(width, states) * 3)
        self.weight = nn.Parameter(torch.randn(width, states, 2))
        self.skip, self.mix, self.norm = (
            nn.Parameter(torch.ones(width)),
            nn.Linear(width, 2 * width),
            nn.LayerNorm(width),
        )

    def forward(self, x):
        h = self.norm(x).transpose(1, 2)
        states = torch.complex(-self.decay.exp(), self.turn) * self.rate.exp()[:, None]
        powers = (states[..., None] * torch.arange(self.length, device=x.device)).exp()
        kernel = 2 * torch.einsum("hn,hnl->hl", torch.view_as_complex(self.weight), powers).real
        size = 2 * self.length
        y = torch.fft.irfft(torch.fft.rfft(h, n=size) * torch.fft.rfft(kernel, n=size), n=size)[..., : self.length]
        y = F.gelu(y + h * self.skip[:, None]).transpose(1, 2)
        return x + F.glu(self.mix(y), -1)


class Convolved(nn.Module):
    def __init__(self, width, layers, length):
        super().__init__()
        self.first, self.last = nn.Linear(1, width), nn.Linear(width, 10)
        self.layers = nn.Sequential(*(StateSpace(width, length) for _ in range(layers)))

    def forward(self, x):
        return self.last(self.layers(self.first(x)).mean(1))


class Speaker(nn.Module):
    """Words by a convolution and an LSTM, frames one after the other by two LSTM cells with attention."""

    def __init__(self, frames, width):
        super().__init__()
        self.words = nn.Embedding(70, width)
        self.near = nn.Sequential(
            *(m for _ in range(3) for m in (nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU()))
        )
        self.both = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.before = nn.Sequential(
            nn.Linear(frames, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.5)
        )
        self.attend, self.speak = nn.LSTMCell(256 + width, 2 * width), nn.LSTMCell(3 * width, 2 * width)
        self.ask, self.key, self.score = nn.Linear(2 * width, 128, bias=False), nn.Linear(width, 128), nn.Linear(128, 1)
        self.out = nn.Linear(3 * width, frames)

    def forward(self, words, frames):
        memory, _ = self.both(self.near(self.words(words).transpose(1, 2)).transpose(1, 2))
        keys, batch = self.key(memory), len(words)
        a = s = None
        seen = memory.new_zeros(batch, memory.shape[-1])
        outs, given = [], self.before(torch.cat((frames.new_zeros(1, *frames.shape[1:]), frames[:-1])))
        for one in given:
            a = self.attend(torch.cat((one, seen), -1), a)
            share = self.score(torch.tanh(keys + self.ask(a[0])[:, None])).squeeze(-1).softmax(-1)
            seen = torch.bmm(share[:, None], memory).squeeze(1)
            s = self.speak(torch.cat((a[0], seen), -1), s)
            outs.append(self.out(torch.cat((s[0], seen), -1)))
        return torch.stack(outs)


# ---- points, tables, graphs, second derivatives ----
def farthest(x, count):
    """Returns `count` indices of points of x (batch, points, 3), each the farthest from those before it."""
    batch, n, _ = x.shape
    found = torch.zeros(batch, count, dtype=torch.long, device=x.device)
    far, at, rows = torch.full((batch, n), 1e10, device=x.device), found[:, 0], torch.arange(batch, device=x.device)
    for i in range(count):
        found[:, i] = at
        far = torch.minimum(far, (x - x[rows, at][:, None]).square().sum(-1))
        at = far.argmax(-1)
    return found


class Abstraction(nn.Module):
    def __init__(self, count, near, widths):
        super().__init__()
        self.count, self.near = count, near
        self.layers = nn.Sequential(
            *(
                m
                for i, o in zip(widths, widths[1:], strict=False)
                for m in (nn.Conv2d(i, o, 1), nn.BatchNorm2d(o), nn.ReLU())
            )
        )

    def forward(self, x, features):
        rows = torch.arange(len(x), device=x.device)[:, None]
        with torch.no_grad():
            centers = x[rows, farthest(x, self.count)]
            near = torch.cdist(centers, x).topk(self.near, largest=False).indices
        rows = rows[..., None]
        grouped = x[rows, near] - centers[:, :, None]
        if features is not None:
            grouped = torch.cat((grouped, features[rows, near]), -1)
        return centers, self.layers(grouped.permute(0, 3, 2, 1)).amax(2).transpose(1, 2)


class Points(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first, self.second = Abstraction(512, 32, (3, 64, 64, 128)), Abstraction(128, 64, (131, 128, 128, 256))
        self.last = nn.Sequential(nn.Linear(259, 512), nn.ReLU(), nn.Linear(512, 1024))
        self.head = nn.Sequential(
            nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.4), nn.Linear(512, classes)
        )

    def forward(self, x):
        x, features = self.second(*self.first(x, None))
        return self.head(self.last(torch.cat((x, features), -1)).amax(1))


def factored(batch):
    """Natural gradients by Kronecker factors (KFAC) of a small network: running factors, inverted each tenth step."""
    widths = (784, 1000, 500, 250, 10)
    layers = [nn.Linear(i, o) for i, o in zip(widths, widths[1:], strict=False)]
    model = nn.Sequential(*(m for layer in layers for m in (layer, nn.ReLU()))).to(DEV)
    x, y = torch.randn(batch, 784, device=DEV), torch.randint(10, (batch,), device=DEV)
    ins = {m: torch.eye(m.in_features, device=DEV) for m in layers}
    outs = {m: torch.eye(m.out_features, device=DEV) for m in layers}
    inverse, count = {}, [0]

    def forward(m, args):
        ins[m].mul_(0.95).add_(args[0].detach().T @ args[0].detach(), alpha=0.05 / batch)

    def backward(m, _, grads):
        outs[m].mul_(0.95).add_(grads[0].T @ grads[0], alpha=0.05 * batch)

    for m in layers:
        m.register_forward_pre_hook(forward)
        m.register_full_backward_hook(backward)

    def step():
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for m in layers:
                if count[0] % 10 == 0 or m not in inverse:
                    inverse[m] = [
                        torch.cholesky_inverse(torch.linalg.cholesky(f[m] + 0.1 * torch.eye(len(f[m]), device=DEV)))
                        for f in (ins, outs)
                    ]
                a, g = inverse[m]
                m.weight -= 0.01 * g @ m.weight.grad @ a
                m.bias -= 0.01 * g @ m.bias.grad
        count[0] += 1

    return step


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x.abs() <= 127 * scale)
        return (x / scale).round().clamp(-127, 127) * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


class RoundedConv(nn.Conv2d):
    def forward(self, x):
        weight = Rounded.apply(self.weight, self.weight.detach().abs().amax((1, 2, 3), True) / 127)
        return self._conv_forward(Rounded.apply(x, x.detach().abs().amax() / 127), weight, self.bias)


def rounded_resnet():
    import torchvision

    model = torchvision.models.resnet18(weights=None)
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            m.__class__ = RoundedConv
    return model


class Clicks(nn.Module):
    """A causal model of which item comes next, against four sampled others (SASRec)."""

    def __init__(self, items, width, layers, length):
        super().__init__()
        self.items, self.places = nn.Embedding(items, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.2, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)

    def loss(self, x, others):
        length = x.shape[1] - 1
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
        h = self.layers(self.items(x[:, :-1]) + self.places.weight, mask=mask, is_causal=True)
        good = (h * self.items(x[:, 1:])).sum(-1, keepdim=True)
        bad = torch.einsum("blw,blnw->bln", h, self.items(others))
        return F.cross_entropy(torch.cat((good, bad), -1).flatten(0, 1).float(), x.new_zeros(x.shape[0] * length))


class Spread(nn.Module):
    """A graph network whose neighbours' sum is a product with a sparse matrix (CSR)."""

    def __init__(self, inputs, width, classes, layers, nodes, edges):
        super().__init__()
        ends = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
        matrix = torch.sparse_coo_tensor(ends, torch.ones(edges), (nodes, nodes)).coalesce()
        self.register_buffer("forth", matrix.to_sparse_csr())
        self.register_buffer("back", matrix.t().coalesce().to_sparse_csr())
        widths = [inputs] + [width] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:], strict=False))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = Summed.apply(layer(x), self.forth, self.back)
            if i + 1 < len(self.layers):
                x = F.dropout(F.relu(x), 0.5)
        return x


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forth, back):
        ctx.back = back
        return forth @ x

    @staticmethod
    def backward(ctx, grad):
        return ctx.back @ grad, None, None


# ---- two GPUs ----
def around(x, rank, ranks):
    """Returns what the rank before sends while this one sends `x` to the next."""
    got = torch.empty_like(x)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got


class Ring(torch.autograd.Function):
    """Attention over a ring: keys and values travel, results are joined by their log-sum-exp (not causal)."""

    @staticmethod
    def forward(ctx, q, k, v, rank, ranks):
        kv, out, lse = torch.stack((k, v)), None, None
        for turn in range(ranks):
            o, l, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, kv[0], kv[1])
            if out is None:
                out, lse = o.float(), l
            else:
                both = torch.logaddexp(lse, l)
                out = out * (lse - both).exp()[..., None] + o * (l - both).exp()[..., None]
                lse = both
            if turn + 1 < ranks:
                kv = around(kv, rank, ranks)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.place = rank, ranks
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        rank, ranks = ctx.place
        kv, whole, dq = torch.stack((k, v)), torch.zeros(2, *k.shape, device=k.device), 0
        none = torch.zeros(2, dtype=torch.uint64, device=q.device)
        for _ in range(ranks):
            q_grad, k_grad, v_grad = torch.ops.aten._scaled_dot_product_flash_attention_backward(
                grad.contiguous(),
                q,
                kv[0],
                kv[1],
                out,
                lse,
                None,
                None,
                q.shape[2],
                k.shape[2],
                0.0,
                False,
                none,
                none[0],
            )
            dq = dq + q_grad.float()
            whole[0] += k_grad
            whole[1] += v_grad
            kv, whole = around(kv, rank, ranks), around(whole, rank, ranks)
        return dq.to(q.dtype), whole[0].to(k.dtype), whole[1].to(k.dtype), None, None


class Exchange(torch.autograd.Function):
    """All-to-all that gives each rank all tokens of some heads, or back."""

    @staticmethod
    def forward(ctx, x, ranks, split, joined):
        ctx.way = ranks, split, joined
        parts = [p.contiguous() for p in x.chunk(ranks, split)]
        got = [torch.empty_like(p) for p in parts]
        dist.all_to_all(got, parts)
        return torch.cat(got, joined)

    @staticmethod
    def backward(ctx, grad):
        ranks, split, joined = ctx.way
        return Exchange.apply(grad, ranks, joined, split), None, None, None


class Piece(nn.Module):
    """A GPT over a piece of the sequence; `attend` is how the pieces see each other."""

    def __init__(self, words, width, layers, heads):
        super().__init__()
        self.tokens, self.heads = nn.Embedding(words, width), heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * layers + 1))
        self.all = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.ffns = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x):
        h = self.tokens(x[:, :-1])
        for i, (every, out, ffn) in enumerate(zip(self.all, self.outs, self.ffns, strict=True)):
            q, k, v = (
                p.unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous()
                for p in every(self.norms[2 * i](h)).chunk(3, -1)
            )
            h = h + out(self.attend(q, k, v).transpose(1, 2).flatten(2))
            h = h + ffn(self.norms[2 * i + 1](h))
        return F.cross_entropy(self.head(self.norms[-1](h)).flatten(0, 1).float(), x[:, 1:].flatten())


class Ringed(Piece):
    def __init__(self, words, width, layers, heads, rank, ranks):
        super().__init__(words, width, layers, heads)
        self.place = rank, ranks

    def attend(self, q, k, v):
        return Ring.apply(q.bfloat16(), k.bfloat16(), v.bfloat16(), *self.place)


class Exchanged(Piece):
    def __init__(self, words, width, layers, heads, ranks):
        super().__init__(words, width, layers, heads)
        self.ranks = ranks

    def attend(self, q, k, v):
        q, k, v = (Exchange.apply(p, self.ranks, 1, 2) for p in (q, k, v))
        return Exchange.apply(F.scaled_dot_product_attention(q, k, v, is_causal=True), self.ranks, 2, 1)


def fully_sharded_t5(batch, length):
    """FSDP's first form: flat parameters, mixed precision, one unit for each block."""
    import functools

    import transformers
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.t5.modeling_t5 import T5Block

    config = transformers.T5Config(
        d_model=1024, d_ff=2816, d_kv=64, num_layers=16, num_heads=16, feed_forward_proj="gated-gelu",
        decoder_start_token_id=0, use_cache=False, tie_word_embeddings=False,
    )  # fmt: skip
    model = FullyShardedDataParallel(
        transformers.T5ForConditionalGeneration(config), device_id=torch.cuda.current_device(),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block}),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x, y = (torch.randint(32000, (batch, n), device=DEV) for n in (length, length // 2))

    def step():
        model(input_ids=x, labels=y).loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def reduced_by_hooks(model, loss_of, ranks):
    """Data parallelism by hand: a hook of each parameter starts its all-reduce, the step waits for all."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    works = []

    def reduce(p):
        p.grad.div_(ranks)
        works.append(dist.all_reduce(p.grad, async_op=True))

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(reduce)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of()
        loss.backward()
        for work in works:
            work.wait()
        works.clear()
        optimizer.step()
        optimizer.zero_grad()

    return step


class ChosenExperts(nn.Module):
    """Two experts of each token; tokens travel to the ranks of their experts, as many as were chosen."""

    def __init__(self, width, experts, rank, ranks):
        super().__init__()
        self.experts, self.ranks, self.mine = experts, ranks, experts // ranks
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.ParameterList(nn.Parameter(torch.randn(width, 2 * width) * 0.02) for _ in range(self.mine))
        self.down = nn.ParameterList(nn.Parameter(torch.randn(2 * width, width) * 0.02) for _ in range(self.mine))

    def forward(self, x):
        from torch.distributed.nn.functional import all_to_all_single

        tokens = x.flatten(0, 1)
        weight, chosen = self.gate(tokens).float().softmax(-1).topk(2, -1)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=self.experts)
        others = torch.empty_like(counts)
        dist.all_to_all_single(others, counts)
        send, get = counts.view(self.ranks, -1).sum(1).tolist(), others.view(self.ranks, -1).tolist()
        rows = tokens[order // 2]
        got = all_to_all_single(rows.new_empty(sum(map(sum, get)), rows.shape[1]), rows, [sum(g) for g in get], send)
        parts = got.split([n for g in get for n in g])
        outs = [None] * len(parts)
        for e in range(self.mine):
            places = range(e, len(parts), self.mine)
            mine = F.gelu(torch.cat([parts[i] for i in places]) @ self.up[e].to(got.dtype)) @ self.down[e].to(got.dtype)
            for i, one in zip(places, mine.split([len(parts[i]) for i in places]), strict=True):
                outs[i] = one
        out = torch.cat(outs)
        back = all_to_all_single(out.new_empty(len(rows), rows.shape[1]), out, send, [sum(g) for g in get])
        back = back * weight.flatten()[order][:, None].to(back.dtype)
        return torch.zeros_like(tokens).index_add(0, order // 2, back.to(tokens.dtype)).view_as(x)


class Mixed(nn.Module):
    def __init__(self, words, width, layers, heads, experts, rank, ranks):
        super().__init__()
        self.tokens, self.heads = nn.Embedding(words, width), heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * layers + 1))
        self.all = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.experts = nn.ModuleList(ChosenExperts(width, experts, rank, ranks) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def loss(self, x):
        h = self.tokens(x[:, :-1])
        for i, (every, out, experts) in enumerate(zip(self.all, self.outs, self.experts, strict=True)):
            q, k, v = (
                p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in every(self.norms[2 * i](h)).chunk(3, -1)
            )
            h = h + out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            h = h + experts(self.norms[2 * i + 1](h))
        return F.cross_entropy(self.head(self.norms[-1](h)).flatten(0, 1).float(), x[:, 1:].flatten())


def apart(model, loss_of):
    """Experts belong to one rank, everything else is averaged in one flat all-reduce after the backward pass."""
    shared = [p for n, p in model.named_parameters() if ".up." not in n and ".down." not in n]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of()
        loss.backward()
        flat = torch._utils._flatten_dense_tensors([p.grad for p in shared])
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        for p, g in zip(shared, torch._utils._unflatten_dense_tensors(flat, shared), strict=True):
            p.grad.copy_(g)
        optimizer.step()
        optimizer.zero_grad()

    return step


def stepped_in_backward(model, loss_of):
    """DDP whose optimizer takes each parameter's step as soon as its bucket is reduced."""
    from torch.distributed.optim import _apply_optimizer_in_backward

    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.01})
    made = nn.parallel.DistributedDataParallel(
        model, device_ids=[torch.cuda.current_device()], gradient_as_bucket_view=True
    )

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(made)
        loss.backward()

    return step
