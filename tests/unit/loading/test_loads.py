"""Batches that an ordinary step takes from loaders, whatever evaluations take between steps."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from emu.interpreter.hook_library import Hook
from emu.loading.loads import Load, Loads, OrdinarySteps


class Images:
    pass


class Tests:
    pass


def of(loads: Loads, dataset: Any) -> Load:
    return loads.of(SimpleNamespace(_dataset=dataset(), _num_workers=0))


def taken(steps: Sequence[tuple[int, int]]) -> OrdinarySteps:
    """Returns the ordinary steps where so many batches of two loaders come before each step's end, for each of which
    the program waits 10 ns.
    """
    loads = Loads(cast(Hook, None))
    for counts in steps:
        for dataset, count in zip((Images, Tests), counts, strict=True):
            if count:
                of(loads, dataset).batches += count
                of(loads, dataset).waited_ns += 10 * count
        loads.step_ends()
    return loads.ordinary_steps()


def test_an_evaluation_every_so_many_steps_does_not_count() -> None:
    assert taken([(1, 0), (1, 50), (1, 0), (1, 0), (1, 50), (1, 0)]) == OrdinarySteps(1, 10, (3, 0))


def test_an_evaluation_by_a_loader_that_is_alike_does_not_count() -> None:
    assert taken([(1, 0), (51, 0), (1, 0), (1, 0)]) == OrdinarySteps(1, 10, (2,))


def test_loaders_that_take_turns_count_together() -> None:
    assert taken([(1, 0), (0, 1), (1, 0), (0, 1), (1, 0)]) == OrdinarySteps(1, 10, (2, 2))


def test_waits_count_in_the_mean() -> None:
    assert taken([(2, 0), (2, 0), (0, 0), (2, 0), (2, 0)]) == OrdinarySteps(2, 15, (6,))


def test_batches_before_the_second_step_do_not_count() -> None:
    assert taken([(80, 0), (2, 0)]) == OrdinarySteps(2, 20, (2,))


def test_of_one_step_its_batches_are_all_that_is_known() -> None:
    assert taken([(3, 0)]) == OrdinarySteps(3, 30, (3,))
    assert taken([]) == OrdinarySteps()
