"""Which elements of an operation's results follow from unknown ones."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from emu.control.unknown_elements import UnknownElements, tensors, tensors_in  # noqa: E402

pytestmark = pytest.mark.torch
NAN = float("nan")
ROWS = torch.tensor([[NAN, 1.0], [2.0, 3.0]])
"""NaN stands for the unknown number."""


def unknown(tensor: Any) -> Any:
    flags = torch.isnan(tensor).flatten().tolist()
    return flags if any(flags) and not all(flags) else any(flags)


def follow(operation: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Flags of the results; the unknown numbers read as 0."""

    def call(*args: Any, **kwargs: Any) -> list[Any]:
        return tensors(operation(*args, **kwargs))

    read = list(tensors_in((*args, *kwargs.values())))
    return UnknownElements(operation, unknown).of(read, args, kwargs, call)


aten = torch.ops.aten
ONE, MANY = torch.tensor(1.0), torch.tensor(NAN)
FIRST = [True, False, False, False]


@pytest.mark.parametrize(
    ("operation", "args", "expected"),
    [
        (aten.add.Tensor, (ROWS, ONE), FIRST),
        (aten.mul_.Tensor, (ROWS, ONE), FIRST),
        (aten.sum.dim_IntList, (ROWS, [1]), [True, False]),
        (aten.sum.dim_IntList, (ROWS, [0]), [True, False]),
        (aten.t.default, (ROWS,), None),
        (aten.cat.default, ([ROWS[0], ROWS[1]],), FIRST),
        (aten.stack.default, ([ONE, MANY],), [False, True]),
        (aten.where.self, (torch.tensor([True, False]), ONE, MANY), [False, True]),
        (aten.index_select.default, (ROWS, 0, torch.tensor([1, 0])), [False, False, True, False]),
        (aten.gt.Tensor, (ROWS, ONE), FIRST),
        (aten.eq.Tensor, (ROWS, ROWS[1]), FIRST),
        (aten.copy_.default, (torch.zeros(2, 2), ROWS[0]), [True, False, True, False]),
        (aten.argmax.default, (ROWS, 1), [True, False]),
        (aten.argmax.default, (ROWS,), None),
        (aten.sort.default, (ROWS, 0), [True, False, True, False]),
        (aten.topk.default, (ROWS, 1, 1), [True, False]),
        (aten.sign.default, (ROWS,), FIRST),
        (aten.linalg_vector_norm.default, (ROWS, 2, [1]), [True, False]),
        (aten.linalg_vector_norm.default, (ROWS, 0, [1]), None),
        (aten.mul.Tensor, (ONE, MANY), None),
    ],
)
def test_elements_that_follow(operation: Any, args: Any, expected: Any) -> None:
    """None: all do, or there is no rule."""
    before = ROWS.clone()
    assert next(iter(follow(operation, *args)), None) == expected
    assert torch.equal(before.isnan(), ROWS.isnan()), "its arguments are left as they are"


def test_places_of_largest_numbers_are_known_with_these() -> None:
    assert follow(aten.max.dim, ROWS, 1) == [[True, False], [True, False]]


@pytest.mark.parametrize(
    ("operation", "index", "taken_from", "expected"),
    [
        (aten.gather.default, [[0, 1], [-1, -1]], [[5.0, 6.0], [7.0, 7.0]], None),
        (aten.gather.default, [[0, 1], [-1, -1]], [[5.0, 6.0], [7.0, 8.0]], [False, False, True, True]),
        (aten.gather.default, [[-1, 1], [0, 1]], [[5.0, 6.0], [7.0, NAN]], [True, False, False, True]),
        (aten.index_select.default, [-1, 1], [[5.0, 6.0], [7.0, 7.0]], [True, False, False, False]),
    ],
)
def test_an_unknown_index_takes_one_of_equal_elements(
    operation: Any, index: Any, taken_from: Any, expected: Any
) -> None:
    """-1 stands for an unknown index, which reads as 0."""

    def of(tensor: Any) -> Any:
        if tensor.dtype != torch.int64:
            return unknown(tensor)
        flags = (tensor < 0).flatten().tolist()
        return flags if any(flags) and not all(flags) else any(flags)

    args = (torch.tensor(taken_from), 1, torch.tensor(index))
    found = UnknownElements(operation, of).of([args[0], args[2]], args, {}, lambda *a: [])
    assert found == [expected or [False] * 4]
