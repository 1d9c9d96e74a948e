"""One rank computes a sharding, others take it with their own mesh; what may depend on the rank is not shared."""

from __future__ import annotations

import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
if not torch.backends.cuda.is_built():
    pytest.skip("needs a CUDA build of PyTorch", allow_module_level=True)

from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta  # noqa: E402
from torch.distributed.tensor._op_schema import OpSchema, RuntimeSchemaInfo  # noqa: E402
from torch.distributed.tensor.placement_types import Placement, _StridedShard  # noqa: E402

from emu.keeping.client import Client  # noqa: E402
from emu.sharding.encoding import Encoding  # noqa: E402
from emu.sharding.propagation import functions_for  # noqa: E402
from emu.sharding.results import Results, follows_from_name  # noqa: E402

from ..keeping.running import running_keeper  # noqa: E402

aten = torch.ops.aten
PROPAGATOR: Any = DTensor._op_dispatcher.sharding_propagator
SHARDED, WHOLE = Shard(0), Replicate()


def mesh_of(rank: int, sizes: tuple[int, ...] = (4,)) -> DeviceMesh:
    ranks = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    return DeviceMesh(
        "cpu", ranks, mesh_dim_names=("replicate", "shard")[-len(sizes) :], _init_backend=False, _rank=rank
    )


def spec(mesh: DeviceMesh, rows: int, *placements: Placement) -> DTensorSpec:
    meta = TensorMeta(torch.Size([rows, 8]), (8, 1), torch.float32)
    return DTensorSpec(mesh, placements or (SHARDED,) * mesh.ndim, meta)


def norms(mesh: DeviceMesh, n: int = 20, order: float = 2.0) -> OpSchema:
    tensors = [spec(mesh, 8 * (1 + i % 3)) for i in range(n)]
    return OpSchema(aten._foreach_norm.Scalar, (tensors, order), {}, RuntimeSchemaInfo(1, needs_pytree=True))


def products(mesh: DeviceMesh, *placements: Placement) -> OpSchema:
    """Tensors times others of the same shapes and these placements, in place."""
    lists = [spec(mesh, 8) for _ in range(20)], [spec(mesh, 8, *placements) for _ in range(20)]
    return OpSchema(aten._foreach_mul_.List, lists, {}, RuntimeSchemaInfo(needs_pytree=True))


@pytest.fixture(autouse=True)
def _keeper(tmp_path: Path) -> Iterator[None]:
    with running_keeper(tmp_path):
        yield


def results(folder: Path) -> Results:
    return Results(Client(str(folder)), folder / "locks", 2)


class Rank:
    """Asks for results as a rank does, and counts those that it has computed itself."""

    def __init__(self, folder: Path) -> None:
        self.computed = 0
        self._results = results(folder)

    def ask(self, schema: OpSchema) -> Any:
        def compute() -> Any:
            self.computed += 1
            return PROPAGATOR.propagate_op_sharding_non_cached(schema)

        return self._results.get(schema, compute)


def test_the_second_rank_takes_what_the_first_has_computed_on_its_own_mesh(tmp_path: Path) -> None:
    first, second, mesh = Rank(tmp_path), Rank(tmp_path), mesh_of(2)
    computed, taken = first.ask(norms(mesh_of(1))), second.ask(norms(mesh))
    alone = PROPAGATOR.propagate_op_sharding_non_cached(norms(mesh))
    assert (first.computed, second.computed) == (1, 0)
    assert taken.output_spec == computed.output_spec == alone.output_spec
    assert type(taken.output_spec) is type(alone.output_spec)
    assert all(one.mesh is mesh for one in taken.output_spec)
    assert [vars(one) for one in taken.output_spec] == [vars(one) for one in alone.output_spec]


def test_an_operator_without_a_result_is_shared_too(tmp_path: Path) -> None:
    first, second = Rank(tmp_path), Rank(tmp_path)
    assert first.ask(products(mesh_of(1))) == second.ask(products(mesh_of(3)))
    assert (first.computed, second.computed) == (1, 0)


@pytest.mark.parametrize(
    "other",
    [
        lambda: norms(mesh_of(1), n=21),
        lambda: norms(mesh_of(1), order=1.0),
        lambda: norms(mesh_of(1, (8,))),
        lambda: norms(mesh_of(1, (2, 2))),
        lambda: norms(mesh_of(4)),  # a rank outside of the mesh
    ],
)
def test_what_differs_is_computed(tmp_path: Path, other: Callable[[], OpSchema]) -> None:
    first, second = Rank(tmp_path), Rank(tmp_path)
    first.ask(norms(mesh_of(1)))
    second.ask(other())
    assert second.computed == 1


