"""The search for garbage while modules are imported."""

from __future__ import annotations

import gc

import pytest

from phantora_async import garbage


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_looked_for_while_modules_are_imported_and_then_as_before(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        with garbage.importing():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if before else gc.disable()
        gc.unfreeze()


def test_what_modules_have_made_is_not_looked_at_again() -> None:
    gc.collect()
    frozen = gc.get_freeze_count()
    try:
        with garbage.importing():
            made = [[] for _ in range(1000)]
        assert gc.get_freeze_count() >= frozen + len(made)
    finally:
        gc.unfreeze()
