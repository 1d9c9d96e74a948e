"""torchvision's Faster R-CNN or Mask R-CNN, whose sizes follow from data: `--data-shapes` says what they are."""

import argparse
import time

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--masks", action="store_true", help="Mask R-CNN")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--objects", type=int, default=8, help="of an image")
args = parser.parse_args()

torch.cuda.set_device(0)
torch.manual_seed(0)
models = torchvision.models.detection
make = models.maskrcnn_resnet50_fpn if args.masks else models.fasterrcnn_resnet50_fpn
model = make(weights=None, weights_backbone=None, num_classes=91).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def target() -> dict[str, torch.Tensor]:
    corner, size = torch.rand(args.objects, 2) * 400, torch.rand(args.objects, 2) * 300 + 40
    found = {"boxes": torch.cat([corner, corner + size], 1), "labels": torch.randint(1, 91, (args.objects,))}
    if args.masks:
        found["masks"] = (torch.rand(args.objects, 800, 1088) > 0.5).to(torch.uint8)
    return {name: value.cuda() for name, value in found.items()}


images = [torch.rand(3, 800, 1088, device="cuda") for _ in range(args.batch)]
targets = [target() for _ in images]
for step in range(args.steps):
    start = time.perf_counter()
    loss = sum(model(images, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"step {step + 1}  {1e3 * (time.perf_counter() - start):.1f} ms  {peak:.2f} GiB", flush=True)
