"""Libraries that write numbers of Python's own class only: they get ordinary ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .marked import PLAIN, UnknownFloat, plain


def install(when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
    """Gives these libraries ordinary numbers. Called in the forker. `when_imported` changes a module as soon as that is
    there.
    """
    when_imported("orjson", _change_orjson)
    when_imported("yaml.representer", _change_yaml)


def _change_orjson(orjson: ModuleType) -> None:
    dumps = orjson.dumps

    @functools.wraps(dumps)
    def dumps_plain(value: Any, default: Any = None, option: Any = None) -> Any:
        def of_others(one: Any) -> Any:
            if type(one) in PLAIN:
                return plain(one)
            if default is None:
                raise TypeError(f"Type is not JSON serializable: {type(one).__name__}")
            return default(one)

        return dumps(value, of_others, option)

    setattr(orjson, "dumps", dumps_plain)  # noqa: B010


def _change_yaml(representer: ModuleType) -> None:
    for kind in (representer.SafeRepresenter, representer.Representer):
        kind.add_representer(UnknownFloat, lambda self, number: self.represent_float(plain(number)))
