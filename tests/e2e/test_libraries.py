"""Data types and libraries of today run, are priced by the family they belong to, or say in one sentence why not."""

from __future__ import annotations

import re

import pytest

from .conftest import Finished, Run, needs

pytestmark = pytest.mark.torch


def signatures(done: Finished) -> list[str]:
    return [one["signature"] for one in done.simulated["kernels"]["signatures"]]


def models(done: Finished, beginning: str) -> set[str]:
    """Returns the models that price the signatures that begin so."""
    found = done.simulated["kernels"]["signatures"]
    return {one["model"] for one in found if one["signature"].startswith(beginning)}


def sequences(done: Finished, kernel: str) -> list[tuple[str | int, ...]]:
    """Kinds of the signatures of an attention's kernel, and what those of the kind `sequences` tell."""
    told = [one.split(";") for one in signatures(done) if kernel in one and "combine" not in one]
    return sorted((one[0], *map(int, one[7:])) for one in told)


def passed(done: Finished) -> None:
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output


TENSORWISE = pytest.param("tensorwise", marks=pytest.mark.thorough)


@pytest.mark.parametrize("recipe", [TENSORWISE, "rowwise"])
def test_float8_training(run: Run, recipe: str) -> None:
    needs("torchao")
    done = run("libraries/float8.py", recipe, n=1)
    passed(done)
    products = [one for one in signatures(done) if "aten::_scaled_mm" in one]
    assert products
    assert all(";f8e4m3;" in one for one in products)
    assert models(done, "gemm;cublasLtMatmul") == {"gemm f8"}


@pytest.mark.thorough  # sharded and compiled training of other types: test_features.py
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_float8_training_sharded_and_compiled(run: Run, recipe: str) -> None:
    needs("torchao")
    done = run("libraries/float8.py", recipe, "--fsdp", "--compile", n=2)
    passed(done)
    assert models(done, "gemm;cublasLtMatmul") == {"gemm f8"}
    assert models(done, "triton;") <= {"Triton", "Triton, products"}


def refused(done: Finished) -> set[str]:
    assert done.exit_code == 0, done.output
    assert done.output.count(": ran\n") + done.output.count(": refused") == 7, done.output
    return set(re.findall(r"^(.+?): refused: .*NOT_SUPPORTED", done.output, re.MULTILINE))


def test_scaled_products_of_hopper(run: Run) -> None:
    done = run("libraries/scaled_products.py", n=1)
    assert refused(done) == {"mxfp8", "nvfp4"}
    assert models(done, "grouped;_ZN7cutlass") == {"grouped product"}


def test_scaled_products_of_blackwell(run: Run) -> None:
    done = run("libraries/scaled_products.py", n=1, options=("--gpu", "b200"))
    assert refused(done) == {"blocks of 128"}
    assert models(done, "gemm;") == {"gemm f8", "gemm f4"}


SIDE_BY_SIDE = ("grouped_products", "packed_attention", "math_libraries")
"""One is a rank each; none launches kernels of another one's kind."""


def side_by_side(shared_run: Run) -> Finished:
    scripts = [f"libraries/{name}.py" for name in SIDE_BY_SIDE]
    options = ("--nproc-per-node", "1", "--isolation", "none")
    done = shared_run("side_by_side.py", *scripts, n=len(scripts), options=options)
    assert done.exit_code == 0, done.output
    return done


def test_grouped_products(shared_run: Run) -> None:
    done = side_by_side(shared_run)
    assert "PASSED" in done.log(0)
    assert models(done, "grouped;_ZN7cutlass") == {"grouped product"}


