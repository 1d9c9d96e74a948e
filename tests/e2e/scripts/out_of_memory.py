"""More than the GPU has: PyTorch's own error, which the script may catch."""

import torch

free, total = torch.cuda.mem_get_info()
held = [torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda") for _ in range(int(free // (8 * 2**30)) - 1)]
try:
    held += [torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda") for _ in range(4)]
except torch.OutOfMemoryError as error:
    print("caught after", len(held), "blocks:", str(error).partition(".")[0], flush=True)
held.clear()
torch.cuda.empty_cache()
assert torch.cuda.mem_get_info()[0] == free
torch.empty(total, dtype=torch.uint8, device="cuda")
