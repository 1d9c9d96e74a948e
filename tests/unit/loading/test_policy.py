"""The values that `--loaders` accepts."""

from __future__ import annotations

import pytest

from emu.contract.policies.loading_policy import parse


def test_what_is_stated_is_in_nanoseconds() -> None:
    assert (parse("free").takes_time, parse("modelled").takes_time) == (False, True)
    assert [parse(text).stated_ns for text in ("12ms", "0.5s", "1.5us")] == [12_000_000, 500_000_000, 1_500]


@pytest.mark.parametrize("text", ["", "12", "ms", "-1ms", "0ms", "nan", "1e3ms", "2h", "3601s", "Free"])
def test_what_is_neither_a_word_nor_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--loaders"):
        parse(text)
