"""What a rollback does to each field of an entity: declared where the field is, checked when the class is made.

::

    @entity
    class Stream:
        device: Device = constant()
        state: StreamState = saved(StreamState.IDLE)

``Saver(Stream)`` then copies and puts back the saved fields. A field that is not declared is a TypeError at import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Literal, TypeVar, dataclass_transform

E = TypeVar("E")
Default = Any
Factory = Callable[[], Any] | None


class OnRollback(Enum):
    CONSTANT = "never changes after construction"
    SAVED = "gets the value back that a checkpoint holds"
    LOGGED = "is restored by the undo entries that its changes have appended to the rollback log"
    KEPT = "stays as it is"


def constant() -> Any:
    """An argument of the constructor that never changes."""
    return field(metadata={OnRollback: OnRollback.CONSTANT})


def saved(default: Default = None, *, factory: Factory = None, init: Literal[False] = False) -> Any:
    """Checkpoints hold its value, not a copy: a container is replaced, not changed in place, except where the change
    appends its undo entry to the rollback log."""
    return _field(OnRollback.SAVED, default, factory)


def logged(default: Default = None, *, factory: Factory = None, init: Literal[False] = False) -> Any:
    """Every change appends its undo entry to the rollback log."""
    return _field(OnRollback.LOGGED, default, factory)


def kept(default: Default = None, *, factory: Factory = None, init: Literal[False] = False) -> Any:
    """A rollback leaves it as it is."""
    return _field(OnRollback.KEPT, default, factory)


def _field(on_rollback: OnRollback, default: Default, factory: Factory) -> Any:
    metadata = {OnRollback: on_rollback}
    if factory is not None:
        return field(default_factory=factory, init=False, metadata=metadata)
    return field(default=default, init=False, metadata=metadata)


@dataclass_transform(eq_default=False, field_specifiers=(constant, saved, logged, kept))
def entity(cls: type[E]) -> type[E]:
    """A class with slots, compared by identity; its constructor takes the constant fields.

    Raises TypeError for a field that is not declared with ``constant``, ``saved``, ``logged`` or ``kept``.
    """
    made = dataclass(eq=False, repr=False, slots=True)(cls)
    for name, on_rollback in on_rollback_of(made).items():
        if on_rollback is None:
            raise TypeError(f"{cls.__name__}.{name}: what does a rollback do to it? See {__name__}")
    return made


def on_rollback_of(cls: type) -> dict[str, OnRollback | None]:
    """What a rollback does to each field; None: not declared."""
    return {declared.name: declared.metadata.get(OnRollback) for declared in fields(cls)}


class Saver:
    """Copies an entity's saved fields, and puts them back."""

    __slots__ = ("_fields", "save")

    def __init__(self, cls: type) -> None:
        self._fields = [one for one in fields(cls) if one.metadata[OnRollback] is OnRollback.SAVED]
        self.save: Callable[[Any], tuple[Any, ...]] = attrgetter(*(one.name for one in self._fields))

    def restore(self, target: object, values: tuple[Any, ...]) -> None:
        for one, value in zip(self._fields, values, strict=True):
            setattr(target, one.name, value)

    def reset(self, target: object) -> None:
        """The saved fields are as they were after construction."""
        for one in self._fields:
            setattr(target, one.name, _initial(one))


def _initial(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()
