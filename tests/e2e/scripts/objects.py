"""Object collectives of odd sizes: their lengths are computed on the device, their bytes travel through it."""

import torch
import torch.distributed as dist
from common import finish, start

rank, world, device = start()

mine = {"rank": rank, "text": "x" * (7919 * rank + 3), "list": list(range(rank * 17))}
everyone: list = [None] * world
dist.all_gather_object(everyone, mine)
for i, other in enumerate(everyone):
    assert other == {"rank": i, "text": "x" * (7919 * i + 3), "list": list(range(i * 17))}, (i, str(other)[:80])

sent = [{"from": rank, "blob": b"\x01\x02\x03" * 1234}, "second", 3.5] if rank == world - 1 else [None] * 3
dist.broadcast_object_list(sent, src=world - 1)
assert sent == [{"from": world - 1, "blob": b"\x01\x02\x03" * 1234}, "second", 3.5], str(sent)[:80]

gathered = [None] * world if rank == 0 else None
dist.gather_object(("r", rank), gathered, dst=0)
if rank == 0:
    assert gathered == [("r", i) for i in range(world)], gathered

received: list = [None]
dist.scatter_object_list(received, [f"for {i}" * (i + 1) for i in range(world)] if rank == 0 else None, src=0)
assert received == [f"for {rank}" * (rank + 1)], received

total = torch.tensor([rank + 1, 10 * rank], device=device)
dist.all_reduce(total)
assert total.tolist() == [world * (world + 1) // 2, 10 * world * (world - 1) // 2], total.tolist()
largest = torch.tensor(rank * 1.5, device=device)
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
assert largest.item() == 1.5 * (world - 1), largest.item()

work = dist.all_reduce(flags := torch.tensor([rank == 1, True, False], device=device).int(), async_op=True)
work.wait()
doubled = flags * 2
assert doubled.tolist() == [2, 2 * world, 0], doubled.tolist()
finish()
