"""Training steps of a small language model, with operations whose kernels CUB chooses by the architecture."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 4096, 256, 4, 1024, 4  # 4,096 tokens: embeddings' backward sorts them


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


def main():
    print(f"on {torch.cuda.get_device_name()}, {torch.cuda.get_device_capability()}")
    torch.manual_seed(0)
    embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    model = nn.Sequential(embedding, Block(), Block(), nn.LayerNorm(WIDTH), head).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device="cuda")
        lengths = (tokens > 7).int().cumsum(-1)
        assert lengths[:, -1].le(LENGTH + 1).all()
        kinds, counts = tokens.unique(return_counts=True)
        assert kinds.numel() <= VOCABULARY
        assert counts.sum().item() == tokens.numel()
        assert (tokens.flatten().sort().values.diff() >= 0).all()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        likely = logits.detach().float().topk(50, -1).indices
        assert likely.shape == (BATCH, LENGTH, 50)
        logits.detach().softmax(-1).cumsum(-1), torch.bincount(tokens.flatten(), minlength=VOCABULARY)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    print("PASSED")


main()
