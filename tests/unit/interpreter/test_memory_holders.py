"""Which memory the interpreter's tensors hold."""

from __future__ import annotations

import warnings

import pytest

from emu.interpreter.memory_holders import find

torch = pytest.importorskip("torch")


def test_tensors_that_a_compiler_traces_with_are_left_alone() -> None:
    """They hold no memory, and their class warns whoever asks for an address."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        traced = torch.nn.Linear(4, 4, device="cuda:0")
    assert traced.weight.is_cuda
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any(find()[0].values())
