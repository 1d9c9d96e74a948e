"""Texts of faults: what they mean, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_async.faults import (
    EccRetry,
    Fault,
    FaultError,
    FlappingLink,
    JitteryHost,
    SlowGpu,
    SlowHost,
    SlowLink,
    SlowLoader,
    parse,
    read_faults,
)
from phantora_async.faults.kinds import DeadGpu, DeadNic, DeadNode, Period
from phantora_async.faults.pace import NEVER

MS, S = 10**6, 10**9


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("gpu 17 at 0.7x", SlowGpu(17, 700_000, Period())),
        ("gpu 17 at 0.7x from 3s", SlowGpu(17, 700_000, Period(3 * S))),
        ("gpu 0 at 0.123456x from 1500us until 2s", SlowGpu(0, 123_456, Period(1_500_000, 2 * S))),
        ("gpu 3 at 1x until 10s", SlowGpu(3, 10**6, Period(0, 10 * S))),
        ("gpu 3 ecc retry 20ms at 1s", EccRetry(3, 20 * MS, S)),
        ("link leaf0-spine1 at 0.5x from 1m until 2h", SlowLink("leaf0-spine1", 500_000, Period(60 * S, 7200 * S))),
        ("link leaf0:up1 down from 2s until 3s", SlowLink("leaf0:up1", 0, Period(2 * S, 3 * S))),
        ("link a-b flaps every 10s down 2s from 5s", FlappingLink("a-b", 10 * S, 2 * S, Period(5 * S, NEVER))),
        ("host 1 at 0.5x", SlowHost(1, 500_000, Period())),
        ("host 1 jitter 5% seed 7", JitteryHost(1, 50_000, 10 * MS, 7)),
        ("host 1 jitter 0.25% every 1ms seed 0", JitteryHost(1, 2_500, MS, 0)),
        ("loader 2 +50ms every 10 batches", SlowLoader(2, 50 * MS, 10)),
        ("gpu 17 dead at 3s", DeadGpu(17, Period(3 * S))),
        ("gpu 17 dead at 3s until 5s", DeadGpu(17, Period(3 * S, 5 * S))),
        ("node 2 dead at 5s", DeadNode(2, Period(5 * S))),
        ("nic node000/nic2 dead at 1s", DeadNic("node000/nic2", Period(S))),
    ],
)
def test_a_text_and_back(text: str, fault: Fault) -> None:
    assert parse(text) == fault
    assert str(fault) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("gpu 17 dead at 3s for 60s", "gpu 17 dead at 3s until 63s"),
        ("gpu  17  at 0.70x   from 3000ms", "gpu 17 at 0.7x from 3s"),
        ("gpu 17 at 0.7x from 3s for 2s", "gpu 17 at 0.7x from 3s until 5s"),
        ("gpu 17 at 0.7x for 2s", "gpu 17 at 0.7x until 2s"),
        ("gpu 17 at 0.7x from 0.5s", "gpu 17 at 0.7x from 500ms"),
        ("loader 2 +50ms every 1 batch", "loader 2 +50ms every 1 batches"),
    ],
)
def test_other_ways_to_say_the_same(text: str, same: str) -> None:
    assert str(parse(text)) == same


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("", "the text is empty", "forms: "),
        ("gpus 17 at 0.7x", "expected gpu or node or nic or link or host or loader, found gpus", "did you mean gpu?"),
        ("gpu x at 0.7x", "after 'gpu': expected the number of a rank, found x", ""),
        ("gpu 17 dead", "after 'dead': expected at, found the end", "forms: "),
        ("node 2 dead at 5s for 2s", "after '5s': expected the end, found for", ""),
        ("nic node000/nic2 dead at 5s for 2s", "after '5s': expected the end, found for", ""),
        ("gpu 17", "after '17': expected at or ecc or dead, found the end", "forms: "),
        ("gpu 17 at 0.7", "after 'at': expected a share of the speed such as 0.7x, found 0.7", "did you mean 0.7x?"),
        ("gpu 17 at 70%", "expected a share of the speed", "did you mean 0.7x?"),
        ("gpu 17 at 1.5x", "expected a share above 0x and at most 1x", ""),
        ("gpu 17 at 0x", "expected a share above 0x", ""),
        ("gpu 17 at 0.1234567x", "with at most six decimals", ""),
        ("gpu 17 at 0.7x from 3", "expected a time such as 500ms", "did you mean 3s?"),
        ("gpu 17 at 0.7x from 3sec", "expected a time", "did you mean 3s?"),
        ("gpu 17 at 0.7x form 3s", "expected from, until, for or the end, found form", "did you mean from?"),
        ("gpu 17 at 0.7x from 3s until 3s", "expected an end after the beginning", ""),
        ("gpu 17 at 0.7x from 3s 4s", "after '3s': expected from, until, for or the end, found 4s", ""),
        ("gpu 17 ecc retry 0s at 1s", "expected a time of more than 0", ""),
        ("link a-b flaps every 1s down 1s", "expected a time shorter than that between two flaps", ""),
        ("host 0 jitter 5 seed 7", "expected a percentage such as 5%, found 5", "did you mean 5%?"),
        ("host 0 jitter 60% seed 7", "at most 50%", ""),
        ("host 0 jitter 5%", "expected seed, found the end", "forms: "),
        ("loader 0 50ms every 2 batches", "expected +a time such as +500ms", ""),
        ("loader 0 +50ms every 0 batches", "a number of batches of at least 1", ""),
        ("gpu 17 at 0.7x from 999h", "at most 13 days", ""),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str, hint: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse(text)
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_a_file_of_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text('faults = [\n  "gpu 17 at 0.7x",\n  "host 1 jitter 5% seed 7",\n]\n')
    assert list(map(str, read_faults(path))) == ["gpu 17 at 0.7x", "host 1 jitter 5% seed 7"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("faults = 3", "faults.toml:1: faults: expected a list"),
        ('\nfault = ["gpu 1 at 0.7x"]', "faults.toml: faults: missing"),
        ("faults = []\nextra = 1", "faults.toml:2: extra: unknown key"),
        ('faults = ["gpu 1 at 2x"]', "expected a share above 0x and at most 1x, with at most six decimals, found 2x"),
        ("faults = [", "not TOML"),
    ],
)
def test_a_wrong_file_names_its_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(content)
    with pytest.raises(FaultError) as caught:
        read_faults(path)
    assert said in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match=r"none.toml"):
        read_faults(tmp_path / "none.toml")
