"""Which tensors of a call have memory whose values can be known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.control.control_tensors import ControlTensors

torch = pytest.importorskip("torch")


class Fake:
    """A tensor, as far as it is asked where it is and how it is laid out."""

    def __init__(self, layout: Any = torch.strided, is_cuda: bool = True) -> None:
        self.layout = layout
        self.is_cuda = is_cuda


def test_sparse_tensors_have_no_memory_of_their_own() -> None:
    """The gradient of a sparse embedding, whose inputs were yet to arrive, ended the run: it has no storage."""
    control: Any = SimpleNamespace(tensor_type=Fake, _strided=torch.strided)
    control.all_tensors = lambda values: ControlTensors.all_tensors(control, values)
    dense, sparse, host = Fake(), Fake(torch.sparse_coo), Fake(is_cuda=False)
    assert control.all_tensors([dense, sparse, host, [sparse, dense], 3, None]) == [dense, dense]
