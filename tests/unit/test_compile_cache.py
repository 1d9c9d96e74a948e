"""The folder that outlives runs: whose results are in which part of it, and what happens if it cannot be used."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from emu.contract import installed
from phantora_async import compile_cache
from profiles import CostModel, Gpu, load_gpu


@pytest.fixture
def gpu() -> Gpu:
    return load_gpu("h200")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders whose content is part of the key."""
    root = tmp_path / "installation"
    for folder in (installed.EMU, *(installed.EMU.parent / room for room in ("formats", "profiles"))):
        shutil.copytree(folder, root / folder.name, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    (root / "emu" / "lib").mkdir(exist_ok=True)
    library = root / "emu" / "lib" / "libcuda.so.1"
    library.write_bytes(b"")
    monkeypatch.setattr(installed, "EMU", root / "emu")
    monkeypatch.setattr(installed, "HOOK_LIBRARY", library)
    return root


def test_another_gpu_has_another_folder(gpu: Gpu, sources: Path) -> None:
    keys = {compile_cache.key(load_gpu(name)) for name in ("h200", "h100", "a100-80g")}
    assert len(keys) == 3
    assert compile_cache.key(load_gpu("h200")) in keys
    faster = dataclasses.replace(gpu, memory=dataclasses.replace(gpu.memory, bandwidth_gb_per_s=1.0))
    assert compile_cache.key(faster) != compile_cache.key(gpu), "a profile is known by its content"


def test_any_number_of_gpus_has_the_same_folder(gpu: Gpu, sources: Path) -> None:
    """Graphs that one rank of eight has compiled serve a run on one GPU: candidates cost the same there."""
    one_of_eight = gpu.one_of(8)
    assert one_of_eight != gpu
    assert compile_cache.key(one_of_eight) == compile_cache.key(gpu)
    product = "gemm;cublasGemmEx;n;n;8192;8192;8192;1;bf16;bf16;bf16;f32;default;aten::mm;"
    hungry, mean = CostModel(one_of_eight).cost(product), CostModel(gpu).cost(product)
    assert hungry.solo_ns == mean.solo_ns
    assert hungry.draw != mean.draw, "it draws more power"


@pytest.mark.parametrize(
    "changed",
    [
        "profiles/models/triton.py",
        "profiles/cost.py",
        "formats/ttir.py",
        "emu/contract/signature.def",
        "emu/lib/libcuda.so.1",
    ],
)
def test_another_cost_model_has_another_folder(gpu: Gpu, sources: Path, changed: str) -> None:
    before = compile_cache.key(gpu)
    assert compile_cache.key(gpu) == before
    with (sources / changed).open("a") as file:
        file.write("\n")
    assert compile_cache.key(gpu) != before


def test_folders_of_real_gpus_are_not_used(gpu: Gpu, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/mine too")
    variables = compile_cache.environment(Path("/cache"), gpu)
    assert variables["TORCHINDUCTOR_CACHE_DIR"] == f"/cache/inductor/{compile_cache.key(gpu)}"
    assert variables["TRITON_CACHE_DIR"] == "/mine too", "binaries depend on their source alone"


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert compile_cache.why_unusable(folder) == ""
    assert list(folder.iterdir()) == []


def test_why_a_folder_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert compile_cache.why_unusable(tmp_path / "file") != ""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 << 20, 0, 3 << 20))
    assert compile_cache.why_unusable(tmp_path) == "its disk has only 3 MiB left"


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    """Ranks execute what is in it. A folder that is made here is not open to others."""
    folder = tmp_path / "cache"
    assert compile_cache.why_unusable(folder) == ""
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o757)
    assert compile_cache.why_unusable(folder) == f"everybody can write {folder}, and ranks execute what is in it"


def test_the_default_folder_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = compile_cache.default_folder()
    folder.mkdir()
    folder.chmod(0o777)
    assert compile_cache.why_unusable(folder) == ""
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert compile_cache.why_unusable(tmp_path) == "Permission denied"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free_nbytes", "words", "told"),
    [
        (0, "InductorError: OSError: [Errno 28] No space left on device", True),
        (0, "ValueError: no such luck", False),
        (1 << 30, "OSError: [Errno 28] No space left on device", False),  # of another disk
    ],
)
def test_a_disk_that_fills_while_a_rank_compiles_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_nbytes: int, words: str, told: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1 << 40, free_nbytes))
    why = compile_cache.why_failed(tmp_path, words)
    assert (f"the disk of {tmp_path} is full" in why) == told
    assert bool(why) == told
