"""Functions of C and C++ that the hook library relies on."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from emu.private import symbols
from emu.private.changes import Changes

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.mark.versions
def test_a_symbol_that_is_missing_is_told_and_one_of_a_newer_version_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.cuda.is_built():
        pytest.skip("needs a CUDA build of PyTorch")
    known = symbols.read()
    gone = dataclasses.replace(known[0], id="GONE", name="_ZN2at4goneEv")
    later = dataclasses.replace(gone, id="LATER", since="99.1")
    of_python = dataclasses.replace(gone, id="OF_PYTHON", library="python", name="_PyEval_Gone", since="3.11")
    monkeypatch.setattr(symbols, "read", lambda: [*known, gone, later, of_python])
    changes = Changes()
    changes.check_symbols()
    assert set(changes.left_out) == {"GONE", "OF_PYTHON"}
    version = torch.__version__.partition("+")[0]
    assert changes.left_out["GONE"] == f"PyTorch {version} has no _ZN2at4goneEv in libtorch_cpu.so: {known[0].lost}"
    assert changes.left_out["OF_PYTHON"].startswith(f"Python {sys.version.split()[0]} has no _PyEval_Gone in python")


def test_an_import_table_is_read() -> None:
    replaced = next(symbol for symbol in symbols.read() if symbol.way == symbols.REPLACED)
    assert symbols.state(replaced).value == "ok"
    assert symbols.state(dataclasses.replace(replaced, name="pthread_cond_gone")).value == "missing"
