"""A recording has the same rows for ranks that do the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.contract import records
from phantora_async.recording import Recorder, load, recorder
from tests.unit.virtual_time.scripted import Script, new_fact_builder

from .recordings import NO_REPORT, spec_of


def test_ranks_that_do_the_same_have_the_same_rows_however_their_records_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST_ROWS", 64)
    kept, fact_builder = Recorder(spec_of(3), tmp_path), new_fact_builder(3)
    for rank, portion in enumerate((1000, 7, 90)):
        script = Script(rank, 3)
        for step in range(2):
            for round_ns in range(100):
                script.segment(round_ns)
            for _ in range(40 * step):
                script.segment(5).sync(stream=1)
            script.step()
        arrived = records.decode_up(b"".join(script.bye().records))[0]
        for first in range(0, len(arrived), portion):
            its = arrived[first : first + portion]
            kept.take(rank, its, fact_builder.take(rank, its))
    assert kept.close(fact_builder, NO_REPORT) == ""
    recording = load(tmp_path)
    assert recording.stream(0) is recording.stream(1)
    assert recording.stream(0) is recording.stream(2)
    assert len(recording.stream(0).rows) == 3 + 200 + 80 + 2 + 1  # streams, segments and waits, markers, BYE
