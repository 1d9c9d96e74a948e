"""The distributions of PyTorch's CUDA kernels: from words of Philox to the numbers that a kernel writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .philox import GeneratorState, Philox, normal, normal_double, uniform, uniform_double

if TYPE_CHECKING:
    from torch import Tensor

Given = Callable[[int, str, Any], Any]
"""`given(place, name, default)`: an argument of the call, whose places are counted after the output."""
Draw = Callable[["Distributions", GeneratorState, "Output", Given], "Tensor"]
"""`draw(distributions, state, output, given)` returns what the kernel writes to `output`, one number for each element
in the order of memory.
"""


class Output(NamedTuple):
    """The properties of a tensor that is to be filled. The tensor itself must not live longer than on a GPU."""

    numel: int
    dtype: Any


class Distributions:
    """Draws numbers for the elements of an output."""

    def __init__(self, philox: Philox) -> None:
        self._philox = philox

    @property
    def threads_at_once(self) -> int:
        return self._philox.threads_at_once

    def parts(self, state: GeneratorState, output: Output) -> Iterator[tuple[GeneratorState, Output, int]]:
        """A large output in pieces that can be drawn one by one: the state, what is drawn then, and how many of these
        numbers count. Not for `between` and the like of 64 bits.
        """
        each = self._philox.threads_at_once * 4
        if output.numel <= each:
            yield state, output, output.numel
            return
        words = each // self._philox.threads_at_once // (2 if self._wide(output) else 4) * 4
        for i in range(-(-output.numel // each)):
            yield (
                GeneratorState(state.seed, state.offset + i * words),
                Output(each, output.dtype),
                min(each, output.numel - i * each),
            )

    def some(
        self, draw: Draw, state: GeneratorState, output: Output, given: Given, first: int, last: int
    ) -> Iterator[Tensor]:
        """Yields, one after another, the numbers that `draw` makes for the elements from the first up to the last of a
        piece.
        """
        for philox, count in self._philox.windows(output.numel, 2 if self._wide(output) else 4, first, last):
            yield draw(Distributions(philox), state, Output(count, output.dtype), given)

    def _wide(self, output: Output) -> bool:
        """Tells whether the kernel draws in double precision."""
        import torch

        return output.dtype is torch.float64

    def unit(self, state: GeneratorState, output: Output) -> Tensor:
        wide, numel = self._wide(output), output.numel
        words, _ = self._philox.words(state, numel, 2 if wide else 4)
        return self._philox.spread((uniform_double if wide else uniform)(words), numel)

    def gaussian(self, state: GeneratorState, output: Output) -> Tensor:
        wide, numel = self._wide(output), output.numel
        words, _ = self._philox.words(state, numel, 2 if wide else 4)
        return self._philox.spread((normal_double if wide else normal)(words), numel)

    def integers(self, state: GeneratorState, numel: int, wide: bool) -> Tensor:
        """Returns words of 32 or 64 bits; those of 64 as signed integers."""
        words, _ = self._philox.words(state, numel, 2 if wide else 4)
        return self._philox.spread(words[..., 0::2] << 32 | words[..., 1::2] if wide else words, numel)

    def between(self, state: GeneratorState, numel: int, low: int, high: int) -> Tensor:
        """Returns integers from low to high - 1, as `random_` draws them."""
        span = high - low
        wide = span >= 1 << 28
        words = self.integers(state, numel, wide)
        return (_unsigned_remainder(words, span) if wide else words % span) + low

    def after_integers(self, state: GeneratorState, numel: int) -> GeneratorState:
        """Returns the generator's state after `between` of a wide range."""
        return self._philox.offset_after_integers(state, numel)

    def thread(self, state: GeneratorState, thread: int, count: int) -> list[int]:
        """Returns the first words of one thread."""
        return self._philox.thread(state, thread, count)

    def groups(self, state: GeneratorState, threads: int) -> Tensor:
        """Returns the first four uniform numbers of each of so many threads, however many the GPU holds at once."""
        return uniform(self._philox.first_words(state, threads))


