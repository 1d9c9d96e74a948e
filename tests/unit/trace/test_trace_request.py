"""The values that `run --trace` accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_async.errors import UsageError
from phantora_async.trace_request import resolve


def test_ranks_and_steps(tmp_path: Path) -> None:
    request = resolve(str(tmp_path / "t.json"), "0,8-10", "3-5", 16)
    assert request is not None
    assert request.chosen() == {0, 8, 9, 10}
    assert (request.first_step, request.last_step) == (3, 5)
    assert request.device_file_lines() == [
        "trace_ranks=0-0",
        "trace_ranks=8-10",
        "trace_first_step=3",
        "trace_last_step=5",
    ]
    assert [file.name for file in request.files()] == ["t.rank0.json", "t.rank8.json", "t.rank9.json", "t.rank10.json"]
    assert list(tmp_path.iterdir()) == []


def test_all_ranks_and_steps_by_default_one_file_for_perfetto(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    request = resolve(str(tmp_path / "t.pftrace"), None, None, 4)
    assert request is not None
    assert (request.chosen(), request.first_step, request.last_step) == ({0, 1, 2, 3}, 1, (1 << 64) - 1)
    assert request.files() == [tmp_path / "t.pftrace"]


def test_one_step_and_from_a_step_on(tmp_path: Path) -> None:
    one = resolve(str(tmp_path / "t.json"), None, "3", 1)
    rest = resolve(str(tmp_path / "t.json"), None, "3-", 1)
    assert one is not None
    assert (one.first_step, one.last_step) == (3, 3)
    assert rest is not None
    assert (rest.first_step, rest.last_step) == (3, (1 << 64) - 1)


def test_a_folder_and_the_name_that_tensorboard_looks_for(tmp_path: Path) -> None:
    folder = resolve(str(tmp_path), "1", None, 2)
    assert folder is not None
    assert folder.files() == [tmp_path / "rank1.json"]
    made = resolve(f"{tmp_path / 'new'}/", "0", None, 2)
    assert made is not None
    assert made.files() == [tmp_path / "new" / "rank0.json"]
    assert (tmp_path / "new").is_dir()
    named = resolve(str(tmp_path / "job.pt.trace.json"), "1", None, 2)
    assert named is not None
    assert named.files() == [tmp_path / "job.rank1.pt.trace.json"]


@pytest.mark.parametrize(
    ("file", "ranks", "steps", "said"),
    [
        (None, "0", None, "--trace-ranks without --trace"),
        (None, None, "1", "--trace-steps without --trace"),
        ("t.txt", None, None, "names no form"),
        ("t.json", "4", None, "ranks 0 to 3"),
        ("t.json", "2-1", None, "ranks 0 to 3"),
        ("t.json", "x", None, "expected ranks"),
        ("t.json", "9" * 5000, None, "expected ranks"),
        ("t.json", None, "9" * 5000, "expected steps"),
        ("t.json", None, "0", "the first step is 1"),
        ("t.json", None, "5-3", "expected steps"),
        ("missing/t.json", None, None, "cannot be written"),
        ("missing/folder/", None, None, "cannot be made"),
    ],
)
def test_what_is_refused(tmp_path: Path, file: str | None, ranks: str | None, steps: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(None if file is None else f"{tmp_path}/{file}", ranks, steps, 4)
