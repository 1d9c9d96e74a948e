"""Launches of Triton's kernels: the hook calls before and after what a kernel stores to becomes unknown."""

from __future__ import annotations

import functools
import re
import threading
from typing import TYPE_CHECKING

from ..control.control_tensors import KNOWN, ControlTensors
from ..control.host_views import HostViews
from ..formats.ttir import Program, read_program
from ..interpreter.hook_library import Hook
from .evaluation import Evaluator, Stores
from .integer_stores import NotEvaluated, TooLong, parameters_of, stores_integers
from .operations import dtype_of
from .places import Places, RangeElements, Stretch
from .steps import MemoryReader, Store

if TYPE_CHECKING:
    from torch import Tensor, dtype

_STORES_INTEGERS = re.compile(r"tt\.store [^|]*!tt\.ptr<i\d+>")
"""Matches programs that store integers: most programs do not, and need not be read."""
_NOTHING_KNOWN = Stores([], are_all=False)


class CompiledKernels:
    """The kernels of one process whose integers are computed."""

    def __init__(self, hook: Hook, control: ControlTensors) -> None:
        self._hook, self._control = hook, control
        self._views = HostViews(hook)
        self._evaluator = Evaluator(MemoryReader(self._read))
        self._programs: dict[str, int] = {}
        self._numbered: list[Program] = []
        self._too_long: set[tuple[int, tuple[int, int, int]]] = set()
        """Programs, each with a grid, whose evaluation took too long: they are not evaluated again."""
        self._waiting = threading.local()
        hook.compute_programs(self._before, self._after)

    def number(self, text: str) -> int:
        """Returns the number of a program that is evaluated at its launches; 0 if there is nothing to compute."""
        if text not in self._programs:
            self._programs[text] = 0
            if not _STORES_INTEGERS.search(text):
                return 0
            try:
                program = read_program(text)
                parameters_of(program)
            except (NotEvaluated, IndexError, ValueError):
                return 0
            if stores_integers(program, self._evaluator.evaluated):
                self._numbered.append(program)
                self._programs[text] = len(self._numbered)
        return self._programs[text]

    def layout(self, number: int) -> str:
        """A character for each parameter: how many bytes it has."""
        parameters = parameters_of(self._numbered[number - 1])
        return "".join("8" if kind.is_pointer else _NBYTES.get(kind.element, "4") for _, kind in parameters)

    def _before(self, number: int, values: list[int]) -> bool:
        """Evaluates the program. `values`: the grid, then the parameters. Says whether it is known where it stores."""
        self._waiting.stores = []
        if self._control.capturing():
            return False
        stores, are_all = self._control.unrecorded(functools.partial(self._touched, number, values))
        self._waiting.stores = stores
        return bool(are_all)

    def _touched(self, number: int, values: list[int]) -> tuple[list[tuple[Store, list[Stretch]]], bool]:
        """Returns the stores with the memory that they touch, and whether these are all."""
        stores = self._evaluated(number, values)
        found = [(one, touched) for one in stores.found if (touched := one.places.stretches) is not None]
        return found, stores.are_all and len(found) == len(stores.found)

    def _evaluated(self, number: int, values: list[int]) -> Stores:
        grid = values[0], values[1], values[2]
        if (number, grid) in self._too_long:
            return _NOTHING_KNOWN
        try:
            stores = self._evaluator.stores(self._numbered[number - 1], grid, values[3:])
        except TooLong:
            self._too_long.add((number, grid))
            return _NOTHING_KNOWN
        except (NotEvaluated, RuntimeError, IndexError, KeyError, TypeError, ValueError):
            return _NOTHING_KNOWN  # what it stores stays unknown
        return stores

    def _after(self) -> None:
        for store, stretches in self._waiting.stores:
            self._control.unrecorded(functools.partial(self._write, store, stretches))
        self._waiting.stores = []

    # ---- memory ----------------------------------------------------------------------------------------------------
    def _read(self, places: Places, element: str) -> Tensor | None:
        addresses, dtype = places.addresses, dtype_of(element)
        if not addresses.numel():
            return addresses.new_empty(addresses.shape, dtype=dtype)
        if not self._is_known(places):
            return None
        parts = self._parts(places, dtype)
        if parts is None:
            return None
        if parts[0].which is None:
            return parts[0].base[parts[0].places]
        values = addresses.new_empty(addresses.numel(), dtype=dtype)
        for part in parts:
            values[part.which] = part.base[part.places]
        return values.view(addresses.shape)

    def _parts(self, places: Places, dtype: dtype) -> list[RangeElements] | None:
        """Returns the addresses by the range of memory that they are in, the device's or one of pinned memory; None if
        one is in no range. The device's range stays where it is.
        """
        import torch

        known = places.parts.get(dtype)
        if known is not None:
            return known
        addresses, (first, last) = places.addresses, places.bounds
        whole = self._views.range_of(first, dtype)
        if whole is not None and (inside := whole.places(addresses, last)) is not None:
            parts = [RangeElements(whole.base, None, inside)]
            if self._views.covers(first):
                places.parts[dtype] = parts
            return parts
        addresses = addresses.reshape(-1)
        parts = []
        left = torch.arange(addresses.numel(), device="cpu")
        while left.numel():
            found = self._views.range_of(int(addresses[left[0]]), dtype)
            if found is None:
                return None
            at = torch.div(addresses[left] - found.start, dtype.itemsize, rounding_mode="floor")
            within = (at >= 0) & (at < found.base.numel())
            if not within[0]:
                return None
            parts.append(RangeElements(found.base, left[within], at[within]))
            left = left[~within]
        return parts

    def _is_known(self, places: Places) -> bool:
        """Waits for what has yet to arrive, so that the answer does not depend on when it does."""
        first, last = places.bounds
        if self._hook.data_state(first, last - first + places.item) == KNOWN:
            return True
        for stretch in places.stretches or ():
            self._hook.data_wait(stretch.address, stretch.nbytes)
            if self._hook.data_state(stretch.address, stretch.nbytes) != KNOWN:
                return False
        return places.stretches is not None

    def _write(self, store: Store, stretches: list[Stretch]) -> None:
        values = store.values
        parts = None if values is None else self._parts(store.places, values.dtype)
        if values is None or parts is None:
            self._hook.overwrite([number for one in stretches for number in (one.address, one.nbytes)])
            return

        def write() -> None:
            for part in parts:
                part.base[part.places] = values if part.which is None else values[part.which]
            for stretch in stretches:
                self._hook.data_mark_known(stretch.address, stretch.nbytes)

        if any(self._hook.data_in_use(stretch.address, stretch.nbytes) for stretch in stretches):
            self._control.defer([], stretches, write)  # an earlier operation has yet to read what is there
        else:
            write()


_NBYTES = {"i1": "1", "i8": "1", "i16": "2", "f16": "2", "bf16": "2", "i64": "8", "f64": "8"}
