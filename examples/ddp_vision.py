"""A residual network on images, with DistributedDataParallel, mixed precision and a DataLoader. Plain PyTorch.

phantora-async run -n 4 examples/ddp_vision.py
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Images(Dataset[tuple[Tensor, int]]):
    """Stands for files: 224 x 224 pixels, 1,000 classes."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3, 224, 224), index / len(self)), index % 1000


class Block(nn.Module):
    """Two convolutions and a shortcut, as in ResNet-18 and ResNet-34."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def network() -> nn.Sequential:
    """As ResNet-34."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for outputs, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for place in range(blocks):
            layers.append(Block(width, outputs, 2 if place == 0 and outputs > 64 else 1))
            width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64, help="images per GPU and step (default 64)")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    images = Images()
    loader = DataLoader(images, args.batch, sampler=DistributedSampler(images), num_workers=2, pin_memory=True)
    model = DistributedDataParallel(network().cuda().to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    last = time.perf_counter()
    for step, (pixels, labels) in enumerate(loader, start=1):
        pixels = pixels.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(pixels), labels.cuda(non_blocking=True))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            now = time.perf_counter()
            rate = args.batch * dist.get_world_size() / (now - last)
            print(f"step {step}/{args.steps}  {rate:.0f} images/s", flush=True)
            last = now
        if step == args.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
