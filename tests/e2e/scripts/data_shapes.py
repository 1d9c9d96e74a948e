"""Sizes that follow from values which nobody computes, by `--data-shapes`."""

import json
from importlib.util import find_spec

import torch

device = "cuda"
unknown = torch.randn(256, 256, device=device) @ torch.randn(256, 256, device=device)
row = iter(unknown[:, :64]).__next__
told: dict[str, object] = {}

values = row()
mask = values > 0
told["mask"] = len(values[mask])
told["settled"] = [int(mask.sum()), len(values[~mask])]
told["select"] = unknown.masked_select(unknown > 1).numel()
told["two dimensions"] = list(unknown[:8, :8].nonzero().shape)
large = unknown.nonzero()
told["large"] = [list(large.shape), large[3].tolist()]

classes, levels = row().long(), row().long()
told["classes"] = [len(torch.where(classes >= 3)[0]), len(torch.where(classes < 3)[0])]
told["levels"] = [len(torch.where(levels == level)[0]) for level in range(4)]
with torch.inference_mode():  # its tensors do not count what is written to them
    found = (unknown[0, :64] * 2).long()
    told["classes in inference mode"] = [len(torch.where(found >= 3)[0]), len(torch.where(found < 3)[0])]

distinct, inverse, counts = row().long().unique(return_inverse=True, return_counts=True)
told["unique"] = [len(distinct), len(inverse), int(counts.sum()), int(inverse.max())]
told["unique bools"] = (row() > 0).unique().numel()
told["unique rows"] = list(unknown[:32, :10].unique(dim=0).shape)
told["consecutive"] = row().unique_consecutive().numel()
told["repeat"] = torch.repeat_interleave(values, row().long()).numel()
told["stated"] = [len(torch.where(row() > 0)[0]) for _ in range(3)]  # stated


def coalesced(places: torch.Tensor) -> torch.Tensor:
    elements = torch.randn(places.size(1), 200, device=device)
    return torch.sparse_coo_tensor(places, elements, (100, 70, 200)).coalesce()


drawn = torch.randint(0, 70, (2, 9000), device=device)
found = coalesced(drawn)
told["coalesced"] = [
    found.values().size(0) == len(drawn.unique(dim=1).T),
    torch.equal(found.indices(), drawn.unique(dim=1)),
]
told["coalesced unknown"] = coalesced(unknown[:2].long()).values().size(0)

told["checks"] = [len(values[torch.isnan(row())]), len(values[torch.isfinite(row())])]
counted = row() > 0
told["counted"] = [counted.sum().item(), len(values[counted])]
written = torch.zeros(64, device=device)
written[row() > 0] = 1.0
written[row() > 0] = torch.ones(7, device=device)
known = torch.arange(9, device=device)
repeats = torch.tensor([2, 3], device=device)
told["known"] = [len(known.nonzero()), known.unique().numel(), torch.repeat_interleave(repeats).numel()]
if find_spec("torchvision") is not None:
    import torchvision

    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]], device=device)
    scores = torch.tensor([0.7, 0.8, 0.9], device=device)
    told["boxes"] = [torchvision.ops.nms(each, scores, 0.5).tolist() for each in (boxes, unknown[:3, :4])]
print(json.dumps(told), flush=True)
print(values[:3])
