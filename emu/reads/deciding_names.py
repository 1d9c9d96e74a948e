"""Names of functions and methods, by what their call says of a value that they get."""

from __future__ import annotations

NEUTRAL = frozenset(
    (
        "print",
        "len",
        "isinstance",
        "issubclass",
        "type",
        "id",
        "str",
        "repr",
        "format",
        "hasattr",
        "callable",
        "dir",
        "vars",
        "ascii",
        "bytes",
        "info",
        "debug",
        "warning",
        "error",
        "log",
        "log_metrics",
        "log_dict",
        "write",
        "write_line",
        "add_scalar",
        "add_scalars",
        "set_postfix",
        "set_postfix_str",
        "set_description",
        "set_description_str",
        "keys",
        "isnan",
        "isinf",
        "isfinite",
    )
)
"""Functions and methods whose result does not say what the value is, or that only tell it. Values that nobody computed
are taken as finite, and checks of that as passed.
"""
OF_MATHEMATICS = frozenset(["math", "cmath", "np", "numpy", "torch"])
"""Modules whose `log` is no logger's."""
LOGARITHMS = frozenset(["log", "log2", "log10"])
"""Of `math`: 0 has none, and they raise."""
CHECKING = frozenset(["is_invalid_grad_norm"])
"""Functions of libraries that only ask whether a number is finite, or -1, which stands for one that is not."""
DECIDING = frozenset(
    (
        "sorted",
        "argmin",
        "argmax",
        "argsort",
        "nanargmin",
        "nanargmax",
        "isclose",
        "allclose",
        "bool",
        "any",
        "all",
        "sort",
        "heappush",
        "heapify",
        "bisect",
        "bisect_left",
        "bisect_right",
        "insort",
        "range",
        "searchsorted",
        "index",
        "where",
        "nonzero",
        "flatnonzero",
        "count_nonzero",
        "argpartition",
        "choice",
        "choices",
        "filter",
        "takewhile",
        "dropwhile",
        "nlargest",
        "nsmallest",
        "lt",
        "le",
        "gt",
        "ge",
        "groupby",
        "zeros",
        "ones",
        "empty",
        "rand",
        "randn",
        "randint",
        "arange",
        "randperm",
        "eye",
        "islice",
        "is_integer",
        "multinomial",
        "topk",
        "idxmin",
        "idxmax",
        "sort_values",
    )
)
"""That choose by what they get, or make as much as it says."""
EXTREMES = frozenset(("min", "max"))
ORDERING = frozenset(
    (
        "argmin",
        "argmax",
        "argsort",
        "sort",
        "index",
        "nonzero",
        "lt",
        "le",
        "gt",
        "ge",
        "is_integer",
        "multinomial",
        "topk",
        "idxmin",
        "idxmax",
        "sort_values",
    )
)
"""Methods of what has the value that decide, too."""
FILLING = frozenset(["append", "extend", "insert", "add", "update", "appendleft", "push", "put", "setdefault"])
SCHEDULING = "step"
"""A scheduler's method: what it gets decides on the learning rate."""
ASIDE = frozenset(
    ["shape", "dtype", "device", "ndim", "name", "grad_fn", "requires_grad", "count", "n", "num", "size", "maxlen"]
)
OF_KEYS = frozenset(["list", "tuple", "set", "frozenset", "sorted", "min", "max", "any", "all", "iter", "zip", "join"])
"""Functions that see the keys of a dictionary alone."""
DICTIONARIES = frozenset(["dict", "defaultdict", "OrderedDict"])
OF_DICTIONARIES = frozenset(["items", "keys", "values"])
LOOK_UP = frozenset(["get", "pop", "setdefault"])
