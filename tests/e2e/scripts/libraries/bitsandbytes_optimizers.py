"""bitsandbytes: optimizers of 8 bits, paged ones, and weights of 4 and 8 bits. Prints bytes of optimizer state."""

import bitsandbytes as bnb
import torch
from torch import nn

model = nn.Linear(4096, 4096, bias=False, device="cuda", dtype=torch.bfloat16)
batch = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
model(batch).sum().backward()  # takes cuBLAS's workspace
model.zero_grad()
for make in (bnb.optim.AdamW8bit, bnb.optim.AdamW, bnb.optim.Lion8bit, bnb.optim.PagedAdamW8bit):
    before = torch.cuda.memory_allocated()
    optimizer = make(model.parameters(), lr=1e-3)
    for _ in range(3):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{make.__name__} {torch.cuda.memory_allocated() - before}")
    del optimizer

four = bnb.nn.Linear4bit(1024, 1024, compute_dtype=torch.bfloat16, quant_type="nf4").cuda()
out = four(torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True))
out.backward(torch.empty_like(out))
eight = bnb.nn.Linear8bitLt(1024, 1024, has_fp16_weights=False).cuda()
assert eight(torch.randn(8, 1024, device="cuda", dtype=torch.float16)).shape == (8, 1024)
torch.cuda.synchronize()
print("PASSED")
