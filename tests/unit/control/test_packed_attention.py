"""What Transformer Engine's fused attention tells of its sequences, with values that are known and that are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.control.extensions.attention import together
from emu.control.extensions.packed_attention import told

LENGTHS = (1024, 512, 256, 256)


class Fake:
    """A tensor, as far as it is asked for its size."""

    def __init__(self, *size: int) -> None:
        self._size = size

    def size(self, dim: int) -> int:
        return self._size[dim]

    def dim(self) -> int:
        return len(self._size)

    def numel(self) -> int:
        return self._size[0]


def fused_attn_fwd(
    is_training: bool,
    cu_seqlens_q: Any,
    cu_seqlens_kv: Any,
    q: Any,
    k: Any,
    attn_mask_type: str = "padding",
    window_size: tuple[int, int] = (-1, -1),
) -> str:
    return "attended"


def attend(q: Fake, known: bool, **kwargs: Any) -> list[Any]:
    """Returns what the hook is told by a call: first of its sequences, then of their end."""
    ends = [0]
    for one in LENGTHS:
        ends.append(ends[-1] + one)
    calls: list[Any] = []
    control: Any = SimpleNamespace(
        hook=SimpleNamespace(sequences=calls.append), values_to_come=lambda _: ends if known else None
    )
    found = told(control, fused_attn_fwd)(True, Fake(5), Fake(5), q=q, k=q, **kwargs)
    assert found == "attended"
    return calls


@pytest.mark.parametrize("mask", ["padding_causal", "padding"])
def test_lengths_that_are_known_are_told(mask: str) -> None:
    (first, end) = attend(Fake(2048, 16, 128), True, attn_mask_type=mask)
    expected = together(tuple((one, one) for one in LENGTHS), None, 0 if mask == "padding_causal" else None)
    assert end is None
    assert first == pytest.approx(expected, rel=0.03)  # numbers of batches are rounded


def test_a_window_is_counted() -> None:
    (first, _) = attend(Fake(2048, 16, 128), True, attn_mask_type="padding_causal", window_size=(128, 0))
    assert first == pytest.approx(together(tuple((one, one) for one in LENGTHS), 128, 0), rel=0.03)


def test_packed_sequences_count_as_equally_long_where_lengths_are_not_known() -> None:
    (first, _) = attend(Fake(2048, 16, 128), False, attn_mask_type="padding_causal")
    assert first == together(((512, 512),), None, 0, 4)


def test_padded_sequences_are_full_where_lengths_are_not_known() -> None:
    assert attend(Fake(4, 1024, 16, 128), False) == []
    (first, _) = attend(Fake(4, 1024, 16, 128), True)
    assert first == pytest.approx(together(tuple((one, one) for one in LENGTHS), None, None), rel=0.03)


def test_without_padding_all_sequences_are_full() -> None:
    assert attend(Fake(4, 1024, 16, 128), True, attn_mask_type="causal") == []
