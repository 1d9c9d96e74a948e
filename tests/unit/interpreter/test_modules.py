"""Names of modules: the class of the outermost one, the attributes that lead to a module, and its class."""

from __future__ import annotations

import torch
from torch import nn

from emu.interpreter.modules import names


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(1, 1), nn.GELU()) for _ in range(2))


def test_a_module_is_named_by_its_path() -> None:
    net = Net()
    wanted = [net, net.blocks[1][0], net.blocks[0], net.blocks]
    assert names([id(one) for one in wanted]) == [
        "Net\nNet",
        "Net\tblocks\t1\t0\nLinear",
        "Net\tblocks\t0\nSequential",
        "Net\tblocks\nModuleList",
    ]


def test_an_object_that_is_no_module_any_more_has_no_name() -> None:
    assert names([id(torch.zeros(1)), 8]) == ["", ""]


def test_a_module_that_has_itself_has_a_name() -> None:
    knot = nn.Module()
    knot.add_module("again", knot)
    assert names([id(knot)]) == ["Module\tagain\nModule"]
