"""A rank's store whose server starts later than it."""

from __future__ import annotations

import socket

import pytest

from emu.clock import rendezvous
from emu.interpreter import real_time


def test_a_refused_connection_is_tried_again_until_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                server.listen()

        monkeypatch.setattr(real_time, "sleep", sleep)
        rendezvous.wait_for_server("127.0.0.1", server.getsockname()[1])
    assert len(slept) == 3


@pytest.mark.parametrize(("host", "port"), [(None, None), ("127.0.0.1", None), ("no such host", 1), ("0.0.0.0.0", 1)])
def test_what_is_no_address_is_left_to_the_store(monkeypatch: pytest.MonkeyPatch, host: object, port: object) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(real_time, "sleep", sleep)
    rendezvous.wait_for_server(host, port)
