"""A rank without whose process the run has gone on, and whose process comes after all."""

from __future__ import annotations

from phantora_async.ingest.fact_builder import CAME_LATE, NO_PROCESS
from tests.unit.virtual_time.scripted import new_fact_builder


def test_the_warning_that_no_process_has_come_is_taken_back() -> None:
    built = new_fact_builder(3)
    for rank in (1, 2):
        built.goes_without(rank, 30.0)
    assert built.warnings[NO_PROCESS.format(30.0)].alone == {1: 1, 2: 1}
    built.begin_again(2)
    assert {text: count.alone for text, count in built.warnings.items()} == {
        NO_PROCESS.format(30.0): {1: 1},
        CAME_LATE: {2: 1},
    }
    built.begin_again(2)
    assert built.warnings[CAME_LATE].alone == {2: 1}, "its next process comes in its turn"
    built.begin_again(1)
    assert [*built.warnings] == [CAME_LATE]