def test_few_tensors_are_computed_by_each_rank(tmp_path: Path) -> None:
    ranks = [Rank(tmp_path) for _ in range(2)]
    for rank in ranks:
        rank.ask(norms(mesh_of(1), n=3))
    assert [rank.computed for rank in ranks] == [1, 1]


def test_a_result_by_which_arguments_are_redistributed_is_not_shared(tmp_path: Path) -> None:
    ranks = [Rank(tmp_path) for _ in range(2)]
    found = [rank.ask(products(mesh_of(1), WHOLE)) for rank in ranks]
    assert all(one.needs_redistribute for one in found), "what this test is about"
    assert [rank.computed for rank in ranks] == [1, 1]


def test_values_that_cannot_be_written_down_are_computed(tmp_path: Path) -> None:
    ranks = [Rank(tmp_path) for _ in range(2)]
    for rank in ranks:
        schema = norms(mesh_of(1))
        schema.args_schema = (schema.args_schema[0], 2.0, object())
        rank._results.get(schema, lambda rank=rank: setattr(rank, "computed", rank.computed + 1))  # type: ignore[misc]
    assert [rank.computed for rank in ranks] == [1, 1]


def test_an_error_is_each_ranks_own(tmp_path: Path) -> None:
    def fail() -> Any:
        raise NotImplementedError("no strategy")

    for _ in range(2):
        with pytest.raises(NotImplementedError):
            results(tmp_path).get(norms(mesh_of(1)), fail)
    later = Rank(tmp_path)
    later.ask(norms(mesh_of(1)))
    assert later.computed == 1


def test_without_a_folder_to_write_to_each_rank_computes(tmp_path: Path) -> None:
    first, second = Rank(tmp_path / "gone"), Rank(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    for rank, mesh in ((first, mesh_of(0)), (second, mesh_of(1))):
        assert rank.ask(norms(mesh)).output_spec
    assert (first.computed, second.computed) == (1, 1)


def test_ranks_that_ask_at_once_wait_for_the_one_that_computes(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    calls: Counter[str] = Counter()
    schema = norms(mesh_of(1))
    result = PROPAGATOR.propagate_op_sharding_non_cached(schema)

    def compute() -> Any:
        calls["compute"] += 1
        begun.set()
        go_on.wait()
        return result

    threads = [threading.Thread(target=results(tmp_path).get, args=(schema, compute)) for _ in range(3)]
    threads[0].start()
    begun.wait()
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert calls["compute"] == 1


def test_only_lists_of_tensors_with_torchs_own_strategy_follow_from_their_name() -> None:
    mesh = mesh_of(1)
    assert follows_from_name(PROPAGATOR, norms(mesh))
    assert follows_from_name(PROPAGATOR, products(mesh))
    view = OpSchema(aten.view.default, (spec(mesh, 8), [64]), {})
    assert not follows_from_name(PROPAGATOR, view), "its result has local sizes"
    own = type("Propagator", (), {"op_strategy_funcs": {aten._foreach_norm.Scalar: lambda schema: None}})
    assert not follows_from_name(own, norms(mesh)), "a strategy of the program's"


@pytest.mark.parametrize("make", [norms, products])
@pytest.mark.parametrize("n", [None, 100])
def test_the_host_time_fits_the_functions_that_the_installed_torch_enters(
    make: Callable[..., OpSchema], n: int | None
) -> None:
    schema = make(mesh_of(1)) if n is None or make is products else make(mesh_of(1), n)
    PROPAGATOR.propagate_op_sharding_non_cached(schema)  # imports what it needs
    entered = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        PROPAGATOR.propagate_op_sharding_non_cached(schema)
    finally:
        sys.setprofile(None)
    # Operators, which it runs on fake tensors, are in our number, too.
    assert 0.7 * entered < functions_for(PROPAGATOR, schema) < 4 * entered


@pytest.mark.parametrize("order", [2.0, float("inf")])
def test_what_is_written_is_read(order: float) -> None:
    mesh = mesh_of(0, (2, 2))
    schema = norms(mesh, order=order)
    result = PROPAGATOR.propagate_op_sharding_non_cached(schema)
    specs = [spec(mesh, 8, Partial("sum"), _StridedShard(0, split_factor=2)), *schema.args_schema[0]]
    for value in (result, tuple(specs), specs):
        assert Encoding([mesh]).decode(Encoding([mesh]).encode(value)) == value


@pytest.mark.parametrize(
    "content", [b'["dtype","load"]', b'["spec",5]', b'["os.system","true"]', b'["mesh",7]', b'{"a":1}', b"[" * 100_000]
)
def test_what_another_program_has_written_is_refused(content: bytes) -> None:
    mesh = mesh_of(0)
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError, RecursionError)):
        Encoding([mesh]).decode(content)
