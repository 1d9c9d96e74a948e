"""Launches by signature: totals, and those between two step ends."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.ingest.launch_counts import LaunchCounts, Launched

SLOWED_NS = 7


def check(rank: int, key: int) -> None:
    if not 1 <= key <= 3:
        raise ProtocolError(rank, f"key {key}")


MOST = 1 << 62
"""The largest count of a launch."""


def told(**launches: int) -> Any:
    counts = [(int(key[1:]), count, count * SLOWED_NS, 0) for key, count in launches.items()]
    payload = b"".join(records.LaunchCount.encode(*count) for count in counts)
    return records.decode_up(records.LaunchCounts.encode(0, len(launches), 0, payload=payload))[0][0]


def launched(launches: dict[int, int]) -> dict[int, Launched]:
    return {key: Launched(count, count * SLOWED_NS) for key, count in launches.items()}


def test_launches_between_steps_leave_out_those_before_and_after() -> None:
    counts = LaunchCounts()
    for launches in ({"k1": 100}, {"k1": 1, "k2": 5}, {"k1": 2}, {"k1": 4, "k3": 1}):
        counts.add(0, told(**launches), check)
        counts.step_ended(reached=MOST)
    counts.add(0, told(k1=1000), check)
    assert counts.total == launched({1: 1107, 2: 5, 3: 1})
    assert counts.between_steps(0, 3) == launched({1: 7, 2: 5, 3: 1})
    assert counts.between_steps(2, 3) == launched({1: 4, 3: 1})


def test_counts_at_a_step_that_is_not_kept_are_not_known() -> None:
    counts = LaunchCounts()
    for _ in range(6):
        counts.add(0, told(k1=1), check)
        counts.step_ended(reached=MOST)
    assert counts.between_steps(2, 5) == launched({1: 3})
    assert counts.between_steps(3, 5) is None
    assert counts.between_steps(2, 4) is None, "the run goes on: what was launched until step 4 is not kept"


def test_counts_of_a_rank_that_is_ahead_are_those_of_the_steps_that_were_simulated() -> None:
    counts = LaunchCounts()
    for step_ends in range(6):
        counts.add(0, told(k1=10**step_ends), check)
        counts.step_ended(reached=min(step_ends, 4))
    assert counts.between_steps(2, 3) == launched({1: 1000})
    assert counts.between_steps(2, 5) == launched({1: 111000})
    assert counts.between_steps(0, 1) is None, "virtual time has gone on"


def test_a_record_that_is_too_short_is_refused() -> None:
    record = told(k1=1)._replace(entries=2)
    with pytest.raises(ProtocolError, match="rank 3"):
        LaunchCounts().add(3, record, check)


def test_launches_of_a_cost_that_nobody_has_asked_for() -> None:
    """They would have no signature in the report."""
    with pytest.raises(ProtocolError, match="key 9"):
        LaunchCounts().add(3, told(k1=1, k9=1), check)


def test_the_line_of_a_signature_is_that_of_the_last_record_that_tells_one() -> None:
    counts = LaunchCounts()
    for sites in ({1: 5, 2: 6}, {1: 7, 2: 0}):
        payload = b"".join(records.LaunchCount.encode(key, 1, 0, site) for key, site in sites.items())
        record = records.decode_up(records.LaunchCounts.encode(0, len(sites), 0, payload=payload))[0][0]
        counts.add(0, record, lambda rank, key: None)
    assert counts.sites == {1: 7, 2: 6}
