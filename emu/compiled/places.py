"""Addresses that a load or a store touches, with what follows from them alone: launches often touch the same ones."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, dtype

_MOST_STRETCHES = 4096
"""Most stretches of memory that a load or a store may touch."""


class Stretch(NamedTuple):
    """A stretch of device memory."""

    address: int
    nbytes: int


class RangeElements(NamedTuple):
    """Elements that a load or a store touches in one range of memory."""

    base: Tensor
    """The CPU tensor over the range."""
    which: Tensor | None
    """The elements' numbers in the load or the store; None: it has all of them."""
    places: Tensor
    """Their places in `base`."""


class Places:
    """The addresses of a load's or a store's elements."""

    def __init__(self, addresses: Tensor, item: int) -> None:
        self.addresses = addresses
        """int64; nobody changes them."""
        self.item = item
        """The bytes of an element."""
        self.parts: dict[dtype, list[RangeElements]] = {}
        """The ranges of the device's memory that hold them, by the type of the elements, for whoever has found them."""

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest address. There must be one."""
        lowest, highest = self.addresses.aminmax()
        return int(lowest), int(highest)

    @cached_property
    def stretches(self) -> list[Stretch] | None:
        """The stretches of memory that they form; None if there are too many."""
        import torch

        addresses, item = self.addresses.reshape(-1), self.item
        if bool((addresses.diff() == item).all()):  # one behind the other, as most are
            return [Stretch(int(addresses[0]), addresses.numel() * item)]
        places = torch.unique(addresses)
        (ends,) = torch.nonzero(places.diff() != item, as_tuple=True)
        if len(ends) >= _MOST_STRETCHES:
            return None
        starts = torch.cat((places[:1], places[ends + 1])).tolist()
        stops = torch.cat((places[ends], places[-1:])).tolist()
        return [Stretch(first, last - first + item) for first, last in zip(starts, stops, strict=True)]
