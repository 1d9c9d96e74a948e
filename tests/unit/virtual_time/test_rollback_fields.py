"""What a rollback restores is derived from the entities: no field can be forgotten."""

from __future__ import annotations

import inspect
from enum import Enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from phantora_async.virtual_time import entities
from phantora_async.virtual_time.entities import Device, Host, Stream, fields
from phantora_async.virtual_time.entities.fields import OnRollback, constant, entity, on_rollback_of, saved
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.rollback_log import Checkpoint

CLASSES = [
    cls
    for module in (import_module(f"{entities.__name__}.{one.name}") for one in iter_modules(entities.__path__))
    for _, cls in inspect.getmembers(module, inspect.isclass)
    if cls.__module__ == module.__name__ and module is not fields and not issubclass(cls, Enum | tuple)
]


def test_every_field_of_every_entity_says_what_a_rollback_does_to_it() -> None:
    assert {Host, Stream, Device} < set(CLASSES)
    for cls in CLASSES:
        declared = on_rollback_of(cls)
        assert set(cls.__slots__) == set(declared), cls
        assert not hasattr(cls, "__dict__") or "__dict__" not in cls.__slots__
        assert all(isinstance(on_rollback, OnRollback) for on_rollback in declared.values()), cls


def test_a_field_that_does_not_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Forgetful\.count: what does a rollback do"):

        @entity
        class Forgetful:
            stream: int = constant()
            state: int = saved(0)
            count: int = 0


def one_of_each() -> tuple[Host, Stream, Device]:
    host = Host(0, 0, None, 0)
    device = Device(host, 0, None)
    stream = Stream(device, 1, 0)
    host.devices, host.used, host.streams = {0: device}, (device,), {1: stream}
    return host, stream, device


@pytest.mark.parametrize("place", range(3), ids=["host", "stream", "device"])
def test_every_saved_field_is_restored(place: int) -> None:
    names = [name for name, found in on_rollback_of(type(one_of_each()[place])).items() if found is OnRollback.SAVED]
    assert names
    for name in names:
        trio = one_of_each()
        host, target = trio[0], trio[place]
        before = getattr(target, name)
        checkpoint = Checkpoint(host, 0)
        other: Any = {"streams": {}, "draining": (), "used": ()}.get(name, object())
        setattr(target, name, other)
        checkpoint.restore(host, EventQueue())
        assert getattr(target, name) is before, name


def test_a_device_that_was_not_used_before_is_as_new() -> None:
    host, _, device = one_of_each()
    host.used = ()
    checkpoint = Checkpoint(host, 0)
    host.used, device.resident, device.since_ns = (device,), 3, 70
    checkpoint.restore(host, EventQueue())
    assert (host.used, device.resident, device.since_ns) == ((), 0, -1)


def test_facts_that_were_executed_since_are_executed_again() -> None:
    host, _, _ = one_of_each()
    host.cursor = 40
    checkpoint = Checkpoint(host, 0)
    host.cursor, host.forgotten = 25, 30  # thirty facts were forgotten, fifteen more executed
    checkpoint.restore(host, EventQueue())
    assert host.cursor == 10
