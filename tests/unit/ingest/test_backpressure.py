"""Back-pressure: which ranks are paused, and when they are resumed."""

from __future__ import annotations

import pytest

from emu.contract import records
from phantora_async.ingest import backpressure
from phantora_async.ingest.backpressure import Backpressure
from phantora_async.virtual_time import Timeline

from ..virtual_time.scripted import FixedNetwork


def test_a_rank_is_paused_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "RANK_FACTS", 10)
    timeline = Timeline(2, FixedNetwork(), 1024)
    pressure = Backpressure(timeline, 2)
    facts = records.decode_up(records.HostAdvance.encode(1) * 12)[0]
    timeline.feed(0, facts)
    assert pressure.must_pause(0, len(facts))
    assert pressure.may_resume() == []
    timeline.feed(1, facts)  # what virtual time was waiting for
    timeline.run(100)
    assert pressure.may_resume() == [0]
    assert pressure.paused == set()


def test_all_together_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "ALL_FACTS", 310)
    timeline = Timeline(4, FixedNetwork(), 1024)
    pressure = Backpressure(timeline, 4)
    facts = records.decode_up(records.HostAdvance.encode(1) * 120)[0]
    paused = []
    for rank in range(4):
        timeline.feed(rank, facts)
        paused.append(pressure.must_pause(rank, len(facts)))
    assert paused == [False, False, True, True]
    assert pressure.double() == [2, 3]
    timeline.feed(0, facts)
    assert not pressure.must_pause(0, len(facts))
