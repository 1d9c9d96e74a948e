"""Entries of Inductor's cache on GPUs of other numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from emu.compiler import any_device, graph_cache
from emu.compiler.any_device import for_own_device, name_own_device, renumber

WRAPPER = """\
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
    triton_meta={'device': DeviceProperties(type='cuda', index=1, multi_processor_count=132)},
''', device_str='cuda')
def call(args):
    with torch.cuda._DeviceGuard(1):
        torch.cuda.set_device(1)
        buf0 = empty_strided_cuda((11, 1), (1, 1), torch.float32)
        stream1 = get_raw_stream(1)
        triton_poi_fused_add_0.run(buf0, 1, 11, stream=stream1)
        buf1 = torch.ops.aten.full.default([1], 1, device=device(type='cuda', index=1))
        buf2 = torch.ops.aten.full.default([1], 1, device=device(type='cuda', index=11))
        buf3 = rand_strided((1,), (1,), device='cuda:1')
"""


def test_a_wrapper_is_renumbered_where_it_names_its_gpu() -> None:
    changed = renumber(WRAPPER, 1, 12)
    assert "_DeviceGuard(12)" in changed
    assert "torch.cuda.set_device(12)" in changed
    assert "stream1 = get_raw_stream(12)" in changed
    assert "device=device(type='cuda', index=12)" in changed
    assert "device='cuda:12'" in changed


def test_renumbering_changes_nothing_else() -> None:
    changed = renumber(WRAPPER, 1, 12)
    assert "DeviceProperties(type='cuda', index=1," in changed, "kernels are known by their source"
    assert "device(type='cuda', index=11)" in changed, "another GPU"
    assert "empty_strided_cuda((11, 1), (1, 1), torch.float32)" in changed
    assert ".run(buf0, 1, 11, stream=stream1)" in changed
    assert renumber(changed, 12, 1) == WRAPPER


@pytest.mark.parametrize("code", ["full([], 0, device=device(type='cuda', index={}))", "full([], 0, device='cuda:{}')"])
def test_graphs_that_differ_by_the_own_gpu_have_the_same_key(code: str) -> None:
    assert name_own_device(code.format(0), 0) == name_own_device(code.format(3), 3)
    assert name_own_device(code.format(0), 0) != name_own_device(code.format(0), 3), "a second GPU is another graph"


class Properties(NamedTuple):
    """The properties of a GPU, as torch describes it to kernels."""

    type: str
    index: int | None


class Kernel:
    """A stand-in for an autotuner, as far as it is looked at: its folder of code has the number of the GPU."""

    def __init__(self, index: int | None) -> None:
        self.device_props = Properties("cuda", index)
        self.triton_meta = {"device": index, "signature": {}}
        self.loaded_on: list[int | None] = []
        result = SimpleNamespace(compile_meta={"device": index}, kernel=SimpleNamespace(cubin_path=None))
        result.reload_cubin_path = lambda: setattr(
            result.kernel, "cubin_path", f"triton/{result.compile_meta['device']}"
        )
        self.compile_results = [result]

    def _make_launchers(self) -> None:
        (result,) = self.compile_results
        assert self.device_props.index == self.triton_meta["device"] == result.compile_meta["device"]
        self.loaded_on.append(self.device_props.index)


class OneName:
    """A stand-in for names of torch's, of which there is one."""

    def change(self, path: str, make: Any) -> None:
        assert path == "CachingAutotuner._make_launchers"
        self.made = make(Kernel._make_launchers)


def loaded(index: int | None, own: int, devices: int) -> Kernel:
    """A kernel that was compiled for the GPU `index`, on a rank with another one."""
    names, kernel = OneName(), Kernel(index)
    any_device.load_on_own_device(names, lambda: own, lambda: devices)  # type: ignore[arg-type]
    names.made(kernel)
    return kernel


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_device, "_MOVED", set())


def test_a_kernel_of_a_gpu_that_is_not_there_is_loaded_on_the_own_one() -> None:
    kernel = loaded(1, own=0, devices=1)
    assert kernel.loaded_on == [0]
    assert kernel.compile_results[0].kernel.cubin_path == "triton/1", "where its code is"


def test_kernels_of_a_graph_that_is_renumbered_are_loaded_on_the_own_gpu() -> None:
    assert loaded(1, own=0, devices=2).loaded_on == [1], "of another model of this process, on its second GPU"
    graph = SimpleNamespace(source_code=WRAPPER, cache_key="", device_idxs={1}, phantora_device=1)
    assert for_own_device(graph, 0, lambda code: str(len(code))).device_idxs == {0}
    assert loaded(1, own=0, devices=2).loaded_on == [0]
    assert loaded(0, own=0, devices=2).loaded_on == [0]


def test_torch_itself_finds_the_gpu_of_a_kernel_that_names_none() -> None:
    assert loaded(None, own=0, devices=1).loaded_on == [None]


class Part:
    """The forward or the backward pass of an entry of AOTAutograd's cache."""

    def __init__(self, graph: SimpleNamespace) -> None:
        self.result = graph

    def pre_save(self) -> None:
        self.result = SimpleNamespace(**vars(self.result))


class Entry(NamedTuple):
    """An entry of AOTAutograd's cache that holds its compiled graphs."""

    compiled_fw: Part
    compiled_bw: Part | None = None


class Serializable:
    """A compiled function that can be stored. Others take `serialize_fn` from it."""

    serialize_fn: Any

    def __init__(self, compiled_fn: Any, serialize_fn: Any) -> None:
        self.serialize_fn = serialize_fn


def stored(names: dict[str, Any], entry: Entry) -> Entry:
    function = Serializable.__new__(Serializable)
    names["SerializableCompiledFunction.__init__"](function, None, lambda: entry)
    found = function.serialize_fn()
    assert isinstance(found, Entry)
    return found


class EntryNames:
    """The names that are changed: of an entry's class, of the cache, and of what a program stores."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.there: dict[str, Any] = {
            "BundledOutputCodeLoadable.pre_save": Part.pre_save,
            "SerializableCompiledFunction.__init__": Serializable.__init__,
            "AOTAutogradCache.iterate_over_candidates": lambda *_: ((entry, b"pickled", True) for entry in entries),
        }

    def get(self, path: str) -> Any:
        return {"code_hash": lambda code: str(len(code))}[path]

    def change(self, path: str, make: Any) -> None:
        self.there[path] = make(self.there[path])


@dataclass(frozen=True)
class Artifacts:
    """The files of a kernel."""

    kernel_hash: str
    device: int


@dataclass(frozen=True)
class Kernels:
    """The kernels that come with a graph."""

    kernel_artifacts: list[Artifacts]
    static_autotuners: list[str]


def changed(monkeypatch: pytest.MonkeyPatch, own: int, *entries: Entry) -> dict[str, Any]:
    """The functions by which a process with the GPU `own` looks entries up and stores them."""
    names = EntryNames(entries)
    graph_cache._graphs_within_entries(names)  # type: ignore[arg-type]
    monkeypatch.setattr(graph_cache, "_own_device", lambda: own)
    return names.there


def entry_of_gpu_1(monkeypatch: pytest.MonkeyPatch) -> Entry:
    kernels = Kernels([Artifacts("hash", 1)], ["triton_poi_fused_add_0"])
    graph = SimpleNamespace(source_code=WRAPPER, cache_key="", device_idxs={1}, _triton_bundle=kernels)
    part = Part(graph)
    changed(monkeypatch, 1)["BundledOutputCodeLoadable.pre_save"](part)
    return Entry(part)


def test_a_graph_within_an_entry_runs_on_the_gpu_of_the_rank_that_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of_gpu_1(monkeypatch)
    look_up = "AOTAutogradCache.iterate_over_candidates"
    ((found, content, local),) = changed(monkeypatch, 1, entry)[look_up]("local", None, "key")
    assert found.compiled_fw.result.source_code == WRAPPER
    assert (content, local) == (b"pickled", True)
    ((found, *_),) = changed(monkeypatch, 0, entry)[look_up]("local", None, "key")
    assert found.compiled_fw.result.source_code == renumber(WRAPPER, 1, 0) != WRAPPER
    assert found.compiled_fw.result.device_idxs == {0}


def test_what_a_program_stores_names_its_own_gpu_as_if_it_had_compiled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of_gpu_1(monkeypatch)
    assert stored(changed(monkeypatch, 1), entry).compiled_fw.result.source_code == WRAPPER
    graph = stored(changed(monkeypatch, 0), entry).compiled_fw.result
    own = WRAPPER.replace("type='cuda', index=1,", "type='cuda', index=0,")
    assert graph.source_code == renumber(own, 1, 0)
    assert graph._triton_bundle == Kernels([Artifacts("hash", 0)], []), "kernels are loaded from their files"
    kernel = Kernel(0)
    assert not any_device.is_of_another_gpu(kernel, devices=2)


def test_an_entry_without_code_of_inductor_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = changed(monkeypatch, 0)
    part = Part(SimpleNamespace(graph="of regions"))
    there["BundledOutputCodeLoadable.pre_save"](part)
    assert vars(stored(there, Entry(part)).compiled_fw.result) == {"graph": "of regions"}
