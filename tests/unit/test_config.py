"""The configuration that the options of `run` come to."""

from __future__ import annotations

import os
import sys
from io import BytesIO
from pathlib import Path

import pytest

from netsim import NcclSettings
from phantora_async.cli import Parser
from phantora_async.commands import run
from phantora_async.config import Config, resolve
from phantora_async.config.servers import nccl_settings
from phantora_async.errors import UsageError
from phantora_async.launch.runtime import Runtime
from phantora_async.session import Session
from profiles import ProfileError, load_cluster


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Resolver]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text("")
    return Resolver


class Resolver:
    @staticmethod
    def of(*options: str, script: tuple[str, ...] = ("train.py",)) -> Config:
        parser = Parser()
        run.add_arguments(parser)
        return resolve(run.options_of(parser.parse_args(["--python", sys.executable, *options, *script])))


@pytest.mark.parametrize(
    ("options", "servers"),
    [
        ((), (1,)),
        (("-n", "12"), (8, 4)),
        (("-n", "3"), (3,)),
        (("-n", "6", "--nproc-per-node", "2"), (2, 2, 2)),
        (("--nnodes", "2"), (8, 8)),
        (("--nnodes", "2", "--nproc-per-node", "4"), (4, 4)),
        (("--nproc-per-node", "4"), (4,)),
        (("-n", "8", "--cluster", "dgx-a100"), (8,)),
    ],
)
def test_servers(config: type[Resolver], options: tuple[str, ...], servers: tuple[int, ...]) -> None:
    resolved = config.of(*options)
    assert resolved.servers == servers
    assert f"device_count={max(servers)}" in resolved.device_file_lines()


@pytest.mark.parametrize(
    "options",
    [
        ("-n", "0"),
        ("--nnodes", "0"),
        ("-n", "8", "--nnodes", "1"),
        ("--nproc-per-node", "9"),
        ("--show-ranks", "1"),
        ("--show-ranks", "x"),
        ("-n", "16385"),
        ("--nnodes", "2049"),
        ("-n", str(10**20)),
        ("--gpu", "h300"),
        ("--cluster", "train.py"),
        ("--run-dir", "train.py/x"),
        ("--report", "nowhere/report.json"),
        ("--python", "/no/such/python"),
        ("--steps", "0"),
        ("--steps", "-3"),
        ("--until", "10"),
        ("--until", "0s"),
        ("--until", "-1s"),
        ("--until", "10 s"),
        ("--until", "99999999h"),
    ],
)
def test_refused(config: type[Resolver], options: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        config.of(*options)


@pytest.mark.parametrize(
    ("text", "for_ns"),
    [("500ms", 500_000_000), ("10s", 10**10), ("2m", 120 * 10**9), ("1h", 3600 * 10**9), ("1.5s", 1_500_000_000)],
)
def test_until(config: type[Resolver], text: str, for_ns: int) -> None:
    assert config.of("--until", text, "--steps", "7").until_ns == for_ns
    assert config.of("--until", text, "--steps", "7").steps == 7
    assert (config.of().until_ns, config.of().steps) == (0, 0)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (("--max-memory", "76GiB"), (0, 76 << 30)),
        (("--max-allocated", "1.5GiB", "--max-step-time", "1s"), (3 << 29, 0)),
        (("--max-memory", "76GiB", "--record", "recorded"), (0, 0)),  # others may replay it
        ((), (0, 0)),
    ],
)
def test_limits_of_memory_end_a_run(
    config: type[Resolver], tmp_path: Path, options: tuple[str, ...], most: tuple[int, int]
) -> None:
    spec = Session(config.of(*options))._spec(Runtime(tmp_path, BytesIO(), 0))
    assert (spec.most_allocated_nbytes, spec.most_reserved_nbytes) == most


def test_speculation(config: type[Resolver]) -> None:
    assert config.of().speculation == "on-demand"
    assert config.of("--speculation", "eager").speculation == "eager"


def test_the_script_s_own_options_are_its_own(config: type[Resolver]) -> None:
    resolved = config.of("-n", "2", script=("train.py", "-n", "3", "--gpu", "x", "--", "y"))
    assert resolved.servers == (2,)
    assert resolved.arguments == ("-n", "3", "--gpu", "x", "--", "y")
    module = config.of("-m", script=("package.train", "--lr", "1"))
    assert (module.script, module.module, module.arguments) == ("package.train", True, ("--lr", "1"))