def _scaled(drawn: Tensor, factor: float, addend: float) -> Tensor:
    """Returns `drawn * factor + addend` as the GPU computes it: rounded once. For single precision alone: a product of
    two such numbers is exact in double precision.
    """
    import torch

    if drawn.dtype is not torch.float32:
        return drawn * factor + addend
    return drawn.double().mul_(factor).add_(addend).to(torch.float32)


def _uniform(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    import torch

    low, high = (
        torch.tensor(float(given(place, name, default)), dtype=output.dtype, device="cpu")
        for place, name, default in ((0, "from", 0.0), (1, "to", 1.0))
    )
    value = _scaled(d.unit(state, output), float(high - low), float(low)).to(output.dtype)
    value[value == high] = low  # the kernel turns (0, 1] into [0, 1)
    return value


def _normal(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    mean, std = float(given(0, "mean", 0.0)), float(given(1, "std", 1.0))
    wide = output.dtype.itemsize == 8
    return _scaled(d.gaussian(state, output), std if wide else _single(std), mean if wide else _single(mean))


def _single(value: float) -> float:
    """Returns the value rounded to single precision, as a kernel gets it."""
    import torch

    return float(torch.tensor(value, dtype=torch.float32, device="cpu"))


def _log_normal(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    mean, std = float(given(0, "mean", 1.0)), float(given(1, "std", 2.0))
    return (d.gaussian(state, output) * std + mean).exp()


def _exponential(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    import torch

    rate, unit = float(given(0, "lambd", 1.0)), d.unit(state, output)
    half = torch.finfo(unit.dtype).eps / 2  # the logarithm of 1 would be 0, which the distribution excludes
    return torch.where(unit >= 1 - half, unit.new_full((), -half, device="cpu"), unit.log()) * (-1.0 / rate)


def _cauchy(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    import torch

    median, sigma = float(given(0, "median", 0.0)), float(given(1, "sigma", 1.0))
    unit = d.unit(state, output)
    eps = torch.finfo(unit.dtype).eps
    return torch.tan((unit.clamp(eps, 1 - eps) - 0.5) * math.pi) * sigma + median


def _geometric(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    p = float(given(0, "p", 0.5))
    return (d.unit(state, output).log() / math.log1p(-p)).ceil()


def _bernoulli(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    return d.unit(state, output) < float(given(0, "p", 0.5))


def _unsigned_remainder(words: Tensor, divisor: int) -> Tensor:
    if divisor >= 1 << 63:
        return words
    return ((words >> 1 & 0x7FFFFFFFFFFFFFFF) % divisor * 2 + (words & 1)) % divisor


def _random(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    """Draws for `random_` without bounds: all values of an integer, or all integers that a float represents exactly."""
    import torch

    if output.dtype is torch.bool:
        return d.integers(state, output.numel, False) & 1
    if output.dtype.is_floating_point:
        digits = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[output.dtype]
        return d.integers(state, output.numel, output.dtype is torch.float64) % ((1 << digits) + 1)
    limit = torch.iinfo(output.dtype).max
    if output.dtype is torch.int64:
        return d.integers(state, output.numel, True) & limit
    return d.integers(state, output.numel, False) % (limit + 1)


def _random_to(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    return d.between(state, output.numel, 0, int(given(0, "to", 1)))


def _random_from(d: Distributions, state: GeneratorState, output: Output, given: Given) -> Tensor:
    low, high = int(given(0, "from", 0)), given(1, "to", None)
    if high is None:
        raise NotImplementedError
    return d.between(state, output.numel, low, int(high))


IN_PLACE: dict[str, Draw] = {
    "aten::uniform_": _uniform,
    "aten::normal_": _normal,
    "aten::log_normal_": _log_normal,
    "aten::exponential_": _exponential,
    "aten::cauchy_": _cauchy,
    "aten::geometric_": _geometric,
    "aten::bernoulli_.float": _bernoulli,
    "aten::random_": _random,
    "aten::random_.to": _random_to,
    "aten::random_.from": _random_from,
}
"""For each operation that fills the tensor that it gets, by its name: how its numbers are drawn."""

AT_ANY_SIZE = frozenset(
    f"aten::{name}"
    for name in ["uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "bernoulli_.float"]
)
"""Names of operations that may be drawn in `parts`: their kernels draw 64 bits for double precision alone."""
