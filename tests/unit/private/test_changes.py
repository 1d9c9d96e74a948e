"""Changes of private names: composed in the table's order, left out with one warning, taken back."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from emu.private import changes as changes_module
from emu.private.changes import Changes
from emu.private.names import Kind, Name, Purpose

MODULE = "phantora_stand_in"


def add(a: int, b: int) -> int:
    return a + b


class Cache:
    kept = 3

    @classmethod
    def name(cls, end: str) -> str:
        return cls.__name__ + end

    @staticmethod
    def save(key: str) -> str:
        return key


ADD = Name(MODULE, "add", takes=("a b",))
SAVE = Name(MODULE, "Cache.save", takes=("key",))
PURPOSES = (
    Purpose("sums", "adding", "sums are slower", ("here",), (ADD,), wrong="they may be off by one"),
    Purpose("inner", "saving", "nothing is saved", ("here",), (SAVE,)),
    Purpose("outer", "saving more", "less is saved", ("here",), (SAVE, Name(MODULE, "Cache.name"))),
)


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module: Any = types.ModuleType(MODULE)
    module.add, module.Cache = add, type("Cache", (Cache,), dict(vars(Cache)))
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setattr(changes_module.table, "PURPOSES", {purpose.key: purpose for purpose in PURPOSES})
    monkeypatch.setattr(changes_module.table, "ORDER", {SAVE.full: ("inner", "outer")})
    return module


def stand_in() -> Any:
    return sys.modules[MODULE]


def tagging(tag: str) -> Callable[[Any], Any]:
    return lambda save: lambda key: f"{tag}({save(key)})"


def test_changes_of_one_name_are_composed_in_the_stated_order() -> None:
    changes = Changes()
    for key in ("outer", "inner"):
        assert changes.install(key, lambda names, key=key: names.change("save", tagging(key)))  # type: ignore[misc]
    assert stand_in().Cache.save("x") == stand_in().Cache().save("x") == "outer(inner(x))"
    changes.remove("inner")
    assert stand_in().Cache.save("x") == "outer(x)"
    changes.remove("outer")
    assert vars(stand_in().Cache)["save"] is vars(Cache)["save"]


def test_what_others_change_in_between_stays_below_and_above() -> None:
    changes = Changes()
    changes.install("inner", lambda names: names.change("save", tagging("inner")))
    stand_in().Cache.save = staticmethod(tagging("theirs")(stand_in().Cache.save))
    changes.install("outer", lambda names: names.change("save", tagging("outer")))
    assert stand_in().Cache.save("x") == "outer(theirs(inner(x)))"
    changes.remove("inner")
    assert stand_in().Cache.save("x") == "outer(theirs(inner(x)))"  # it cannot be taken from below theirs
    changes.remove("outer")
    assert stand_in().Cache.save("x") == "theirs(inner(x))"


def test_a_class_method_stays_one() -> None:
    Changes().install("outer", lambda names: names.change("name", lambda name: lambda cls, end: name(cls, end + "!")))
    assert stand_in().Cache.name("s") == "Caches!"


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (None, "has no phantora_stand_in.add"),
        (lambda a, b, c: 0, "has another phantora_stand_in.add (it takes (a, b, c))"),
        (3, "has another phantora_stand_in.add (it is not a function)"),
    ],
    ids=["missing", "other parameters", "another kind"],
)
def test_a_purpose_that_does_not_fit_is_left_out_with_one_warning(
    there: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if there is None:
        del stand_in().add
    else:
        stand_in().add = there
        if callable(there):
            there.__module__ = MODULE
    changes = Changes()
    for _ in range(2):
        assert not changes.install("sums", lambda names: names.change("add", lambda _: sum))
        assert changes.usable("sums") is None
    (warning,) = changes.take_untold()
    assert says in warning
    assert warning.startswith("Python 3.")
    assert warning.endswith(": sums are slower; results may be wrong: they may be off by one")
    assert changes.take_untold() == []
    assert capsys.readouterr().err == f"{warning}\n"
    assert getattr(stand_in(), "add", None) is there


def test_a_change_that_fails_is_taken_back() -> None:
    def change(names: Any) -> None:
        names.change("save", tagging("half"))
        raise KeyError("layout")

    changes = Changes()
    told: list[str] = []
    changes.tell_with(told.append)
    assert not changes.install("inner", change)
    assert stand_in().Cache.save("x") == "x"
    assert len(told) == 1
    assert "KeyError: 'layout'" in told[0]


def test_versions_between_those_that_have_a_name_must_have_it() -> None:
    name = Name("torch.x", "y", Kind.OBJECT, seen=("2.11", "2.15"))
    expected = {version: name.expected_in("torch", version) for version in ("2.9.1", "2.10.0", "2.12.1", "2.17.0")}
    assert expected == {"2.9.1": False, "2.10.0": False, "2.12.1": True, "2.17.0": True}