def test_packed_attention(shared_run: Run) -> None:
    """Known lengths are told, unknown ones count as equal; a causal mask alone is in the kernel's name."""
    done = side_by_side(shared_run)
    assert "PASSED" in done.log(1)
    for kernel in ("flash_fwd", "flash_bwd_dq"):
        assert sequences(done, kernel) == [
            ("kernel",),
            ("sequences", 2, 1024, 1024, 8, 8, 14, 2, 115584),
            ("sequences", 3, 992, 992, 9, 9, 22, 5, 224 * 1024),
            ("sequences", 4, 1024, 1024, 8, 8, 16, 2, 262144),
        ]
    for kernel in ("fmha_cutlassF", "fmha_cutlassB"):  # no name has a causal mask
        assert sequences(done, kernel) == [
            ("kernel",),
            ("sequences", 2, 512, 1024, 4, 8, 6, 2, 2 * 256 * 257 // 2),
            ("sequences", 2, 512, 1024, 4, 8, 14, 4, 2 * (256 * 257 // 2 + 256 * 256)),
            ("sequences", 2, 1024, 1024, 8, 8, 20, 4, 512 * 513),
        ]
    # Earlier versions of PyTorch also fill the efficient backward pass's workspace with zeros.
    assert models(done, "sequences;") - {"element-wise"} == {"attention", "attention, flash", "attention, efficient"}


def test_flash_attn(run: Run) -> None:
    needs("flash_attn")
    done = run("libraries/flash_attn_package.py", n=1)
    passed(done)
    for kernel in ("flash_fwd", "flash_bwd_dq"):
        assert sequences(done, kernel) == [
            ("kernel",),
            ("sequences", 2, 1024, 1024, 8, 8, 14, 2, 115584),
            ("sequences", 3, 992, 992, 9, 9, 22, 5, 224 * 1024),
            ("sequences", 3, 992, 992, 9, 9, 36, 5, 448 * 1024),
        ]


def test_math_libraries(shared_run: Run) -> None:
    done = side_by_side(shared_run)
    assert "PASSED" in done.log(2)
    assert models(done, "library;cufft") == {"Fourier transform"}
    assert models(done, "library;cusparseSpM") == {"sparse product"}
    algebra = {"eigenvalues", "eigenvalues, general", "factorisation", "singular values"}
    assert models(done, "library;cusolver") == algebra
    assert any("number of entries of the result is assumed" in one["text"] for one in done.simulated["warnings"])


def test_symmetric_memory(run: Run) -> None:
    done = run("libraries/symmetric_memory.py", n=4)
    passed(done)
    assert all("PASSED" in done.log(rank) for rank in range(4)), done.output
    assert any(one.startswith("copy;p2p;67108864") for one in signatures(done))


def test_symmetric_memory_without_multicast(run: Run) -> None:
    passed(run("libraries/symmetric_memory.py", n=2, options=("--cluster", "dgx-a100", "--gpu", "h200")))


def test_memory_of_other_ranks(run: Run) -> None:
    done = run("libraries/ipc.py", n=2)
    passed(done)
    assert any(one.startswith("copy;p2p;4194304") for one in signatures(done))
    assert done.simulated["warnings"] == []


def test_bitsandbytes(run: Run) -> None:
    needs("bitsandbytes")
    done = run("libraries/bitsandbytes_optimizers.py", n=1)
    passed(done)
    state = {name: int(nbytes) for name, nbytes in re.findall(r"^(\w+) (\d+)$", done.output, re.MULTILINE)}
    elements = 4096 * 4096
    assert state["AdamW"] == 8 * elements
    assert 2 * elements < state["AdamW8bit"] < 2.1 * elements  # and a scale for every 256 of each state
    assert state["PagedAdamW8bit"] < 0.1 * elements  # the states are in managed memory
    assert models(done, "kernel;_Z35kOptimizerStatic8bit2StateBlockwise") == {"optimizer of bitsandbytes"}


def test_liger(run: Run) -> None:
    needs("liger_kernel")
    done = run("libraries/liger.py", n=1)
    passed(done)
    assert models(done, "triton;") <= {"Triton", "Triton, products"}


def test_extension_without_compiler(run: Run) -> None:
    done = run("libraries/without_nvcc.py", n=1)
    assert done.exit_code == 1
    error = next(line for line in done.output.splitlines() if line.startswith("error:"))
    assert "needs NVIDIA's compiler nvcc: install the CUDA toolkit" in error
    assert '"torch_adam": true' in error


def test_transformer_engine(run: Run) -> None:
    """With its extension, which examples/build_transformer_engine.sh builds: attention is cuDNN's, as on a GPU, and a
    norm's price follows its rows, though its kernel is persistent.
    """
    needs("transformer_engine_torch")
    done = run("libraries/transformer_engine_layers.py", n=1)
    passed(done)
    assert "unfused" not in done.output
    told = done.simulated["kernels"]["signatures"]
    assert {one["signature"].split(";")[1] for one in told if one["signature"].startswith("sdpa;")} == {"fwd", "bwd"}
    norms = sorted(one["mean_ns"] for one in told if "rmsnorm_fwd" in one["signature"])
    assert len(norms) == 2
    assert norms[1] > 16384 * 2048 * 4 / 4800  # bytes at the most that an H200's memory can move
    assert norms[1] > 3 * norms[0]
    flags = {one["signature"].split(";")[12] for one in told if one["signature"].startswith("gemm;")}
    assert flags == {"bvec128_ablk128", "avec128_bvec128"}  # weights in blocks; gradients of weights by vectors
    assert not [one for one in told if one["source"] == "unrecognised"]
