"""The comparison tools on a small trace made by hand: one add alone, one GEMM of two kernels beside an NCCL kernel."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import profiles
from laboratory.fits.host_error import host_ns, table
from profiles.signature import Conv, Gemm, format_signature, parse
from profiles.timings.trace import call_of, load, signature_of, steps_in, works
from profiles.tools.trace_compare import Family, families
from profiles.tools.trace_compare import table as families_table
from profiles.tools.trace_error import modelled_us


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "tid": 1, "pid": 1, "args": args}


def kernel(name: str, ts: float, dur: float, correlation: int) -> dict[str, Any]:
    shape = {"grid": [8, 1, 1], "block": [128, 1, 1], "shared memory": 0}
    return event("kernel", name, ts, dur, correlation=correlation, **shape)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    add = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::"
        "array<char*, 3ul> >(int)"
    )
    tensors = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    events = [
        event("cpu_op", "aten::add", 0, 10, **{"External id": 1, "Input Dims": [[8192], [8192], []]}),
        event("cuda_runtime", "cudaLaunchKernel", 2, 3, correlation=1),
        event("cpu_op", "aten::matmul", 20, 20, **{"External id": 2}),
        event("cpu_op", "aten::mm", 21, 15, **{"External id": 3}, **tensors),
        event("cuda_runtime", "cudaMemsetAsync", 22, 1, correlation=2),
        event("cuda_driver", "cuLaunchKernelEx", 24, 3, correlation=3),
        event("cuda_runtime", "cudaLaunchKernelExC", 45, 3, correlation=4),
        kernel(add, 100, 2.0, 1),
        event("gpu_memset", "Memset (Device)", 200, 1.0, correlation=2, bytes=64),
        kernel("nvjet_sm90_tst_64x64_64x13_1x2_h_bz_NNT", 201, 5.0, 3),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 203, 100.0, 4),
    ]
    path = tmp_path / "job.r0.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": events}, file)
    return path


@pytest.mark.parametrize(
    "dims",
    [
        [[128], [64, 32], [32, 128], [], []],
        [[64, 128], [64, 32], [32, 128], [], []],
        [[128], [64, 32], [32, 128], [], [], [64, 128]],
    ],
)
def test_a_product_that_adds_multiplies_its_second_and_third_argument(dims: list[list[int]]) -> None:
    """Compiled code gives the output, too."""
    types = ["c10::BFloat16" if one else "Scalar" for one in dims]
    op = event("cpu_op", "aten::addmm", 0, 9, **{"Input Dims": dims, "Input type": types})
    found = signature_of(kernel("nvjet_sm90_tst_64x64_64x13_1x2_h_bz_NNT", 1, 5.0, 3), op)
    assert isinstance(found, Gemm)
    assert (found.m, found.n, found.k) == (128, 64, 32)


def test_works(trace: Path) -> None:
    add, gemm = works(load(trace))
    assert add.signature.endswith(";8,1,1;128,1,1;0;aten::add;[[8192], [8192], []]")
    assert (add.category, add.overlap) == ("element-wise", 0.0)
    assert gemm.signature.startswith("gemm;cublasGemmEx;n;n;16;64;32;1;bf16;bf16;bf16;f32;")
    # The memset belongs to the library's call; three of its six microseconds ran beside NCCL.
    assert (gemm.for_us, gemm.overlap) == (6.0, 0.5)


def test_families_of_a_trace_beside_a_report(trace: Path) -> None:
    events = load(trace)
    report = {
        "simulated": {
            "step": {"counted": 2},
            "kernels": {
                "window": "steps",
                "signatures": [
                    {"model": "element-wise", "mean_ns": 1500},
                    {"model": "gemm bf16", "mean_ns": 9000},
                    {"model": "softmax", "mean_ns": 1000},
                ],
                "ranks": [{"ranks": [1], "launches": [0, 0, 0]}, {"ranks": [0, 2], "launches": [2, 4, 2]}],
            },
        }
    }
    found = families(profiles.load_gpu("h200"), works(events), steps_in(events), report)
    assert found == [
        Family("gemm bf16", 1, 2, 0.006, 0.018, 0.003),
        Family("element-wise", 1, 1, 0.002, 0.0015, 0.0),
        Family("softmax", 0, 1, 0.0, 0.001, 0.0),
    ]
    assert "| gemm bf16 | 1 | 2 | 0.01 | 0.00 | 0.02 | +200.0%* |" in families_table(found)
    with pytest.raises(ValueError, match="no kernels of rank 3"):
        families(profiles.load_gpu("h200"), works(events), 1, report, rank=3)


def test_time_shared_with_another_stream(tmp_path: Path) -> None:
    events = [kernel("one", 100, 10.0, 1), kernel("other", 106, 8.0, 2)]
    events[1]["args"]["stream"] = 9
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert [(work.shared, work.overlap) for work in works(load(path))] == [(0.4, 0.0), (0.5, 0.0)]


def test_groups_that_are_convolved_side_by_side_count_once(tmp_path: Path) -> None:
    sizes = [[48, 896, 14, 14], [896, 56, 3, 3]]
    kinds = {
        "Input Dims": sizes,
        "Input type": ["c10::BFloat16"] * 2,
        "Concrete Inputs": ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "16", "False", "False", "True"],
    }
    events = [
        event("cpu_op", "aten::cudnn_convolution", 0, 50, **{"External id": 1}, **kinds),
        event("cuda_runtime", "cudaLaunchKernel", 2, 3, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 6, 3, correlation=2),
        kernel("cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_32x10_nhwc_align8", 100, 10.0, 1),
        kernel("cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_32x10_nhwc_align8", 104, 10.0, 2),
    ]
    events[-1]["args"]["stream"] = 9
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"traceEvents": events}))
    (work,) = works(load(path))
    assert (work.signature.split(";")[0], work.for_us, work.shared) == ("conv", 14.0, 0.0)


def test_modelled_time_mixes_rates(trace: Path) -> None:
    model = profiles.CostModel(profiles.load_gpu("h200"))
    add, gemm = works(load(trace))
    assert modelled_us(model, add) == pytest.approx(model.cost(add.signature).solo_ns / 1e3, rel=1e-3)
    cost = model.cost(gemm.signature)
    assert cost.solo_ns - 1 <= 1e3 * modelled_us(model, gemm) <= cost.contended_ns + 1


def test_host_error_prices_what_was_counted() -> None:
    host = profiles.load_host("xeon-h200-1gpu")
    assert host_ns(host, {"op": 3, "launch": 2}) == 3 * host.cost_ns["op"] + 2 * host.cost_ns["launch"]
    job = {"job": "j", "host": "xeon-h200-1gpu", "run": 1, "counts": {"sync": 1_000}, "host_s": [0.004, 0.005, 0.006]}
    model_ms = host.cost_ns["sync"] / 1e3
    row = table([json.dumps(job)]).splitlines()[2]
    assert row == f"| xeon-h200-1gpu | j | 1 | {model_ms:.1f} | 5.0 (4.0 to 6.0) | {model_ms / 5 - 1:+.0%} |"


@pytest.mark.parametrize(
    ("kernel", "direction"),
    [
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32", "dgrad"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "dgrad"),
        ("nvjet_sm90_tst_64x64_64x13_1x2_h_bz_splitK_NTT", "wgrad"),
        ("sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32", "wgrad"),
    ],
)
def test_which_gradient_of_a_convolution(kernel: str, direction: str) -> None:
    dims = [[8, 64, 56, 56], [8, 256, 56, 56], [64, 256, 1, 1], [], [], [], [], [], [], [], []]
    concrete = ["", "", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", ""]
    op = convolution("aten::convolution_backward", dims, concrete)
    assert call_of(op, kernel) == (1, direction)
    assert signature_of_conv(op, kernel).direction == direction


@pytest.mark.parametrize(
    ("kernel", "direction"),
    [
        ("nvjet_sm90_hsh_320x64_64x4_2x1_v_ssched_bz_NTT", "dgrad"),
        ("nvjet_sm90_hss_64x128_64x8_1x2_h_bz_TNN", "wgrad"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nt_align1>(Params)", "dgrad"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_s1688gemm_bf16_256x128_tn_align1>(Params)", "wgrad"),
    ],
)
def test_which_gradient_of_images_channels_first(kernel: str, direction: str) -> None:
    dims = [[8, 64, 56, 56], [8, 256, 56, 56], [64, 256, 1, 1], [], [], [], [], [], [], [], []]
    strides = [[200704, 3136, 56, 1], [802816, 3136, 56, 1], [256, 1, 1, 1]]
    concrete = ["", "", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", ""]
    op = convolution("aten::convolution_backward", dims, concrete, strides)
    assert signature_of_conv(op, kernel).direction == direction


@pytest.mark.parametrize(
    ("kernel", "direction"), [("fft2d_r2c_32x32<float>", "dgrad"), ("winogradWgradData4x4", "wgrad")]
)
def test_transforms_are_those_of_f32(kernel: str, direction: str) -> None:
    dims = [[8, 64, 56, 56], [8, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], [], []]
    concrete = ["", "", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", ""]
    op = convolution("aten::convolution_backward", dims, concrete)
    op["args"]["Input type"] = ["float"] * 3
    what = signature_of_conv(op, kernel)
    assert (what.direction, what.dtype) == (direction, "f32")


@pytest.mark.parametrize(("allowed", "dtype"), [("True", "tf32"), ("False", "f32")])
def test_forward_says_whether_tensor_cores_may_round(allowed: str, dtype: str) -> None:
    concrete = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", allowed]
    op = convolution("aten::cudnn_convolution", [[8, 64, 56, 56], [64, 64, 3, 3], *([[]] * 7)], concrete)
    op["args"]["Input type"] = ["float"] * 2
    assert signature_of_conv(op, "any").dtype == dtype


def convolution(name: str, dims: list[Any], concrete: list[str], strides: list[Any] | None = None) -> dict[str, Any]:
    arguments = {"External id": 1, "Input Dims": dims, "Input type": ["c10::BFloat16"] * 3, "Concrete Inputs": concrete}
    return {"name": name, "args": arguments | ({"Input Strides": strides} if strides else {})}


def signature_of_conv(op: dict[str, Any], kernel: str) -> Conv:
    event = {"name": kernel, "cat": "kernel", "args": {"grid": [1, 1, 1], "block": [1, 1, 1], "correlation": 1}}
    what = signature_of(event, op)
    assert isinstance(what, Conv)
    return what


TRANSPOSED = [[16, 128, 64, 64], [128, 32, 2, 2]]
"""Shapes of the input and of the weights, of two groups."""


def test_a_transposed_convolution_is_a_data_gradient_whose_input_is_larger() -> None:
    concrete = ["", "", "[0, 0]", "[0, 0]", "[2, 2]", "[1, 1]", "2", "False", "False", "True"]
    op = convolution("aten::cudnn_convolution_transpose", TRANSPOSED, concrete)
    what = signature_of_conv(op, "sm90_xmma_dgrad_implicit_gemm")
    assert (what.direction, what.x, what.y, what.groups) == ("dgrad", (16, 64, 128, 128), (16, 128, 64, 64), 2)


@pytest.mark.parametrize(
    ("kernel", "direction"), [("sm90_xmma_fprop_implicit_gemm", "fwd"), ("sm90_xmma_wgrad_implicit_gemm", "wgrad")]
)
def test_gradients_of_a_transposed_convolution(kernel: str, direction: str) -> None:
    concrete = ["", "", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "2", ""]
    op = convolution("aten::convolution_backward", [[16, 64, 128, 128], *TRANSPOSED], concrete)
    what = signature_of_conv(op, kernel)
    assert (what.direction, what.x, what.y, what.groups) == (direction, (16, 64, 128, 128), (16, 128, 64, 64), 2)


FIRST, LAST = [64 * 4096, 4096, 64, 1], [64 * 4096, 1, 64 * 64, 64]


@pytest.mark.parametrize(
    ("strides", "layout"),
    [
        ([FIRST, [64, 1, 1, 1]], "nchw"),
        ([FIRST, [64, 1, 64, 64]], "nhwc"),  # the weights alone
        ([LAST, [64, 1, 1, 1]], "nhwc"),
        ([LAST, [64, 1, 64, 64]], "nhwc"),
    ],
)
def test_the_layout_of_input_or_weights_decides(strides: list[list[int]], layout: str) -> None:
    """Strides of weights of 1x1, which differ only where an extent is 1, are PyTorch's for either layout."""
    concrete = ["", "", "[0, 0]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"]
    op = convolution("aten::cudnn_convolution", [[16, 64, 64, 64], [32, 64, 1, 1]], concrete, strides)
    assert signature_of_conv(op, "nvjet").layout == layout


