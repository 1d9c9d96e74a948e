"""Recipes that another rank gives for its values are data: nothing in them is executed."""

import os
import pickle

import pytest

from emu.interpreter.hook_library import recipes

torch = pytest.importorskip("torch")


class Calls:
    def __init__(self, function, *arguments):
        self.called = function, arguments

    def __reduce__(self):
        return self.called


def test_numbers_tensors_and_types_are_read():
    told = (
        "kind",
        (torch.bfloat16, torch.Size([2]), torch.strided, torch.preserve_format, torch.device("cpu"), 1 + 2j),
    )
    assert recipes.loads(pickle.dumps(told)) == told
    assert recipes.loads(pickle.dumps([torch.arange(6).reshape(2, 3)]))[0].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "said",
    [
        Calls(os.mkdir, "made"),
        Calls(eval, "__import__('os').mkdir('made')"),
        Calls(torch.storage._load_from_bytes, pickle.dumps(Calls(os.mkdir, "made"))),
        Calls(torch.hub.load, "somebody/anything"),
    ],
    ids=["a call", "an expression", "a call within a tensor's bytes", "a function of PyTorch"],
)
def test_what_would_be_called_is_refused(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LookupError, match="no recipe"):
        recipes.loads(pickle.dumps([said]))
    assert os.listdir(tmp_path) == []


def test_damaged_bytes_are_refused():
    whole = pickle.dumps(("kind", (1, 2)))
    for told in (b"", whole[:-3], b"\x80\x05garbage"):
        with pytest.raises(LookupError, match="no recipe"):
            recipes.loads(told)
