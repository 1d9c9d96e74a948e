"""One rank believes that the job has three ranks and waits for the third one."""

import os

import torch.distributed as dist

rank = int(os.environ["RANK"])
world = 3 if rank == 1 else 2
dist.init_process_group("nccl", rank=rank, world_size=world)  # G
dist.barrier(device_ids=[rank])  # W