@pytest.mark.parametrize(
    ("dims", "strides", "transposed"),
    [
        ([[8, 64], [64, 32]], [[64, 1], [32, 1]], ("n", "n")),
        ([[8, 64], [64, 32]], [[64, 1], [1, 64]], ("t", "n")),
        ([[8, 64], [64, 32]], [[1, 8], [32, 1]], ("n", "t")),
        ([[8, 64], [64, 32]], [], ("n", "n")),
    ],
)
def test_a_product_s_layout_comes_from_the_strides(
    dims: list[list[int]], strides: list[list[int]], transposed: tuple[str, str]
) -> None:
    arguments = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * 2} | (
        {"Input Strides": strides} if strides else {}
    )
    what = signature_of({"name": "nvjet_x", "cat": "kernel", "args": {}}, {"name": "aten::mm", "args": arguments})
    assert isinstance(what, Gemm)
    assert ((what.transa, what.transb), (what.m, what.n, what.k)) == (transposed, (32, 8, 64))


@pytest.mark.parametrize(
    ("strides", "mode", "layout"), [(FIRST, "spatial", "nchw"), (LAST, "spatial_persistent", "nhwc")]
)
def test_batch_norm_of_cudnn_in_a_trace(strides: list[int], mode: str, layout: str) -> None:
    """The signature is the one that the hook writes; before, no model knew these kernels."""
    dims = [[8, 64, 64, 64], [8, 64, 64, 64], [64], [64], [64], [64], [64], [], [0]]
    name, kernel = "aten::cudnn_batch_norm_backward", "void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, float>(int)"
    op = convolution(name, dims, [], [strides, strides, [1], [1], [1], [1], [1], [], [1]])
    op["args"]["Input type"] = ["c10::Half"]
    assert call_of(op, kernel) == call_of(op, "Memset (Device)") == (1, name)
    event = {"name": kernel, "cat": "kernel", "args": {"grid": [1, 1, 1], "block": [1, 1, 1], "correlation": 1}}
    assert format_signature(signature_of(event, op)) == (f"norm;bwd;{mode};8x64x64x64;f16;{layout};{name};{dims}")


