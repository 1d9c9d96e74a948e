"""Host time of `new_group`, with a torch.distributed of our own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from emu.clock import new_groups

MEMBER_NS, OTHER_NS, MODELLED_NS = 900, 600, 840
"""Host time, in ns, that the real call takes members and others, where Python functions count; and what is charged in
its place.
"""
NONE = object()
"""The value that a rank gets that is no member."""


class Host:
    """A stand-in for a rank's host clock."""

    def __init__(self, measured: bool) -> None:
        self.measured = measured
        self.now_ns = 0

    def measures_host(self) -> bool:
        return self.measured

    def host_clock_ns(self) -> int:
        return self.now_ns

    def host_works_ns(self, ns: int) -> None:
        self.now_ns += ns

    def python_work(self, functions: int, units: int) -> None:
        assert (functions, units) == (new_groups.MEMBERS_FUNCTIONS, new_groups.CODE_UNITS)
        self.now_ns += MODELLED_NS


class Rank:
    """Rank 0, for which new_group is replaced."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch, left_out: Sequence[Sequence[int]] = ()) -> None:
        self.host = host

        def real(ranks: Sequence[int] | None = None, **options: Any) -> object:
            host.now_ns += (MEMBER_NS if ranks is None or 0 in ranks else OTHER_NS) if host.measured else 0
            return tuple(ranks or ())

        c10d = SimpleNamespace(new_group=real)
        torch_distributed = SimpleNamespace(
            is_available=lambda: True,
            distributed_c10d=c10d,
            new_group=real,
            GroupMember=SimpleNamespace(NON_GROUP_MEMBER=NONE),
        )
        for name, module in {
            "torch": SimpleNamespace(distributed=torch_distributed),
            "torch.distributed": torch_distributed,
            "torch.distributed.distributed_c10d": c10d,
        }.items():
            monkeypatch.setitem(sys.modules, name, module)
        new_groups.install(host, (lambda ranks: ranks in left_out) if left_out else None)
        assert torch_distributed.new_group is c10d.new_group
        self.new_group = torch_distributed.new_group

    def takes(self, *arguments: Any, **options: Any) -> int:
        before_ns = self.host.now_ns
        self.new_group(*arguments, **options)
        return self.host.now_ns - before_ns


def test_each_call_takes_what_a_member_s_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(Host(measured=False), monkeypatch, left_out=([2, 3],))
    assert [rank.takes([2, 3]), rank.takes([0, 1]), rank.takes([1, 2]), rank.takes(ranks=[2, 3])] == [MODELLED_NS] * 4
    assert rank.new_group([2, 3]) is NONE
    assert rank.new_group([0, 1]) == (0, 1)


def test_a_measured_call_takes_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is left out takes as long as the latest other one."""
    rank = Rank(Host(measured=True), monkeypatch, left_out=([2, 3],))
    taken = [rank.takes([0, 1]), rank.takes([2, 3]), rank.takes([1, 2]), rank.takes([2, 3])]
    assert taken == [MEMBER_NS, MEMBER_NS, OTHER_NS, OTHER_NS]
