"""A process is a rank of the server that it runs on."""

from __future__ import annotations

import pytest

from phantora_async.coordinator.ranks import server_check
from phantora_async.errors import ProtocolError

NAMESPACES = {"self": 1, 10: 1, 11: 1, 20: 2, 21: 2, 30: 3, 99: 4}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> server_check.ServerCheck:
    monkeypatch.setattr(server_check, "_pid_namespace", lambda pid: NAMESPACES.get(pid, 0))
    return server_check.ServerCheck((2, 2))


def test_a_process_of_one_server_is_no_rank_of_another(found: server_check.ServerCheck) -> None:
    found.check(20, 0)
    found.check(21, 1)
    found.check(30, 2)
    with pytest.raises(ProtocolError, match=r"rank 3: .*process 20 says it is this rank, but runs on server 0"):
        found.check(20, 3)
    found.check(20, 1)  # a process may use another GPU of its server


def test_where_nothing_is_known_nothing_is_refused(found: server_check.ServerCheck) -> None:
    """Servers without isolation, processes of other machines, and a pid namespace that a script has made."""
    for pid in (10, 11, 1 << 33):
        for rank in (0, 3, 77):
            found.check(pid, rank)
    found.check(20, 0)
    found.check(99, 1)
