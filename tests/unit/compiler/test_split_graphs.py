"""Cached graphs of DistributedDataParallel and what they say that they return."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from emu.compiler import split_graphs

torch = pytest.importorskip("torch")


def _context(**values: Any) -> Any:
    return SimpleNamespace(fakify_first_call=True, fw_metadata=None, **values)


def test_tensors_are_described_without_the_number_of_the_own_gpu() -> None:
    tensor = torch.empty(4, 6, device="meta").t()
    assert split_graphs.describe([tensor, None, 3], 0) == [
        split_graphs.Returned((6, 4), (1, 6), torch.float32, "meta"),
        None,
        3,
    ]


def test_a_graph_for_several_sizes_is_not_described() -> None:
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    fake = mode.from_tensor(torch.empty(4, 6), symbolic_context=context)
    assert split_graphs.describe([fake], 0) is None
    assert split_graphs.describe([object()], 0) is None


class Graph:
    """A cached forward graph."""

    def load(self, arguments: list[Any]) -> str:
        return "loaded"

    def post_compile(self, result: Any, fx_config: Any) -> Callable[[list[Any]], str]:
        assert result == "loaded"
        return lambda arguments: f"computed of {arguments}"


class Entry:
    """A cache entry with the parts that torch's have."""

    def __init__(self) -> None:
        self.compiled_fw: Any = Graph()
        self.maybe_subclass_meta = None
        self.runtime_metadata = "metadata"

    def wrap_post_compile(self, arguments: list[Any]) -> Any:
        return self.compiled_fw.post_compile(self.compiled_fw.load(arguments), {})


@pytest.fixture
def entry_class(monkeypatch: pytest.MonkeyPatch) -> type[Entry]:
    kind = type("Entry", (Entry,), {"wrap_post_compile": Entry.wrap_post_compile})
    kind.wrap_post_compile = split_graphs._returning_fakes(kind.wrap_post_compile)  # type: ignore[attr-defined]
    return kind


def test_only_the_first_call_of_a_cached_graph_returns_fakes(
    entry_class: type[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._subclasses import FakeTensor, FakeTensorMode

    context = _context(fake_mode=FakeTensorMode())
    monkeypatch.setattr(torch._guards.TracingContext, "try_get", staticmethod(lambda: context))
    entry = entry_class()
    entry.phantora_returns = [split_graphs.Returned((2, 3), (1, 2), torch.int64, "cpu"), 7]  # type: ignore[attr-defined]
    call = entry.wrap_post_compile([])
    fake, number = call([1])
    assert isinstance(fake, FakeTensor)
    assert (tuple(fake.shape), fake.stride(), fake.dtype, number) == ((2, 3), (1, 2), torch.int64, 7)
    assert call([2]) == "computed of [2]"
    assert context.fw_metadata == "metadata"


def test_an_entry_that_does_not_say_what_it_returns_is_not_used(
    entry_class: type[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._guards.TracingContext, "try_get", staticmethod(_context))
    with pytest.raises(RuntimeError, match="does not say"):
        entry_class().wrap_post_compile([])


def test_other_graphs_are_as_they_were(entry_class: type[Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._guards.TracingContext, "try_get", staticmethod(lambda: None))
    assert entry_class().wrap_post_compile([])([1]) == "computed of [1]"
