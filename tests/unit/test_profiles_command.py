"""`phantora-async profiles merge`."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiles
from phantora_async import cli

COPIES = ("copy;d2d;1024;pinned", "copy;d2d;2048;pinned")


def table(path: Path, gpu: str, *times: tuple[str, int]) -> str:
    made = profiles.Table()
    made.add({"gpu": gpu, "command": path.name}, [profiles.Measured(text, ns, None, 3, 0) for text, ns in times])
    profiles.save_table(path, made)
    return str(path)


def test_the_later_table_s_time_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = table(tmp_path / "a.times", "NVIDIA H200", (COPIES[0], 100), (COPIES[1], 200))
    second = table(tmp_path / "b.times.gz", "NVIDIA H200", (COPIES[1], 300))
    third = table(tmp_path / "c.times", "NVIDIA H200", (COPIES[1], 400))
    out = tmp_path / "all.times.gz"
    assert cli.run(["profiles", "merge", first, second, third, "-o", str(out)]) == 0
    found = profiles.load_table(out)
    assert sorted(one.solo_ns for one in found.times.values()) == [100, 400]
    assert [origin["command"] for origin in found.origins] == ["a.times", "c.times"]
    assert "2 times of NVIDIA H200, from 3 tables" in capsys.readouterr().out


def test_what_cannot_be_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = table(tmp_path / "a.times", "NVIDIA H200", (COPIES[0], 100))
    other = table(tmp_path / "b.times", "NVIDIA B200", (COPIES[0], 100))
    out = ["-o", str(tmp_path / "c.times")]
    for arguments, fault in (
        ([first, *out], "name at least two tables"),
        ([first, first], "name the merged table with -o FILE"),
        ([first, other, *out], "different GPUs: NVIDIA B200, NVIDIA H200"),
        ([first, str(tmp_path / "nonesuch.times"), *out], "nonesuch.times: cannot be read"),
        ([first, first, "-o", str(tmp_path / "c.toml")], "expected a file in an existing folder"),
    ):
        assert cli.run(["profiles", "merge", *arguments]) == 2
        assert fault in capsys.readouterr().err
    assert cli.run(["profiles", "show", "h200", "h100", "b200"]) == 2
    assert "too many arguments" in capsys.readouterr().err
    assert not (tmp_path / "c.times").exists()
