"""Facts and descriptions with one resource twice as fast."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from emu.contract.records import MarkerKind, ScopeKind
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.reasons import what_if
from phantora_async.reasons.contents import COMPUTE, COPIES, Contents
from phantora_async.reasons.window import Window
from phantora_async.virtual_time import UnseenFact
from profiles import CostModel, Gpu, load_cluster, load_gpu

GEMM = "gemm;cublasGemmEx;t;n;8192;8192;8192;1;bf16;bf16;bf16;f32;default;aten::mm;[[8192, 8192], [8192, 8192]]"
COPY = "copy;d2d;268435456;pinned"
FROM_HOST, TO_HOST = "copy;h2d;268435456;pinned", "copy;d2h;268435456;pageable"
FILL = "memset;268435456"
GPU = load_gpu("h200")
GAP_NS = GPU.achieved.launch_gap_ns


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    """Returns the kernels of content 1: two products, a copy and a fill."""
    costs = Costs(CostModel(GPU), CostTable(tmp_path / "costs", 64))
    for key, signature in enumerate((GEMM, COPY, FILL), 1):
        costs.answer(decoded(records.Cost.encode(0, 1, key, payload=signature.encode())))
    return Contents({1: Counter({1: 2, 2: 1, 3: 1})}, costs)


def decoded(encoded: bytes) -> Any:
    (record,), _ = records.decode_up(encoded)
    return record


def durations(gpu: Gpu) -> tuple[int, int]:
    """Returns the times alone and beside NCCL, as the hook library folds content 1."""
    model = CostModel(gpu)
    costs = [model.cost(signature) for signature in (GEMM, GEMM, COPY, FILL)]
    return sum(cost.solo_ns + GAP_NS for cost in costs), sum(cost.contended_ns + GAP_NS for cost in costs)


def segment(solo_ns: int, contended_ns: int, launched_ns: int = 0, content: int = 1) -> Any:
    """Returns a segment whose kernels all come after the last launch."""
    return decoded(records.Segment.encode(40, 1, 4, solo_ns, contended_ns, launched_ns + solo_ns, solo_ns, content))


def priced(facts: list[list[Any]], contents: Contents, gpu: Gpu, step: int = 1) -> list[list[Any]]:
    """Returns the facts as they were on that GPU. `step`: the number of the step that the facts are; those before were
    the same.
    """
    return what_if.Before(Window(facts, -1, 0, step, 0), contents, GPU).on(gpu, CostModel(gpu), facts)


@pytest.mark.parametrize("faster", [what_if.faster_compute, what_if.faster_memory])
def test_segments_take_what_their_kernels_take_on_the_other_gpu(contents: Contents, faster: Any) -> None:
    before, after = durations(GPU), durations(faster(GPU))
    ((found,),) = priced([[segment(*before, launched_ns=700)]], contents, faster(GPU))
    assert after[0] < before[0]
    assert (found.solo_ns, found.contended_ns) == after
    assert found.tail_ns == 700 + after[0]


def test_what_the_power_limit_adds_changes_with_the_kernels(contents: Contents) -> None:
    solo_ns, contended_ns = durations(GPU)
    faster_ns, _ = durations(what_if.faster_compute(GPU))
    work_ns, faster_work_ns = solo_ns - 4 * GAP_NS, faster_ns - 4 * GAP_NS
    slowed = segment(solo_ns + work_ns // 10, contended_ns + work_ns // 10)
    ((found,),) = priced([[slowed]], contents, what_if.faster_compute(GPU))
    assert found.solo_ns == pytest.approx(4 * GAP_NS + 1.1 * faster_work_ns, rel=1e-6)


def test_a_gpu_that_draws_more_falls_deeper(contents: Contents) -> None:
    """Many steps of products: on the faster GPU they draw the same power as before, and the copies a larger share."""
    solo_ns, contended_ns = durations(GPU)
    step = decoded(records.Marker.encode(0, MarkerKind.STEP, 0))
    facts = [[segment(solo_ns, contended_ns), step]]
    ((early, _),) = priced(facts, contents, what_if.faster_memory(GPU))
    ((late, _),) = priced(facts, contents, what_if.faster_memory(GPU), step=1000)
    assert early.solo_ns == durations(what_if.faster_memory(GPU))[0]
    assert late.solo_ns > 1.005 * early.solo_ns


def test_a_faster_host_leaves_the_gpu_less_time_to_rest(contents: Contents) -> None:
    solo_ns, contended_ns = durations(GPU)
    step = decoded(records.Marker.encode(0, MarkerKind.STEP, 0))
    waits = decoded(records.HostWait.encode(0, ScopeKind.DEVICE, 0, 0))
    works = decoded(records.HostAdvance.encode(solo_ns // 3))._replace(nbytes=48)
    facts = [[segment(solo_ns, contended_ns), waits, works, step]]
    before = what_if.Before(Window(facts, -1, 0, 1000, 0), contents, GPU)
    assert before.on(GPU, None, facts) == facts, "nothing has changed"
    ((hurried, *_),) = before.on(GPU, None, what_if.faster_host(facts))
    assert hurried.solo_ns > 1.003 * solo_ns


def test_a_segment_of_which_nothing_is_known_stays(contents: Contents) -> None:
    unknown = segment(5000, 6000, content=0)
    assert priced([[unknown]], contents, what_if.faster_compute(GPU)) == [[unknown]]


def test_a_faster_host_launches_earlier() -> None:
    facts = [segment(300, 400, launched_ns=1000), decoded(records.StreamDestroy.encode(90, 1, 0))]
    ((launched, other),) = what_if.faster_host([facts])
    assert (launched.host_ns, launched.solo_ns, launched.tail_ns) == (20, 300, 800)
    assert other.host_ns == 45


def test_sleep_takes_as_long_on_a_faster_host() -> None:
    sleep = decoded(records.HostAdvance.encode(1000))
    counts = records.HostAdvance(records.HOST_ADVANCE, 0, 48, 1000, b"")  # in place of LAUNCH_COUNTS
    ((slept, worked, unseen),) = what_if.faster_host([[sleep, counts, UnseenFact.of(1000)]])
    assert (slept.host_ns, worked.host_ns, unseen.host_ns) == (1000, 500, 1000)


def test_rates_within_and_between_servers() -> None:
    cluster = load_cluster("dgx-h100")
    inside, between = what_if.faster_server(cluster), what_if.faster_network(cluster)
    assert inside is not None
    server = cluster.network["server"]
    assert inside.network["server"] == server | {"gpu_gbps": 5874.0, "pcie_gbps": 1008.0}
    assert inside.network["fabric"] == between.network["fabric"] == cluster.network["fabric"]
    assert between.network["server"] == server | {"nic_gbps": 800.0}


def test_shares_of_a_segment_add_up(contents: Contents) -> None:
    found = segment(*durations(GPU))
    for for_ns in (0, 1, 7, 12_345_677):
        assert sum(contents.shares(found.content, for_ns).values()) == for_ns
    shares = contents.shares(found.content, 1_000_000)
    assert shares[1] > shares[2] > shares[3] > 0
    assert [contents.work(key).kind for key in (1, 2, 3)] == [COMPUTE] * 3, "no copy leaves the GPU"


def test_copies_from_and_to_the_host_are_a_kind_of_their_own(tmp_path: Path) -> None:
    """On a GPU with a faster way to its host they take half the time but for their latency, and kernels what they
    took.
    """
    costs = Costs(CostModel(GPU), CostTable(tmp_path / "costs", 64))
    for key, signature in enumerate((FROM_HOST, TO_HOST, COPY), 1):
        costs.answer(decoded(records.Cost.encode(0, 1, key, payload=signature.encode())))
    contents = Contents({1: Counter({1: 1, 2: 1}), 2: Counter({3: 1})}, costs)
    assert [(contents.work(key).kind, contents.work(key).family) for key in (1, 2, 3)] == [
        (COPIES, "h2d"),
        (COPIES, "d2h"),
        (COMPUTE, "copies within the GPU"),
    ]
    copied_ns = sum(costs.priced(key).cost.solo_ns for key in (1, 2))
    copies, kernel = segment(copied_ns + 2 * GAP_NS, 0), segment(70_000, 70_000, content=2)
    ((copies_then, kernel_then),) = priced([[copies, kernel]], contents, what_if.faster_copies(GPU))
    latency_ns = 2 * (GPU.pcie.latency_ns + GAP_NS)
    assert copies_then.solo_ns - latency_ns == pytest.approx((copies.solo_ns - latency_ns) / 2, rel=0.01)
    assert (copies_then.contended_ns, kernel_then) == (0, kernel)
