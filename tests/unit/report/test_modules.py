"""GPU work and memory by module: what ranks tell, weighted by the ranks for which they speak."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from emu.contract.records import HeldKind, OutsideKind
from phantora_async.errors import ProtocolError
from phantora_async.ingest.module_launches import ModuleLaunches
from phantora_async.report.modules import modules_document

from ..report.test_report import document, train
from ..virtual_time.scripted import scripts


class Priced:
    """Costs of 100 ns and 10 ns, of two models."""

    class Cost:
        def __init__(self, solo_ns: int, model: str) -> None:
            self.solo_ns, self.model = solo_ns, model

    class Known:
        signature = "x"

        def __init__(self, cost: Priced.Cost) -> None:
            self.cost = cost

    def priced(self, key: int) -> Any:
        return self.Known(self.Cost(100, "gemm") if key == 1 else self.Cost(10, "element-wise"))


def rank(*counts: tuple[int, int, int, int, int]) -> ModuleLaunches:
    told = ModuleLaunches()
    for number, text in ((1, "Net\nNet"), (2, "Net\tup\nLinear")):
        told.name(decoded(records.Module.encode(0, number, 0, payload=text.encode())))
    payload = b"".join(records.ModuleCount.encode(*count) for count in counts)
    told.add(0, decoded(records.ModuleCounts.encode(0, len(counts), 3, payload=payload)), lambda rank, key: None)
    return told


def decoded(record: bytes) -> Any:
    return records.decode_up(record)[0][0]


def part(path: list[str], kind: str, family: str, forward_ns: int, backward_ns: int, launches: float) -> dict[str, Any]:
    return {
        "path": path,
        "class": kind,
        "family": family,
        "forward_ns": forward_ns,
        "backward_ns": backward_ns,
        "launches": launches,
    }


def test_the_mean_over_ranks_by_module_and_family() -> None:
    # key, launches, slowed_ns, module, backward
    one = rank((1, 2, 8, 2, 0), (1, 4, 0, 2, 1), (2, 1, 0, OutsideKind.OPTIMIZER, 0))
    three = rank((1, 2, 0, 2, 0), (2, 4, 0, 0, 1))
    made = modules_document([(one, 1), (three, 3), (ModuleLaunches(), 9)], Priced(), ModuleLaunches())
    assert made["ranks"] == 4
    assert made["parts"] == [
        part(["Net", "up"], "Linear", "gemm", 202, 100, 3.0),
        part(["(no module)"], "", "element-wise", 0, 30, 3.0),
        part(["(optimizer)"], "", "element-wise", 2, 0, 0.25),
    ]
    assert made["memory"] == []


def test_memory_is_that_of_the_fullest_device() -> None:
    told = rank()
    for device, nbytes in ((0, 5), (1, 7)):
        payload = records.ModuleHeld.encode(nbytes, 1, HeldKind.PARAMETERS, 2, 0)
        payload += records.ModuleHeld.encode(1, 2, HeldKind.TEMPORARIES, 0, 0)
        told.hold(0, decoded(records.ModuleMemory.encode(0, device, 2, payload=payload)))
    assert modules_document([], Priced(), told)["memory"] == [
        {"path": ["Net", "up"], "class": "Linear", "part": "parameters", "nbytes": 7, "blocks": 1},
        {"path": ["(no module)"], "class": "", "part": "temporaries", "nbytes": 1, "blocks": 2},
    ]


def test_memory_of_an_unknown_kind_is_refused() -> None:
    payload = records.ModuleHeld.encode(1, 1, 99, 0, 0)
    with pytest.raises(ProtocolError, match="unknown kind"):
        rank().hold(0, decoded(records.ModuleMemory.encode(0, 0, 1, payload=payload)))


def test_a_report_without_modules_says_so() -> None:
    made = document(*(train(script, 5, marked=True) for script in scripts(2)))
    assert made["simulated"]["modules"] == {"ranks": 0, "parts": [], "left_out": 0, "memory": []}