@pytest.mark.parametrize(("allowed", "dtype"), [("True", "tf32"), ("False", "f32")])
def test_forward_convolutions_tell_how_gradients_are_multiplied(allowed: str, dtype: str) -> None:
    """Most kernels of f32 gradients have names that do not say it."""
    dims = [[8, 64, 56, 56], [64, 64, 3, 3], *[[]] * 7]
    forward = convolution(
        "aten::cudnn_convolution", dims, ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", allowed]
    )
    backward = convolution(
        "aten::convolution_backward",
        [dims[0], *dims[:2], *[[]] * 8],
        ["", "", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", ""],
    )
    events: list[dict[str, Any]] = []
    for at, (op, kernel) in enumerate(((forward, "any"), (backward, "cudnn::detail::dgrad_engine<float, 512>(int)"))):
        ts = 100.0 * at
        op["args"] |= {"Input type": ["float"] * 2, "External id": at}
        events += [
            op | {"cat": "cpu_op", "ts": ts, "dur": 50.0, "tid": 1},
            {"cat": "cuda_runtime", "name": "launch", "ts": ts + 1, "dur": 1.0, "tid": 1, "args": {"correlation": at}},
            {
                "cat": "kernel",
                "name": kernel,
                "ts": ts + 9,
                "dur": 5.0,
                "args": {"grid": [1, 1, 1], "block": [1, 1, 1], "correlation": at, "stream": 7},
            },
        ]
    assert [parse(one.signature).dtype for one in works(events)] == [dtype, dtype]  # type: ignore[union-attr]
