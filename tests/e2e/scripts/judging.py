"""Functions that another file calls with values that nobody computed."""

from __future__ import annotations

from typing import Any


def check(v: Any, bound: Any) -> Any:
    return 1 if v < bound else 0  # decides


def show(v: Any) -> Any:
    print("v", v)


class Meter:
    def __init__(self) -> Any:
        self.all = []

    def update(self, v: Any) -> Any:
        self.all.append(v)

    @staticmethod
    def good(v: Any) -> Any:
        return v > 2 and 1  # decides

    @classmethod
    def of(cls, v: Any) -> Any:
        return "big" if v > 3 else "small"  # decides


class AverageMeter:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def add(self, v: Any) -> Any:
        self.sum += v
        self.count += 1

    def mean(self) -> Any:
        return self.sum / self.count


class Stopper:
    best: Any = None

    def step(self, v: Any) -> Any:
        if self.best is None or v < self.best:  # decides
            self.best = v
