"""A folded run has the report of the run with all processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import Finished, Run, needs
from .folded_jobs import JOBS, compare

pytestmark = pytest.mark.torch
MEGATRON = Path(__file__).parents[2] / "examples" / "megatron_tp_pp.py"
SMALL = (
    *("--layers", "4", "--hidden", "512", "--inner", "1024", "--words", "4096"),
    *("--microbatches", "4", "--steps", "3", "--tp", "2", "--pp", "2"),
)


def test_data_parallel_ranks(run: Run, shared_run: Run) -> None:
    whole = shared_run("ddp_amp.py", n=4)
    folded = run("ddp_amp.py", n=4, options=("--fold", "dp=4", "--fold-apart", "none", "--witness-seed", "1"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.simulated == whole.simulated
    told = folded.report["folding"]
    assert (told["mesh"], told["processes"], told["mirrored"], told["apart"]) == ("dp*=4", 2, 2, [])
    assert told["witnesses"] == [1]
    assert told["compared_calls"] > 100
    assert folded.report["simulator"]["rank_cpu"]["ranks"] == 2
    assert told["memory_apart_nbytes"] == 0
    assert (
        "folded (dp*=4): 2 of 4 ranks really ran (1 for their role, 0 for themselves, 1 as witnesses)" in folded.output
    )


def test_a_witness_that_does_something_else_ends_the_run(run: Run) -> None:
    """Rank 1 would play ranks 2 and 3, but 3 has a larger batch."""
    options = ("--fold", "auto", "--witnesses", "2")
    folded = run("uneven_ranks.py", "3", n=5, options=options)
    assert folded.exit_code == 80, folded.output
    assert "rank 3 is a witness, and does not do what rank 1 does, which would play it" in folded.output
    (theirs, own) = (line for line in folded.output.splitlines() if line.startswith("  rank "))
    fill = "launches 1 x vectorized_elementwise_kernel[FillFunctor] grid={} (aten::fill_); the latest call before"
    assert theirs.startswith(f"  rank 1: {fill.format(4)}, called at ")
    assert own.startswith(f"  rank 3: {fill.format(6)}, called at ")
    assert "uneven_ranks.py:15; log" in own
    assert folded.report["folding"]["witnesses"] == [2, 3]
    assert "--fold auto: dp=5, because the script calls DistributedDataParallel and makes no groups" in folded.output


def test_ranks_of_another_task_are_not_played_by_others(run: Run) -> None:
    """One GPU of each server, and the second server, do more: by a module that the script imports, and by its name."""
    whole = run("local_ranks.py", n=8, options=("--nproc-per-node", "4"))
    folded = run("local_ranks.py", n=8, options=("--nproc-per-node", "4", "--fold", "dp=8", "--fold-apart", "none"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.report["folding"]["mesh"] == "dp*=4+4:1+2+1"
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
def test_tensor_parallel_ranks(run: Run) -> None:
    whole = run("tensor_parallel.py", n=8)
    folded = run("tensor_parallel.py", n=8, options=("--fold", "dp=4,tp=2"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
def test_uneven_shards_are_found_and_folded(run: Run) -> None:
    """41 rows over 16 ranks: 13 ranks have three, one has two, two have none. 40 rows: one has one row."""
    whole = run("uneven_shards.py", n=16, options=("--nproc-per-node", "8"))
    folded = run("uneven_shards.py", n=16, options=("--nproc-per-node", "8", "--fold", "auto"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.simulated == whole.simulated
    assert "FSDP2 shards 41 rows over 16 ranks, so ranks of one role differ: again with --fold" in folded.output
    assert folded.report["folding"]["mesh"] == "dp*=13+1+2"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "mesh"), [("hsdp", "dp_replicate=4,dp_shard=4"), ("tensor", "dp=4,tp=4"), ("pipeline", "dp=4,pp=4")]
)
def test_replicas_that_are_simulated_once(run: Run, layout: str, mesh: str) -> None:
    """The report is that of a run in which each replica is simulated."""
    each, shared = (
        run("layouts.py", layout, "4", n=16, options=("--nproc-per-node", "8", "--fold", mesh, "--replicas", replicas))
        for replicas in ("each", "shared")
    )
    assert each.exit_code == 0, each.output
    assert shared.exit_code == 0, shared.output
    assert shared.simulated | {"activity": None} == each.simulated | {"activity": None}


def test_a_ring_whose_ranks_send_and_receive_in_turn(run: Run) -> None:
    """The ranks that send first have a role, those that receive first another one: the run begins again with these."""
    whole = run("sending_ring.py", "4", n=8)
    options = ("--fold", "dp*=2,cp*=4", "--fold-apart", "none", "--witnesses", "0")
    folded = run("sending_ring.py", "4", n=8, options=options)
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert "again with --fold 'dp*=2,cp*=4:1+1' --replicas 'each'" in folded.output
    assert folded.report["folding"]["processes"] == 2
    assert folded.simulated == whole.simulated


def test_two_ranks_of_one_timeline_exchange_messages(run: Run) -> None:
    """A ring of two along a folded axis: one process, one timeline, and both directions in the network."""
    whole = run("sending_ring.py", "2", "together", n=8)
    options = ("--fold", "dp*=4,cp*=2", "--fold-apart", "none", "--witnesses", "0")
    folded = run("sending_ring.py", "2", "together", n=8, options=options)
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert "again with" not in folded.output
    assert folded.report["folding"]["processes"] == 1
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
def test_context_parallel_ranks(run: Run) -> None:
    """Ring attention of plain PyTorch."""
    whole = run("context_parallel.py", "4", n=16, options=("--nproc-per-node", "8"))
    folded = run("context_parallel.py", "4", n=16, options=("--nproc-per-node", "8", "--fold", "dp=4,cp=4"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
def test_megatron_s_pipelines(run: Run) -> None:
    """Their groups are made by many calls of `new_group`, in each of which some ranks are members."""
    folded, whole = megatron(run, "1")
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
def test_megatron_s_interleaved_pipelines(run: Run) -> None:
    folded, whole = megatron(run, "2")
    assert folded.simulated == whole.simulated


def megatron(run: Run, virtual: str) -> tuple[Finished, Finished]:
    """Runs a job folded, and with all processes."""
    needs("megatron.core")
    given = (*SMALL, "--virtual", virtual, "--whole-optimizer")
    whole = run(MEGATRON, *given, n=16, options=("--nproc-per-node", "8"))
    folded = run(MEGATRON, *given, n=16, options=("--nproc-per-node", "8", "--fold", "pp=2,dp=4,tp=2"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    return folded, whole


@pytest.mark.thorough
def test_megatron_s_distributed_optimizer(run: Run) -> None:
    """Ranks of one role update other numbers of pieces."""
    needs("megatron.core")
    options = ("--fold", "pp=2,dp=4,tp=2", "--roles", "similar", "--nproc-per-node", "8")
    folded = run(MEGATRON, *SMALL, n=16, options=options)
    assert folded.exit_code == 0, folded.output
    (witness,) = folded.report["folding"]["witnesses"]
    (one,) = (one for one in folded.report["folding"]["differences"] if one["rank"] == witness)
    assert one["launches"] > 1000
    assert 0 < one["differing_launches"] < one["launches"] // 10
    assert f"approximate (--roles similar): rank {witness} launched" in folded.output


def test_groups_of_gloo_s(run: Run) -> None:
    """The script checks what each call gives."""
    folded = run("host_groups.py", n=4, options=("--nproc-per-node", "2", "--fold", "dp=4", "--fold-apart", "0"))
    assert folded.exit_code == 0, folded.output
    assert folded.report["folding"]["processes"] == 3


def test_sharded_checkpoints(run: Run, tmp_path: Path) -> None:
    """DCP checks that the chunks of all ranks are the tensor: each rank's plan has to be its own. A witness does what
    its representative does, though a thread of each writes while the script trains on.
    """
    folded = run("sharded_checkpoint.py", str(tmp_path), n=8, options=("--nproc-per-node", "4", "--fold", "fsdp=8"))
    assert folded.exit_code == 0, folded.output
    assert folded.report["folding"]["mesh"] == "fsdp*=8:1+3"
    assert (tmp_path / "saved" / ".metadata").exists()


def test_a_group_of_part_of_an_axis_is_refused(run: Run) -> None:
    folded = run("tensor_parallel.py", n=4, options=("--fold", "dp=4", "--fold-apart", "none"))
    assert folded.exit_code == 80, folded.output
    assert "has 2 of the 4 coordinates of the folded axis dp" in folded.output


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "network"), [("hsdp", "leaf-spine"), ("ddp", "rail"), ("zero3", "rail")])
def test_jobs_of_the_differential_driver(
    name: str, network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/e2e/folded_jobs.py` runs others, larger ones and more networks."""
    monkeypatch.chdir(tmp_path)
    if name == "zero3":
        needs("deepspeed")
    found = compare(JOBS[name], 16, network, [sys.executable, "-m", "phantora_async"])
    assert (found.failed, found.differing) == ("", ())
