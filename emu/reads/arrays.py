"""Arrays of numpy that hold numbers which nobody computed, and numpy's own numbers of that kind.

An array with known elements beside unknown ones has an array of flags: which are unknown. To find which elements of a
result follow from these, numpy's function is called once more with NaN in their place, which goes through arithmetic,
sums and copies.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from . import marked
from .deciding_names import DECIDING
from .elements import MOST, Flags
from .marked import plain

_METHODS = (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "compress", "cumprod", "cumsum", "dot"),
    *("item", "max", "mean", "min", "nonzero", "partition", "prod", "ptp", "put", "round", "searchsorted", "sort"),
    *("std", "sum", "take", "tolist", "trace", "var"),
)


def install(np: Any) -> None:
    """Makes the classes. `np`: numpy."""
    for base in (np.float64, np.float32, np.float16):
        marked.subclass(base)

    def own(value: Any) -> Any:
        """Returns the value without marks, also in lists and tuples."""
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(map(own, value))
        return plain(value)

    def probe(value: Any) -> Any:
        """Returns the value with NaN in the place of what is unknown."""
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(map(probe, value))
        if not isinstance(value, np.ndarray) or marked.mark_of(value) is None:
            return value if marked.mark_of(value) is None else type(plain(value))(math.nan)
        return np.where(True if value.flags_in is None else value.flags_in, value.dtype.type(math.nan), plain(value))

    def unknown_in(name: str, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Flags of a call's result; None: all."""
        if not any(_has_flags(one) for one in (*args, *kwargs.values())) or name.startswith("nan") or name in _SKIPPING:
            return None
        kwargs = {key: one for key, one in kwargs.items() if key != "out"}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return np.isnan(call(*map(probe, args), **{key: probe(one) for key, one in kwargs.items()}))
        except (TypeError, ValueError):  # its result is no array of numbers
            return None

    def follow(name: str, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], mark: Any) -> Any:
        # NaN in place of the unknown elements shows which elements of the result follow from them, whatever the
        # function does.
        unknown = unknown_in(name, call, args, kwargs)
        found = call(*map(own, args), **{key: own(one) for key, one in kwargs.items()})
        if unknown is None or np.shape(unknown) != np.shape(found) or type(found) in (list, tuple):
            return marked.follower.result(found, mark)
        return marked.follower.result(found, mark, unknown.ravel().tolist()) if unknown.any() else found

    def method(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name in DECIDING:
                marked.follower.decides(self.mark)
            if name == "tolist" and self.flags_in is not None:
                return marked.follower.result(plain(self).tolist(), self.mark, self.flags_in.ravel().tolist())
            return follow(name, getattr(np.ndarray, name), (self, *args), kwargs, self.mark)

        return call

    def finalize(self: Any, made_of: Any) -> None:
        self.mark = getattr(made_of, "mark", None) or marked.MADE
        self.flags_in = getattr(made_of, "flags_in", None)
        # Numpy calls this for views, too: where the shape is another, all elements count as unknown.
        if self.flags_in is not None and self.flags_in.shape != self.shape:
            self.flags_in = None

    def function(self: Any, called: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if called.__name__ in DECIDING or called.__name__ in _COMPARING:
            marked.follower.decides(self.mark)
        return follow(called.__name__, called, args, kwargs, self.mark)

    def item(self: Any, key: Any) -> Any:
        found, key = plain(self)[own(key)], own(key)
        if self.flags_in is None:
            return marked.follower.result(found, self.mark)
        flags = self.flags_in[key]
        found = marked.follower.result(found, self.mark) if flags.any() else found
        if marked.mark_of(found) is not None and isinstance(found, np.ndarray):
            found.flags_in = flags
        return found

    def set_item(self: Any, key: Any, value: Any) -> None:
        """An item of such an array is known again if a known number is written to it."""
        key = own(key)
        plain(self)[key] = own(value)
        if self.flags_in is not None:
            mark, flags = marked.mark_of(value), getattr(value, "flags_in", None)
            self.flags_in[key] = mark is not None if flags is None else flags

    def truth(self: Any) -> bool:
        marked.follower.decides(self.mark)
        return bool(plain(self))

    def whole(self: Any) -> int:
        marked.follower.leaves(self.mark, counts=True)
        return int(plain(self))

    made = type(
        "ndarray",
        (np.ndarray,),
        {
            **{name: method(name) for name in _METHODS},
            "__module__": "numpy",
            "__array_finalize__": finalize,
            "__array_ufunc__": _ufunc(own, follow),
            "__array_function__": function,
            "__getitem__": item,
            "__setitem__": set_item,
            "__bool__": truth,
            "__int__": whole,
            "__float__": lambda self: float(plain(self)),
            "__contains__": lambda self, one: truth(self) if self.size == 1 else _contains(self, one),
            "__repr__": lambda self: repr(plain(self)),
            "__str__": lambda self: str(plain(self)),
            "__format__": lambda self, form: format(plain(self), form),
            "__reduce_ex__": lambda self, protocol: plain(self).__reduce_ex__(protocol),
            "__deepcopy__": lambda self, memo: self.copy(),
        },
    )
    marked.PLAIN[made] = lambda value: value.view(np.ndarray)
    marked.BY_BASE[np.ndarray] = made


_COMPARING = frozenset(("array_equal", "array_equiv", "allclose", "isclose", "unique", "lexsort", "isin", "in1d"))


def _contains(array: Any, one: Any) -> bool:
    marked.follower.decides(array.mark)
    return one in plain(array)


_SKIPPING = frozenset(("fmax", "fmin", "sign", "copysign", "where"))
"""Functions in which NaN may be lost, besides those whose name begins with it."""


def _has_flags(value: Any) -> bool:
    return any(map(_has_flags, value)) if type(value) in (list, tuple) else getattr(value, "flags_in", None) is not None


def shaped(flags: Flags | None, array: Any) -> Any:
    """Returns the array's flags, as an array of its shape."""
    if flags is None or len(flags) != array.size or array.size > MOST:
        return None
    made: Any = sys.modules["numpy"].array(flags, bool)
    return made.reshape(array.shape)


def _ufunc(own: Callable[[Any], Any], follow: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        given = tuple(map(own, inputs))
        if ufunc.__name__ in marked.COMPARING and not _asks_if_finite(ufunc.__name__, given):
            marked.follower.decides(self.mark)
        return follow(ufunc.__name__, getattr(ufunc, method), inputs, named, self.mark)

    return call


def _asks_if_finite(name: str, given: tuple[Any, ...]) -> bool:
    """Recognises `array != array`."""
    if name not in ("equal", "not_equal") or len(given) != 2:
        return False
    places = [getattr(one, "__array_interface__", {"data": i}) for i, one in enumerate(given)]
    return bool(places[0]["data"] == places[1]["data"])
