"""Attention of cuDNN, a norm and a product of 8 bits by Transformer Engine, in two sizes."""

import torch
import transformer_engine.pytorch as te
from transformer_engine.common import recipe

attention = te.DotProductAttention(8, 64, attention_dropout=0.0, qkv_format="bshd", attn_mask_type="causal")
q, k, v = (torch.randn(1, 512, 8, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3))
attention(q, k, v).sum().backward()
options = {"params_dtype": torch.bfloat16, "device": "cuda"}
norm, linear = te.RMSNorm(2048, **options), te.Linear(2048, 512, bias=False, **options)
for rows in (512, 16384):
    x = torch.randn(rows, 2048, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    with te.autocast(enabled=True, recipe=recipe.Float8BlockScaling()):
        y = linear(norm(x))
    y.sum().backward()
torch.cuda.synchronize()
print("PASSED")
