"""DistributedDataParallel with the newer NCCL backend, which hides no all-reduce: a rank says so if it is true."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.start import exposed_ddp


class Newer:
    """Stands for ProcessGroupNCCL2."""


def model(ranks: int, backend: object, device: str = "cuda") -> Any:
    group = SimpleNamespace(size=lambda: ranks, _get_backend=lambda device: backend)
    parameter = SimpleNamespace(device=SimpleNamespace(type=device))
    return SimpleNamespace(process_group=group, parameters=lambda: iter([parameter]))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (model(2, Newer()), True),
        (model(1, Newer()), False),  # nothing is reduced
        (model(2, object()), False),  # the earlier backend
        (model(2, Newer(), "cpu"), False),
        (SimpleNamespace(process_group=None, parameters=lambda: iter(())), False),
    ],
)
def test_it_is_told_where_it_is_true(made: Any, expected: bool) -> None:
    told: list[str] = []
    made.init_arguments = None

    def init(self: Any, bucket_cap_mb: int) -> None:
        self.init_arguments = bucket_cap_mb

    exposed_ddp._told(lambda name, text: told.append(text), Newer, init)(made, bucket_cap_mb=25)
    assert made.init_arguments == 25
    assert told == [exposed_ddp.TEXT] * expected


@pytest.mark.parametrize("newer", [Newer, None])
def test_a_version_without_the_newer_backend_is_left_as_it_is(newer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[str] = []
    distributed = SimpleNamespace(get=lambda path: newer, change=lambda path, make: changed.append(path))
    monkeypatch.setattr(exposed_ddp.changes, "when_imported", lambda key, change: change(distributed))
    exposed_ddp.install(lambda name, text: None)
    assert changed == (["DistributedDataParallel.__init__"] if newer else [])
