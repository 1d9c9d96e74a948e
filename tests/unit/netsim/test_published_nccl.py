"""The program that holds published measurements of NCCL between servers beside predictions."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "laboratory/programs/published_nccl.py"


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("published_nccl", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules["published_nccl"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["published_nccl"]


def run(op: str, servers: int, nic_gbps: float, **more: object) -> dict[str, object]:
    return {
        "op": op,
        "servers": servers,
        "gpus_per_server": 8,
        "nics_per_server": 8,
        "nic_gbps": nic_gbps,
        "cluster": "dgx-h100",
        **more,
    }


@pytest.mark.parametrize(
    ("row", "nbytes", "per_nic"),
    [
        # A ring over 4 servers of 8 puts 2 * 31 / 32 of the buffer on the wires of each server; 8 cards share them.
        (run("all_reduce", 4, 400.0, env={"NCCL_ALGO": "Ring"}), 1 << 33, 2 * 31 / 32 / 8),
        # An all-to-all of 16 sends half of each rank's input through its own card.
        (run("all_to_all", 2, 400.0), 1 << 33, 1 / 2),
        # The last rank of a server sends the whole message through its card.
        (run("sendrecv_ring", 2, 200.0), 1 << 30, 1.0),
    ],
)
def test_three_predictions_are_not_faster_than_the_cards(program, row, nbytes: int, per_nic: float) -> None:
    us, _ = program.predict(row, nbytes)
    least_us = nbytes * per_nic / (row["nic_gbps"] / 8) / 1000
    assert least_us < us < 3 * least_us


def test_spread_is_the_median_and_the_ninth_of_ten(program) -> None:
    assert program.spread([0.1, -0.2, 0.5]) == (0.2, 0.5)
    assert program.spread([i / 10 * (-1) ** i for i in range(1, 11)]) == (pytest.approx(0.55), 0.9)


def test_whole_sources_are_kept_out_by_their_hash(program) -> None:
    rows = program.read()
    assert sum(len(row["us_by_bytes"]) for row in rows) > 600
    for row in rows:
        assert row["kept_out"] == bool(hashlib.sha256(b"166" + row["source"].encode()).digest()[0] & 1), row["source"]


def test_ranks_of_a_rack_are_its_first_gpus(program) -> None:
    two_racks = run("all_reduce", 32, 400.0) | {"gpus_per_server": 4, "nvlink_domains": 2}
    assert program.members(two_racks, 72) == (*range(64), *range(72, 136))
    four_of_eight = run("all_reduce", 2, 400.0) | {"gpus_per_server": 4}
    assert program.members(four_of_eight, 8) == (0, 2, 4, 6, 8, 10, 12, 14)
