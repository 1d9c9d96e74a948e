"""Work that emu.gpubench executes, made on the CPU: arguments by schema, layouts of products, launches of an
execution."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from emu.gpubench import library_calls, operators, tensors, timing  # noqa: E402
from emu.gpubench.candidates import candidates, types_in  # noqa: E402
from emu.gpubench.operators import Unmeasurable, prepare_call  # noqa: E402

COPY = (
    "at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda(float)#1}, std::array<char*, 2ul> >(int, float)"
)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "DEVICE", "cpu")
    monkeypatch.setattr(library_calls, "DEVICE", "cpu")


def runs(call: dict[str, Any]) -> bool:
    try:
        prepare_call(call).run()
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return True


def test_types_are_read_from_the_kernel_s_name_without_its_own_parameters() -> None:
    assert types_in(COPY) == ["bf16", "f32"]
    assert types_in("void k<at::cuda::detail::OpaqueType<2>, long>(int, char*)") == ["bf16", "f16", "i64"]


def test_a_cast_is_among_the_first_candidates() -> None:
    tried = candidates("aten::copy_", [[4, 8], [4, 8], []], COPY, [1, 1, 1])
    types = [tuple(one["dtype"] for one in call["args"][:2]) for call in tried]
    assert ("bf16", "f32") in types[:12]
    assert len({str(call) for call in tried}) == len(tried)


@pytest.mark.parametrize(
    ("op", "sizes", "name"),
    [
        ("aten::mul", [[4, 8], [4, 8]], "k<float>"),
        ("aten::mul", [[4, 8], []], "k<float>"),
        ("aten::native_layer_norm", [[4, 8], [], [8], [8], []], "k<float, float>"),
        ("aten::native_layer_norm_backward", [[4, 8], [4, 8], [], [4, 1], [4, 1], [8], [8], []], "k<float, float>"),
        ("aten::_log_softmax", [[4, 8], [], []], "k<float, float>"),
        ("aten::_log_softmax_backward_data", [[4, 8], [4, 8], [], []], "k<float>"),
        ("aten::nll_loss_backward", [[], [4, 8], [4], [], [], [], []], "k<float>"),
        ("aten::embedding_dense_backward", [[2, 3, 8], [2, 3], [], [], []], "k<float, long>"),
        ("aten::index_select", [[16, 8], [], [5]], "k<float, long>"),
        ("aten::sum", [[4, 8], [], [], []], "k<float>"),
        ("aten::cat", [[4, 8], [4, 8], []], "k<OpaqueType<4> >"),
        ("aten::_foreach_mul_", [[4, 8], [8], []], "k<float>"),
        ("aten::_fused_adamw_", [*[[4, 8], [8]] * 4, [], [], *[[]] * 10], "multi_tensor_apply_kernel<float>"),
        ("aten::max_pool2d_with_indices", [[2, 3, 8, 8], [], [], [], [], []], "k<float>"),
        ("aten::masked_fill_", [[4, 8], [4, 8], []], "k<float, bool>"),
        ("aten::_chunk_cat", [[8], [4, 8], [], [], [2, 20]], "chunk_cat_cuda_kernel<float, float>"),
        ("aten::split_with_sizes_copy", [[2, 12], [], [], [2, 4], [2, 8]], "k<float>"),
        ("aten::_embedding_bag", [[16, 8], [12], [4], [], [], [], [], [], []], "k<float, long>"),
    ],
)
def test_some_candidate_runs(op: str, sizes: list[list[int]], name: str) -> None:
    assert any(runs(call) for call in candidates(op, sizes, name, [1, 1, 1]))


def test_lists_of_unknown_sizes_have_full_chunks() -> None:
    found = candidates("aten::_foreach_mul_", [], "multi_tensor_apply_kernel<float>", [3, 1, 1])
    assert found[0]["args"][0][0]["shape"] == [3 * 65536]


def test_what_is_no_operator_says_so() -> None:
    with pytest.raises(Unmeasurable, match="no operator"):
        candidates("SomeBackward0", [[4]], "k<float>", [1, 1, 1])
    with pytest.raises(Unmeasurable, match="takes 3 arguments"):
        candidates("aten::relu", [[4], [4], [4]], "k<float>", [1, 1, 1])


@pytest.mark.parametrize("trans", ["nn", "tn", "nt"])
def test_a_product_has_the_layout_that_cublas_was_told(trans: str) -> None:
    fields = {
        "call": "cublasGemmEx",
        "transa": trans[0],
        "transb": trans[1],
        "m": 6,
        "n": 4,
        "k": 8,
        "batch": 1,
        "a": "f32",
        "b": "f32",
        "c": "f32",
        "compute": "f32",
        "epilogue": "default",
    }
    prepared = library_calls.prepare_library("gemm", fields)
    out: Any = prepared.run()
    assert out.shape == (4, 6)  # by rows: transposed
    assert prepared.first is not None
    assert (prepared.first.stride(-1) == 1) == (trans[1] == "n")
    batched: Any = library_calls.prepare_library("gemm", fields | {"batch": 3}).run()
    assert batched.shape == (3, 4, 6)


def test_epilogues_that_pytorch_has_not_are_refused() -> None:
    fields = {
        "transa": "n",
        "transb": "n",
        "m": 6,
        "n": 4,
        "k": 8,
        "batch": 1,
        "a": "f32",
        "b": "f32",
        "c": "f32",
        "compute": "f32",
        "epilogue": "dgelu_bgrad",
        "call": "cublasLtMatmul",
    }
    with pytest.raises(Unmeasurable, match="epilogue"):
        library_calls.prepare_library("gemm", fields)
    with pytest.raises(Unmeasurable, match="more than one GPU"):
        library_calls.prepare_library("copy", {"direction": "p2p", "nbytes": 8, "memory": "pinned"})
    with pytest.raises(Unmeasurable, match="by itself"):
        library_calls.prepare_library("library", {})


@pytest.mark.parametrize("layout", tensors.LAYOUTS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f8e4m3", "i64", "b8"])
def test_tensors_have_their_shape_in_every_layout(layout: str, dtype: str) -> None:
    made = tensors.make_tensor({"shape": [2, 4, 6, 8], "dtype": dtype, "layout": layout})
    assert made.shape == (2, 4, 6, 8)
    assert made.is_contiguous() == (layout == "dense")
    before = made.to(torch.float64)
    tensors.touch(made)
    assert torch.equal(made.to(torch.float64), before)


def test_a_layout_that_a_shape_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match="heads of 2"):
        tensors.make_tensor({"shape": [4, 8], "dtype": "f32", "layout": "heads"})


def test_launches_belong_to_the_execution_around_them_whichever_thread_made_them() -> None:
    def mark(name: str, ts: float) -> dict[str, Any]:
        return {"cat": "user_annotation", "name": f"gpubench {name}", "ts": ts, "dur": 10.0}

    def launched(number: int, at: float, ran_at: float) -> list[dict[str, Any]]:
        args = {"correlation": number, "grid": [1, 1, 1], "block": [32, 1, 1]}
        return [
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 1.0, "tid": number, "args": args},
            {"cat": "kernel", "name": f"k{number}", "ts": ran_at, "dur": 2.0, "args": args},
        ]

    events = [mark("a", 0), mark("b", 20), *launched(1, 5, 30), *launched(2, 15, 31), *launched(3, 25, 40)]
    found = timing.by_label(events)
    assert [kernel["name"] for kernel in found["a"]] == ["k1"]
    assert [kernel["name"] for kernel in found["b"]] == ["k3"]


def test_overloads_without_tensors_are_no_candidates() -> None:
    assert {call["overload"] for call in candidates("aten::mul", [[4], [4]], "k<float>", [1, 1, 1])} <= {
        "Tensor",
        "Scalar",
    }
    assert operators.overloads("aten::mul")


def test_a_list_of_numbers_has_one_for_each_tensor_of_a_list() -> None:
    """Optimizers call it so: with one step size for each parameter."""
    lists = [[8], [4, 8], [2]] * 3
    name = "multi_tensor_apply_kernel<TensorListScalarListMetadata<float, 3>, std::divides<float> >"
    tried = candidates("aten::_foreach_addcdiv_", [*lists, []], name, [1, 1, 1])
    with_numbers = [call for call in tried if call["overload"] == "ScalarList" and len(call["args"][0]) == 3]
    assert any(runs(call) for call in with_numbers)
