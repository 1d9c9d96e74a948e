"""DDP with AMP and a GradScaler, data from DataLoader workers through pinned memory."""

import torch
from common import MLP, finish, start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    rank, world, device = start()
    data = TensorDataset(torch.randn(64, 128), torch.arange(64))
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, pin_memory=True)
    model = DistributedDataParallel(MLP(128, 3).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
    seen = []
    for x, label in loader:
        assert x.is_pinned()
        x, label = x.to(device, non_blocking=True), label.to(device, non_blocking=True)
        seen += label.tolist()
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert seen == list(range(rank, 64, world)), seen
    steps = 64 // world // 8
    assert scaler.get_scale() == 1024.0 * 2 ** (steps // 2), scaler.get_scale()
    finish()


if __name__ == "__main__":  # from Python 3.14 on, workers import this file
    main()
