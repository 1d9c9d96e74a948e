"""Lines that decide by values that nobody computed end in a comment that says so; all others only tell them."""

from __future__ import annotations

import contextlib
import math
import os

import numpy as np
import torch
from torch import Tensor, nn

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
LARGE = torch.ones(300, 300, device="cuda")


def loss() -> Tensor:
    return (LARGE @ LARGE).mean()


def scores() -> Tensor:
    return (LARGE @ LARGE)[:32, :10]


def told() -> None:
    print(f"loss {loss().item():.3f}")
    total, losses = 0.0, []
    for _ in range(3):
        total += loss().item()
        losses.append(loss().item())
    print("mean", total / 3, sum(losses) / len(losses), "perplexity", math.exp(min(20, loss().item())))
    if losses:
        print(losses)
    value = loss().item()
    if value is not None:
        print(f"step {1} loss {value:.2f}", str(value))
    print({"loss": loss().item()})
    array = scores().cpu()
    print(array.abs().max().item(), array.isnan().any(), np.max(array.numpy()))


def overflows() -> Tensor:
    """Finds overflows as DeepSpeed does: counted in a floating-point number, which the ranks compare as bytes."""
    count = torch.zeros([1], device="cuda")
    for _ in range(2):
        extremes = (LARGE @ LARGE).amax(), (LARGE @ LARGE).amin()
        count += torch.isfinite(extremes[0]).logical_and(torch.isfinite(extremes[1])).logical_not()
    found = count.bool().byte()
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
    return found[0]


class Stopper:
    best = 9.0
    last = 0.0

    def __call__(self, value: float) -> None:
        if value < self.best:  # decides
            self.best = value


class Trainer:
    def run(self) -> None:
        self.value = loss().item()

    def better(self) -> bool:
        return self.value < 3  # decides


class Classifier(nn.Module):
    def validation_step(self) -> float:
        correct = (scores().argmax(-1) == torch.zeros(32, dtype=torch.long, device="cuda")).sum()
        return correct.item() / 32  # decides


class Bound:
    def __init__(self, most: float) -> None:
        self.holds = most > 2.0  # decides

    def passed(self, value: float) -> bool:
        return value > 1.5  # decides


def evaluate() -> dict[str, float]:
    total = sum(loss().item() for _ in range(2))
    return {"loss": total / 2}


def main() -> None:
    torch.distributed.init_process_group("nccl")
    told()
    best, stopper = 1.0, Stopper()
    value = loss().item()
    if value < best:  # decides
        best = value
    if loss() < best:  # decides
        best = 0.0
    sorted(range(3), key=lambda i: loss().item())  # decides
    (scores() > 0.5).tolist()  # decides
    assert not math.isnan(loss().item())
    losses = [loss().item()]
    losses.append(loss().item())
    max(losses)
    if max(losses) < 3:  # decides
        best = 0.0
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([nn.Parameter(LARGE)], lr=0.1))
    scheduler.step(loss())
    scheduler.step(loss().item())
    labels = torch.zeros(32, dtype=torch.long, device="cuda")
    print((scores().argmax(-1) == labels).sum().item())  # decides
    scores().topk(3).indices.cpu()  # decides
    torch.multinomial(scores().softmax(-1), 1).tolist()  # decides
    Classifier().validation_step()
    Bound(loss().item())
    Bound(1.0).passed(loss().item())
    with contextlib.suppress(ZeroDivisionError):
        best = 1 / loss().item()  # decides
    with contextlib.suppress(ValueError):
        best = math.log10(loss().item())  # decides
    best = 1 / (loss().item() + 1e-6)
    setattr(stopper, "last", loss().item())  # noqa: B010
    if stopper.last < 1:  # decides
        best = 0.0
    if math.log(loss().item() + 1) < 1:  # decides
        best = 0.0
    assert torch.isfinite(loss())
    assert not (torch.isnan(loss()) | torch.isinf(loss()))
    assert not LARGE.matmul(LARGE).isnan().any()
    assert torch.isfinite(LARGE @ LARGE).all().item()
    assert not overflows().item()
    assert not (overflows() + 0).bool()
    if (loss() > 1) + overflows():  # decides
        pass
    while loss().item() > 1:  # decides
        pass
    [1, 2][int(loss().item())]  # decides
    stopper(loss().item())
    trainer = Trainer()
    trainer.run()
    trainer.better()
    if evaluate()["loss"] < 3:  # decides
        best = 0.0
    array = loss().cpu().numpy()
    if array < 3:  # decides
        best = 0.0
    np.argmax(scores().cpu().numpy(), -1)  # decides
    print(min(loss().item() for _ in range(2)))
    min(range(2), key=lambda _: loss().item())  # decides
    assert max(0.5, loss().item()) < 3  # decides
    torch.where(scores() > 0)[0].tolist()  # decides
    print(3.0 in loss()[None])  # decides


if __name__ == "__main__":
    main()