def test_a_run_directory_is_made(config: type[Resolver], tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    resolved = config.of("--run-dir", str(folder))
    assert resolved.run_dir == folder
    assert resolved.report == folder / "report.json"
    assert config.of().run_dir.parent == tmp_path / "phantora-runs"


def test_shown_ranks(config: type[Resolver]) -> None:
    assert config.of("-n", "4").shown_ranks == {0}
    assert config.of("-n", "4", "--show-ranks", "0,3").shown_ranks == {0, 3}
    assert config.of("-n", "4", "--show-ranks", "all").shown_ranks == {0, 1, 2, 3}
    assert config.of("-n", "4", "--show-ranks", "none").shown_ranks == set()


def test_the_compile_cache_is_a_folder_or_off(config: type[Resolver], tmp_path: Path) -> None:
    assert config.of("--compile-cache", "mine").compile_cache == tmp_path / "mine"
    assert config.of("--compile-cache", "off").compile_cache is None
    assert config.of("--compile-cache", "off").remarks == config.of("--compile-cache", "mine").remarks


def test_a_compile_cache_that_cannot_be_used_is_named(config: type[Resolver]) -> None:
    resolved = config.of("--compile-cache", "train.py/cache")
    assert resolved.compile_cache is None
    (remark,) = resolved.remarks
    assert "train.py/cache" in remark
    assert "--compile-cache DIR" in remark


def test_ranks_with_responses_of_their_own_are_not_folded(config: type[Resolver]) -> None:
    drawn = ("-n", "8", "--lengths", "lognormal:100,1")
    with pytest.raises(UsageError, match="each rank's responses have lengths of their own"):
        config.of(*drawn, "--fold", "dp=8")
    found = config.of(*drawn, "--fold", "auto")
    assert found.folding is None
    assert "all 8 ranks have processes" in found.remarks[0]
    assert config.of("-n", "8", "--lengths", "fixed:100", "--fold", "dp=8").folding is not None
    with pytest.raises(UsageError, match="--real-steps and --lengths exclude each other"):
        config.of(*drawn, "--steps", "9", "--real-steps", "3")


def test_fold_auto_says_what_it_found(config: type[Resolver]) -> None:
    """Witnesses are among the ranks that have processes, as are the last rank and, in small runs, the first of each
    role; another one stands for the rest of the role.
    """
    found = config.of("-n", "32", "--fold", "auto", script=("train.py", "--tensor-model-parallel-size", "4"))
    assert found.folding is not None
    assert found.folding.mesh.role_name(5) == "tp 1"
    assert len(found.folding.live) == 4 + 4 + 1 + 1
    assert found.folding.witnesses < found.folding.apart
    assert found.remarks[0] == (
        "--fold auto: dp=8,tp=4, because Megatron's options --tensor-model-parallel-size say so"
    )
    again = config.of("-n", "32", "--fold", "dp=8,tp=4", "--witnesses", "5", "--witness-seed", "7").folding
    assert again is not None
    assert len(again.witnesses) == 5


@pytest.mark.parametrize(
    ("gpus", "apart"),
    [
        ("8", {0, 1, 7, 4, 5}),  # the first of each role, the last rank, the slow one and who shares its replica
        ("512", {0, 511, 5}),  # too many to be run unfolded: fewer processes
    ],
)
def test_ranks_that_are_apart_by_default(config: type[Resolver], gpus: str, apart: set[int]) -> None:
    fold = ("--fold", f"dp={int(gpus) // 2},tp=2", "--witnesses", "0", "--fault", "gpu 5 at 0.7x")
    found = config.of("-n", gpus, *fold).folding
    assert found is not None
    assert found.apart == apart


def test_fold_auto_runs_few_ranks_unfolded_and_refuses_many(config: type[Resolver]) -> None:
    few = config.of("-n", "16", "--fold", "auto")
    assert few.folding is None
    assert "neither its options nor its text tell how the script divides its work: all 16 ranks" in few.remarks[0]
    with pytest.raises(UsageError, match="512 ranks are too many to run unfolded"):
        config.of("-n", "512", "--fold", "auto")


def test_witnesses_need_folding(config: type[Resolver]) -> None:
    with pytest.raises(UsageError, match="--witnesses needs --fold"):
        config.of("-n", "16", "--witnesses", "1")
    with pytest.raises(UsageError, match="must be at least 0"):
        config.of("-n", "16", "--fold", "dp=16", "--witnesses", "-1")


def test_the_host_is_that_of_the_slowest_rank_of_the_job(config: type[Resolver]) -> None:
    """Nine ranks count as eight. What is measured here differs from rank to rank by itself."""
    alone, two, nine = (config.of("-n", n).host for n in ("1", "2", "9"))
    assert (alone.slowest, two.slowest, nine.slowest) == pytest.approx((1, 1 + 0.11 * 0.564, 1 + 0.11 * 1.424))
    assert two.price_ns("launch") == pytest.approx(1.06204 * alone.cost_ns["launch"], rel=1e-4)
    assert f"host_ns.launch={round(two.price_ns('launch'))}" in two.device_file_lines()
    assert config.of("-n", "8", "--host", "measured").host.slowest == 1


def test_the_gpu_stands_for_the_hungriest_of_the_job(config: type[Resolver]) -> None:
    power = config.of("-n", "4", "--cluster", "dgx-h200").gpu.power
    assert power is not None
    assert power.among == 4


def test_a_provider_s_variables_of_nccl_hold_between_servers_where_the_job_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("NCCL_")]:
        monkeypatch.delenv(name)
    mega = load_cluster("a3-mega")
    one, two = (nccl_settings(mega, servers)[0] for servers in (1, 2))
    assert one == NcclSettings()
    assert (two.protocols["all_reduce"], two.nvls, two.buffer_nbytes) == ({"simple", "ll128"}, False, 8 << 20)
    monkeypatch.setenv("NCCL_PROTO", "LL")
    assert nccl_settings(mega, 2)[0].protocols["all_reduce"] == {"ll"}


def test_a_cluster_sets_variables_of_nccl_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "p5"\n[nccl_environment]\nFI_PROVIDER = "efa"\n')
    with pytest.raises(ProfileError, match=r"FI_PROVIDER.*begins with NCCL_"):
        load_cluster(path)
