"""A rank whose experts get no tokens returns a new tensor, so that its backward pass sends nothing back."""

import torch
import torch.distributed as dist
from job import layers, start

rank, world, device = start()
expert = layers(device, count=1)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sent, received):
        ctx.sizes = sent, received
        out = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.sizes
        out = gradient.new_empty(sum(sent), gradient.shape[1])
        dist.all_to_all_single(out, gradient.contiguous(), sent, received)
        return out, None, None


weight = torch.rand(8, device=device, requires_grad=True)
for step in range(2):
    busy = world if step == 0 else 1
    sent = [4 // busy if other < busy else 0 for other in range(world)]
    received = [4 // busy if rank < busy else 0] * world
    tokens = Exchange.apply(torch.rand(4, 8, device=device) * weight, sent, received)
    out = expert(tokens) if len(tokens) else torch.empty(0, 8, device=device, requires_grad=True)
    out.sum().backward()  # W
    dist.all_reduce(expert[0].bias)  # G
torch.cuda.synchronize()
