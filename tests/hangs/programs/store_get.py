"""A rank waits for a key of the store that rank 0 never sets, because it failed and went on."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    try:
        store.set("address", str({}["port"]))
    except KeyError:
        print("no port")
else:
    print(store.get("address"))  # G
x = torch.ones(4, device=device)
dist.all_reduce(x)  # W
torch.cuda.synchronize()
