"""The one place that changes private names: it checks them first, composes changes of one name, and takes them back.

A purpose whose names are not all as the table says is left out as a whole, with one warning. So is one whose change
fails. Nothing raises here: a name that a new version lacks must not end a run.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from . import symbols, table
from .finding import Found, State, has_module, look_up, version_of
from .imports import when_imported
from .names import PRODUCTS, Purpose

Make = Callable[[Any], Any]
"""Makes a replacement of what is there. It may be called again, when another purpose changes the same name."""
_ABSENT = object()


class _Changed:
    """A name that is changed now. Ranks change some, too: that must run no function of the standard library's, whose
    host time would be the program's.
    """

    __slots__ = ("attribute", "layers", "owner", "plain", "put", "was")

    def __init__(self, owner: Any, attribute: str) -> None:
        self.owner = owner
        self.attribute = attribute
        self.was = _own(owner, attribute)
        """The value that the owner itself had; _ABSENT if it had the attribute from a class above."""
        is_bound = isinstance(self.was, (staticmethod, classmethod))
        self.plain = self.was.__func__ if is_bound else getattr(owner, attribute)
        """The value that makers get: a function without `staticmethod` and the like."""
        self.put: Any = None
        """The value that stands there now."""
        self.layers: dict[str, Make] = {}
        """Makers of replacements, by purpose."""

    def compose(self, order: tuple[str, ...]) -> None:
        value = self.plain
        for key in sorted(self.layers, key=lambda key: order.index(key) if key in order else len(order)):
            value = self.layers[key](value)
        if isinstance(self.was, (staticmethod, classmethod)):
            value = type(self.was)(value)
        self.put = value
        setattr(self.owner, self.attribute, value)

    def restore(self) -> None:
        """Puts the former value back, unless somebody else has changed it since."""
        if _own(self.owner, self.attribute) is not self.put:
            return
        if self.was is _ABSENT:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self.was)


class Names:
    """The names of one purpose, all as expected."""

    def __init__(self, purpose: Purpose, found: Iterable[Found], changed: dict[str, list[_Changed]]) -> None:
        self._key = purpose.key
        self._found = {one.name.full: one for one in found if one.state is State.OK}
        self._changed = changed

    def get(self, path: str) -> Any:
        """Returns the value of a name, or None where this version lacks it as the table says. `path`: the end of its
        full name.
        """
        found = self._of(path)
        return None if found is None else found.value

    def change(self, path: str, make: Make) -> None:
        """Puts `make(what is there)` in its place. Does nothing where this version lacks it as the table says."""
        found = self._of(path)
        if found is None:
            return
        layers = self._changed.setdefault(found.name.full, [])
        if not layers or layers[-1].put is not _own(found.owner, found.attribute):
            # The first change, or somebody else has changed it: ours is on top.
            layers.append(_Changed(found.owner, found.attribute))
        layers[-1].layers[self._key] = make
        layers[-1].compose(table.ORDER.get(found.name.full, ()))

    def _of(self, path: str) -> Found | None:
        return next((one for full, one in self._found.items() if full == path or full.endswith(f".{path}")), None)


def _own(owner: Any, attribute: str) -> Any:
    """Returns the attribute that the object itself has, as it is kept there; _ABSENT if it has none."""
    try:
        return vars(owner).get(attribute, _ABSENT)
    except TypeError:  # it has slots
        return inspect.getattr_static(owner, attribute, _ABSENT)


class Changes:
    """The changes that this package has made to the interpreter's modules."""

    def __init__(self) -> None:
        self._changed: dict[str, list[_Changed]] = {}
        self._untold: list[str] = []
        self._tell: Callable[[str], None] | None = None
        self._usable: dict[str, Names] = {}
        """Purposes that were looked at before; what a rank inherits from the forker it does not look at again."""
        self.left_out: dict[str, str] = {}
        """Warnings, by the purpose that is left out."""

    def usable(self, key: str) -> Names | None:
        """Returns the names of this purpose; None if it must be left out, which is told."""
        if key in self._usable:
            return self._usable[key]
        if key in self.left_out:
            return None
        purpose = table.PURPOSES[key]
        found = look_up(purpose)
        if any(one.state is State.NOT_INSTALLED for one in found):
            return None
        wrong = [one for one in found if one.state in (State.MISSING, State.CHANGED)]
        if wrong:
            self._leave_out(purpose, _what(purpose, wrong))
            return None
        names = self._usable[key] = Names(purpose, found, self._changed)
        return names

    def install(self, key: str, change: Callable[[Names], object]) -> bool:
        """Calls `change` with the names of this purpose. Returns False if the purpose is left out."""
        names = self.usable(key)
        if names is None:
            return False
        try:
            change(names)
        except Exception as error:  # whatever a new version does
            self.remove(key)
            del self._usable[key]
            purpose = table.PURPOSES[key]
            with_what = f"{type(error).__name__}: {error}"
            self._leave_out(purpose, f"{_product(purpose)} differs from earlier versions ({with_what})")
            return False
        return True

    def when_imported(self, key: str, change: Callable[[Names], object]) -> None:
        """Installs the change once the module of the purpose's first name is imported, if it ever is."""
        purpose = table.PURPOSES[key]
        module = purpose.names[0].module

        def install(_: ModuleType) -> None:
            self.install(key, change)

        if has_module(module):
            when_imported(module, install)
        elif all(name.expected_in(purpose.package, version_of(purpose.package)) for name in purpose.names):
            self._leave_out(purpose, f"{_product(purpose)} has no {module}")

    def check_symbols(self) -> None:
        """Tells which functions of C and C++ the hook library will not find. It does without. Import tables, which
        take long to read, are left to `phantora-async doctor`: they are about speed alone.
        """
        for symbol in symbols.read():
            if symbol.way != symbols.REPLACED and symbols.state(symbol) is State.MISSING:
                package = "python" if symbol.library == "python" else "torch"
                what = f"{PRODUCTS[package]} {version_of(package)} has no {symbol.name} in {symbol.library}"
                self._warn(symbol.id, f"{what}: {symbol.lost}")

    def remove(self, key: str) -> None:
        """Takes the changes of this purpose back."""
        for full, layers in self._changed.items():
            for changed in reversed(layers):
                if changed.layers.pop(key, None) is None:
                    continue
                if changed.layers:
                    changed.compose(table.ORDER.get(full, ()))
                else:
                    changed.restore()
            layers[:] = [one for one in layers if one.layers]

    # ---- warnings --------------------------------------------------------------------------------------------------

    def take_untold(self) -> list[str]:
        """Returns the warnings that nobody has been told, each once."""
        untold, self._untold = self._untold, []
        return untold

    def tell_with(self, tell: Callable[[str], None]) -> None:
        """Tells the user of warnings from now on, and of those that nobody has been told. Called in a rank."""
        self._tell = tell
        for text in self.take_untold():
            tell(text)

    def _leave_out(self, purpose: Purpose, what: str) -> None:
        if purpose.key not in self.left_out:
            self._warn(purpose.key, f"{what}: {purpose.consequence}")

    def _warn(self, key: str, text: str) -> None:
        self.left_out[key] = text
        if self._tell is not None:
            self._tell(text)
        else:
            print(text, file=sys.stderr)
            self._untold.append(text)


def _product(purpose: Purpose) -> str:
    return f"{PRODUCTS[purpose.package]} {version_of(purpose.package)}".strip()


def _what(purpose: Purpose, wrong: list[Found]) -> str:
    first = wrong[0]
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    if first.state is State.MISSING:
        return f"{_product(purpose)} has no {first.name.full}{more}"
    return f"{_product(purpose)} has another {first.name.full}{more} ({first.detail})"


changes = Changes()
"""The changes of this interpreter's modules."""
