"""The random numbers that PyTorch's CUDA kernels draw: cuRAND's Philox 4x32-10, as ATen's kernels use it.

A CUDA generator is a seed and an offset. A kernel of `threads` threads draws four words of 32 bits at a time in every
thread: thread i of a launch at offset o is the subsequence i of the seed, from word o on. Which element of a tensor
gets which word follows ATen/native/cuda/DistributionTemplates.h; how words become numbers follows curand_uniform.h and
curand_normal.h. The GPU takes sines, cosines and logarithms by faster functions than the CPU, which differ in the last
bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...interpreter.hook_library import Hook

if TYPE_CHECKING:
    from torch import Generator, Tensor

BLOCK = 256
"""The number of threads of a block, in ATen's kernels for distributions."""
_TO_UNIT = 2.0**-32
_TO_UNIT_DOUBLE = 2.0**-53


@dataclass(frozen=True, slots=True)
class GeneratorState:
    seed: int
    offset: int


def state_of(generator: Generator) -> GeneratorState:
    """Returns the state of a CUDA generator, before a kernel takes its numbers."""
    import torch

    seed, offset = generator.get_state().view(torch.int64).tolist()
    return GeneratorState(seed, offset)


class Philox:
    """Draws words for one launch."""

    def __init__(self, hook: Hook, threads_at_once: int) -> None:
        """`threads_at_once`: how many threads of blocks of 256 the GPU holds: the largest grid of these kernels."""
        self._hook = hook
        self.threads_at_once = threads_at_once

    def words(self, state: GeneratorState, numel: int, unroll: int) -> tuple[Tensor, int]:
        """Returns [calls, threads, 4] words for `numel` elements, `unroll` of them a call and thread; and the number of
        threads of the launch. Threads that draw for no element are left out.
        """
        import torch

        launched = min(-(-numel // BLOCK) * BLOCK, self.threads_at_once)
        calls = -(-numel // (launched * unroll))
        threads = min(numel, launched)
        out = torch.empty((calls, threads, 4), dtype=torch.int32, device="cpu")
        self._hook.philox(state.seed, state.offset, 0, threads, calls, out.data_ptr())
        return out.to(torch.int64) & 0xFFFFFFFF, launched

    def first_words(self, state: GeneratorState, threads: int) -> Tensor:
        """Returns [threads, 4] words: what each thread draws first."""
        import torch

        out = torch.empty((threads, 4), dtype=torch.int32, device="cpu")
        self._hook.philox(state.seed, state.offset, 0, threads, 1, out.data_ptr())
        return out.to(torch.int64) & 0xFFFFFFFF

    def thread(self, state: GeneratorState, thread: int, count: int) -> list[int]:
        """Returns the first words that one thread draws."""
        import torch

        calls = -(-count // 4)
        out = torch.empty((calls, 4), dtype=torch.int32, device="cpu")
        self._hook.philox(state.seed, state.offset, thread, 1, calls, out.data_ptr())
        words: list[int] = (out.to(torch.int64) & 0xFFFFFFFF).flatten().tolist()
        return words

    def offset_after_integers(self, state: GeneratorState, numel: int) -> GeneratorState:
        """Returns the state after a kernel that draws 64 bits for each element."""
        launched = min(-(-numel // BLOCK) * BLOCK, self.threads_at_once)
        return GeneratorState(state.seed, state.offset + ((numel - 1) // (launched * 2) + 1) * 4)

    def spread(self, drawn: Tensor, numel: int) -> Tensor:
        """Puts values [calls, threads, unroll] in the order of the elements that get them."""
        calls, threads, unroll = drawn.shape
        if calls == 1 and threads == numel:
            return drawn[0, :, 0]
        return drawn.transpose(1, 2).reshape(calls * unroll * threads)[:numel]

    def windows(self, numel: int, unroll: int, first: int, last: int) -> Iterator[tuple[Philox, int]]:
        """Draws of such a launch for the elements from the first up to the last alone, one after another: each with the
        number of elements that it draws for.
        """
        threads = min(numel, self.threads_at_once, -(-numel // BLOCK) * BLOCK)
        while first < last:
            row, thread = divmod(first, threads)
            count = min(last - first, threads - thread)
            yield _Window(self._hook, self.threads_at_once, *divmod(row, unroll), thread), count
            first += count


class _Window(Philox):
    """Draws for some threads, one element each, of one call."""

    def __init__(self, hook: Hook, threads_at_once: int, call: int, place: int, thread: int) -> None:
        """`place`: which of the numbers that a thread gets from the call; `thread`: the first one."""
        super().__init__(hook, threads_at_once)
        self._call, self._place, self._thread = call, place, thread

    def words(self, state: GeneratorState, numel: int, unroll: int) -> tuple[Tensor, int]:
        import torch

        out = torch.empty((1, numel, 4), dtype=torch.int32, device="cpu")
        self._hook.philox(state.seed, state.offset + 4 * self._call, self._thread, numel, 1, out.data_ptr())
        return out.to(torch.int64) & 0xFFFFFFFF, numel

    def spread(self, drawn: Tensor, numel: int) -> Tensor:
        return drawn[0, :, self._place]


def uniform(words: Tensor) -> Tensor:
    """Returns the numbers of curand_uniform4: single precision in (0, 1]."""
    import torch

    return words.to(torch.float32) * _TO_UNIT + _TO_UNIT / 2


def uniform_double(words: Tensor) -> Tensor:
    """Returns the numbers of curand_uniform2_double: two numbers of four words, in (0, 1]."""
    import torch

    high = words[..., 0::2] ^ (words[..., 1::2] << 21)
    return high.to(torch.float64) * _TO_UNIT_DOUBLE + _TO_UNIT_DOUBLE / 2


def normal(words: Tensor) -> Tensor:
    """Returns the numbers of curand_normal4: Box-Muller, two numbers of two words."""
    import torch

    u = words[..., 0::2].to(torch.float32) * _TO_UNIT + _TO_UNIT / 2
    step = torch.tensor(2.0**-32 * 2 * math.pi, dtype=torch.float32, device="cpu")
    v = words[..., 1::2].to(torch.float32) * step + step / 2
    radius = torch.sqrt(-2.0 * torch.log(u))
    return torch.stack((torch.sin(v) * radius, torch.cos(v) * radius), -1).flatten(-2)


def normal_double(words: Tensor) -> Tensor:
    """Returns the numbers of curand_normal2_double: two numbers of four words."""
    import torch

    both = (words[..., 0::2] ^ (words[..., 1::2] << 21)).to(torch.float64)
    u = both[..., 0] * _TO_UNIT_DOUBLE + _TO_UNIT_DOUBLE / 2
    v = (both[..., 1] * (_TO_UNIT_DOUBLE * 2) + _TO_UNIT_DOUBLE) * math.pi
    radius = torch.sqrt(-2.0 * torch.log(u))
    return torch.stack((torch.sin(v) * radius, torch.cos(v) * radius), -1)
