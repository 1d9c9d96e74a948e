"""Context parallelism of plain torch: ring attention along `cp`, DDP along `dp`: `context_parallel.py CP`."""

import sys

import torch
from common import finish, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, TOKENS = 256, 4, 1024
rank, world, device = start()
cp = int(sys.argv[1])
mesh = init_device_mesh("cuda", (world // cp, cp), mesh_dim_names=("dp", "cp"))
torch.manual_seed(1)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        parts = self.qkv(x).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(attended.transpose(1, 2).reshape(x.shape))


model = torch.nn.Sequential(*[Attention() for _ in range(2)]).to(device, torch.bfloat16)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(3):
    x = torch.randn(2, TOKENS, WIDTH, device=device, dtype=torch.bfloat16)
    with context_parallel(mesh["cp"], buffers=[x], buffer_seq_dims=[1]):
        model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
finish()
