"""Arrays of numpy that hold numbers which nobody computed, and numpy's own numbers of that kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import marked
from .deciding_names import DECIDING
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
        """Without marks: also in lists and tuples."""
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(map(own, value))
        return plain(value)

    def method(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name in DECIDING:
                marked.follower.decides(self.mark)
            found = getattr(plain(self), name)(*map(own, args), **kwargs)
            return marked.follower.result(found, self.mark)

        return call

    def finalize(self: Any, made_of: Any) -> None:
        self.mark = getattr(made_of, "mark", None) or marked.MADE

    def function(self: Any, called: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if called.__name__ in DECIDING or called.__name__ in _COMPARING:
            marked.follower.decides(self.mark)
        found = called(*map(own, args), **{name: own(one) for name, one in kwargs.items()})
        return marked.follower.result(found, self.mark)

    def item(self: Any, key: Any) -> Any:
        return marked.follower.result(plain(self)[own(key)], self.mark)

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
            "__array_ufunc__": _ufunc(own),
            "__array_function__": function,
            "__getitem__": item,
            "__bool__": truth,
            "__int__": whole,
            "__float__": lambda self: float(plain(self)),
            "__contains__": lambda self, one: truth(self) if self.size == 1 else _contains(self, one),
            "__repr__": lambda self: repr(plain(self)),
            "__str__": lambda self: str(plain(self)),
            "__format__": lambda self, form: format(plain(self), form),
            "__reduce_ex__": lambda self, protocol: plain(self).__reduce_ex__(protocol),
            "__deepcopy__": lambda self, memo: marked.follower.result(plain(self).copy(), self.mark),
        },
    )
    marked.PLAIN[made] = lambda value: value.view(np.ndarray)
    marked.BY_BASE[np.ndarray] = made


_COMPARING = frozenset(("array_equal", "array_equiv", "allclose", "isclose", "unique", "lexsort", "isin", "in1d"))


def _contains(array: Any, one: Any) -> bool:
    marked.follower.decides(array.mark)
    return one in plain(array)


def _ufunc(own: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(self: Any, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        given = tuple(map(own, inputs))
        if ufunc.__name__ in marked.COMPARING and not _asks_if_finite(ufunc.__name__, given):
            marked.follower.decides(self.mark)
        found = getattr(ufunc, method)(*given, **{name: own(one) for name, one in named.items()})
        return marked.follower.result(found, self.mark)

    return call


def _asks_if_finite(name: str, given: tuple[Any, ...]) -> bool:
    """`array != array`"""
    if name not in ("equal", "not_equal") or len(given) != 2:
        return False
    places = [getattr(one, "__array_interface__", {"data": i}) for i, one in enumerate(given)]
    return bool(places[0]["data"] == places[1]["data"])
