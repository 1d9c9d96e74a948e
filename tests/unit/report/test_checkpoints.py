"""Files that hold values which nobody computed: what records say, and the report's warnings."""

from __future__ import annotations

from emu.contract import records
from phantora_async.ingest.uncomputed_reads import UncomputedReads
from phantora_async.report.stated_values import checkpoint_warnings, checkpoints_document


def told(*written: tuple[int, str, int, int, int]) -> UncomputedReads:
    """Rank, path, offset, bytes, bytes that nobody computed."""
    reads = UncomputedReads()
    for rank, path, *numbers in written:
        (record,), _ = records.decode_up(records.Checkpoint.encode(0, *numbers, payload=path.encode()))
        assert isinstance(record, records.Checkpoint)
        reads.take_checkpoint(rank, record)
    return reads


def test_files_of_one_folder_are_one_checkpoint() -> None:
    reads = told((0, "/a/one", 0, 100, 90), (0, "/a/one", 100, 100, 0), (1, "/a/two", 0, 50, 50), (0, "/b/c", 0, 8, 4))
    assert checkpoints_document(reads) == [
        {"path": "/a/", "files": 2, "ranks": [0, 1], "times": 2, "written_nbytes": 250, "uncomputed_nbytes": 140},
        {"path": "/b/c", "files": 1, "ranks": [0], "times": 1, "written_nbytes": 8, "uncomputed_nbytes": 4},
    ]


def test_a_file_that_is_written_again_holds_what_came_last() -> None:
    (one,) = checkpoints_document(told((0, "/a", 0, 100, 90), (0, "/a", 0, 60, 30)))
    assert (one["times"], one["written_nbytes"], one["uncomputed_nbytes"]) == (2, 60, 30)
    assert checkpoints_document(told((0, "/a", 0, 100, 90), (0, "/a", 0, 60, 0), (0, "/b", 0, 9, 0))) == []


def test_each_checkpoint_has_one_warning_and_many_are_summed_up() -> None:
    reads = told(*((0, f"/step{number}/x", 0, 1000, 999) for number in range(9)))
    *named, last = checkpoint_warnings(checkpoints_document(reads))
    assert len(named) == 4
    assert named[0]["text"].startswith(
        "checkpoint /step0/x: 99.9% of its 1,000 bytes are values that were not computed"
    )
    assert last == {
        "text": "5 more checkpoints: 99.9% of 5,000 bytes are values that were not computed",
        "ranks": [0],
        "count": 5,
    }
