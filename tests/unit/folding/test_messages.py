"""Gathers and scatters: the hook library is told of them while PyTorch makes their sends and receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emu.contract.records import MessageKind, NcclKind
from phantora_async.ingest.messages import kind_of, root_of

pytest.importorskip("torch")


class Told:
    """A stand-in for the hook library, and for the names that are changed."""

    def __init__(self) -> None:
        self.now = 0
        self.changed: dict[str, Any] = {}

    def messages_of(self, kind: int) -> None:
        self.now = kind

    def change(self, name: str, make: Callable[[Any], Any]) -> None:
        self.changed[name] = make


def test_messages_are_told_during_the_call_alone() -> None:
    from emu.folding import messages

    told = Told()
    messages.change(told, told)  # type: ignore[arg-type]
    during: list[int] = []
    calls = {name: make(lambda *_, **__: during.append(told.now)) for name, make in told.changed.items()}
    calls["ProcessGroup.gather"](1, 2)
    assert told.now == 0
    calls["ProcessGroup.scatter"](1, timeout=2)
    assert (during, told.now) == ([MessageKind.OF_GATHER, MessageKind.OF_SCATTER], 0)

    def fails() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        told.changed["ProcessGroup.gather"](fails)()
    assert told.now == 0


def test_the_root_of_a_message() -> None:
    """A gather's root receives, a scatter's sends; the others do so with it."""
    assert root_of(NcclKind.RECV | MessageKind.OF_GATHER, own=2, peer=5) == 2
    assert root_of(NcclKind.SEND | MessageKind.OF_GATHER, own=5, peer=2) == 2
    assert root_of(NcclKind.SEND | MessageKind.OF_SCATTER, own=2, peer=5) == 2
    assert root_of(NcclKind.RECV | MessageKind.OF_SCATTER, own=5, peer=2) == 2
    assert root_of(NcclKind.SEND, own=5, peer=2) is None
    assert kind_of(NcclKind.SEND | MessageKind.OF_GATHER) == NcclKind.SEND
