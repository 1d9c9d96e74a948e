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
"""Functions of `math` that raise for 0, which has no logarithm."""
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
        "linear_sum_assignment",
    )
)
"""Functions and methods that choose by what they get, or make as much as it says."""
EXTREMES = frozenset(("min", "max"))
FILLING = frozenset(["append", "extend", "insert", "add", "update", "appendleft", "push", "put", "setdefault"])
ASIDE = frozenset(
    ["shape", "dtype", "device", "ndim", "name", "grad_fn", "requires_grad", "count", "n", "num", "size", "maxlen"]
)
LOOK_UP = frozenset(["get", "pop", "setdefault"])

QUIET_MODULES = frozenset(
    (
        "_pydecimal.py",
        "copy.py",
        "csv.py",
        "fractions.py",
        "json",
        "linecache.py",
        "logging",
        "numbers.py",
        "pickle.py",
        "pprint.py",
        "reprlib.py",
        "string.py",
        "textwrap.py",
        "traceback.py",
    )
)
"""Files and folders of the standard library that print, copy or average: what they compare decides nothing."""
QUIET_LIBRARIES = frozenset(
    (
        "IPython",
        "absl",
        "aim",
        "clearml",
        "comet_ml",
        "loguru",
        "matplotlib",
        "mlflow",
        "neptune",
        "plotly",
        "prettytable",
        "rich",
        "seaborn",
        "structlog",
        "swanlab",
        "tabulate",
        "tensorboard",
        "tensorboardX",
        "termcolor",
        "tqdm",
        "wandb",
        "yaml",
    )
)
"""Packages that print, draw or log."""
