"""Properties of the costs of every signature: a positive time, no less beside NCCL, no less for more work, on every
GPU.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import profiles
from profiles.models.dispatch import estimate
from profiles.signature import parse

MODELS = {name: profiles.CostModel(profiles.load_gpu(name)) for name in profiles.gpu_names()}
gpus = st.sampled_from(sorted(MODELS))
small = st.integers(1, 300)
size = st.integers(1, 20_000)
dtype = st.sampled_from(["f64", "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "c64"])
NAMES = (
    "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
    "at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
    "FillFunctor<bool> >(I&)::{lambda(int)#1}>(int)",
    "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>, "
    "unsigned int, float, 4> >(R)",
    "at::native::vectorized_layer_norm_kernel<float, float, false>(int)",
    "at::native::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u>(long)",
    "at::native::cunn_SoftMaxForward<4, float, float, float, Epilogue>(float*)",
    "at::native::batch_norm_collect_statistics_channels_last_kernel<Var, c10::BFloat16, float, 4>(int)",
    "at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, at::native::"
    "CopyFunctor<float, float, 2, 1, 1> >(T)",
    "at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
    "at::native::CatArrayBatchedCopy_vectorized<OpaqueType<4u>, unsigned int, 4, 128, 1>(char*)",
    "at::native::index_elementwise_kernel<128, 4, lambda>(int)",
    "at::native::fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int, 1, 8, bool>(T)",
    "cub::DeviceRadixSortOnesweepKernel<P>(int)",
    "pytorch_flash::flash_fwd_kernel<traits, false, true>(P)",
    "triton_poi_fused_add_mul_0",
    "triton_red_fused_0",
    "something_nobody_knows<int>(float)",
    "_ZN2at6native13gather_kernelIU9something",
)


def check(model: profiles.CostModel, signature: str) -> profiles.Cost:
    cost = model.cost(signature)
    assert 1 <= cost.solo_ns <= cost.contended_ns
    assert cost.contended_ns <= 10**15  # no cost is longer
    assert cost.flops >= 0
    return cost


@given(gpus, dtype, st.tuples(size, size, size), small, st.integers(0, 2))
def test_gemm(gpu: str, dtype: str, dims: tuple[int, int, int], batch: int, grown: int) -> None:
    def text(m: int, n: int, k: int) -> str:
        m, n, k = 16 * m, 16 * n, 16 * k  # whole vectors: other sizes need slower kernels
        return f"gemm;cublasGemmEx;t;n;{m};{n};{k};{batch};{dtype};{dtype};{dtype};f32;default;;"

    larger = tuple(one * 4 if at == grown else one for at, one in enumerate(dims))
    cost = check(MODELS[gpu], text(*dims))
    assert cost.flops >= 2.0 * dims[0] * dims[1] * dims[2] * batch
    assert check(MODELS[gpu], text(*larger)).solo_ns >= cost.solo_ns


@given(gpus, st.sampled_from(NAMES), st.integers(1, 100_000), st.sampled_from([32, 128, 256, 512, 1024]), st.booleans())
def test_kernels(gpu: str, name: str, blocks: int, threads: int, rank_info: bool) -> None:
    def text(factor: int) -> str:
        sizes = f"[[{blocks * factor}, {threads}], []]" if rank_info else ""
        return f"kernel;{name};{blocks * factor},1,1;{threads},1,1;0;;{sizes}"

    assert check(MODELS[gpu], text(4)).solo_ns >= check(MODELS[gpu], text(1)).solo_ns


@given(
    gpus, st.sampled_from(["fwd", "bwd"]), small, st.integers(1, 8), size, st.sampled_from([32, 64, 128]), st.booleans()
)
def test_attention(gpu: str, direction: str, batch: int, heads: int, length: int, depth: int, causal: bool) -> None:
    def text(length: int, causal: bool) -> str:
        shape = f"{batch}x{heads}x{length}x{depth}"
        return f"sdpa;{direction};{shape};{shape};{shape};bf16;{int(causal)};0;;"

    cost = check(MODELS[gpu], text(length, causal))
    assert check(MODELS[gpu], text(2 * length, causal)).solo_ns >= cost.solo_ns
    assert check(MODELS[gpu], text(length, False)).solo_ns >= cost.solo_ns


@given(
    gpus,
    st.sampled_from(["fwd", "dgrad", "wgrad"]),
    st.tuples(small, small, small),
    st.sampled_from([1, 3, 7]),
    st.integers(1, 64),
)
def test_conv(gpu: str, direction: str, channels: tuple[int, int, int], taps: int, side: int) -> None:
    batch, inner, outer = channels

    def text(batch: int) -> str:
        x, w, y = f"{batch}x{inner}x{side}x{side}", f"{outer}x{inner}x{taps}x{taps}", f"{batch}x{outer}x{side}x{side}"
        return f"conv;{direction};{x};{w};{y};1x1;1x1;1x1;1;bf16;nhwc;;"

    few, many = (parse(text(images)) for images in (batch, 8 * batch))  # measured ones like them may say otherwise
    assert estimate(MODELS[gpu].gpu, many).solo_ns >= estimate(MODELS[gpu].gpu, few).solo_ns
    check(MODELS[gpu], text(batch))


@given(
    gpus,
    st.sampled_from(
        ["memset;{}", "copy;h2d;{};pinned", "copy;d2h;{};pageable", "copy;d2d;{};pinned", "library;x;{};;"]
    ),
)
def test_bytes(gpu: str, pattern: str) -> None:
    times = [check(MODELS[gpu], pattern.format(nbytes)).solo_ns for nbytes in (0, 1, 4096, 10**6, 10**8, 10**11)]
    assert times == sorted(times)


@given(gpus, st.sampled_from(["fwd", "bwd"]), st.tuples(small, small, small, small))
def test_norm(gpu: str, direction: str, dims: tuple[int, ...]) -> None:
    check(MODELS[gpu], f"norm;{direction};spatial;{'x'.join(map(str, dims))};bf16;nhwc;;")


@given(st.text(max_size=200))
def test_any_text_is_priced(text: str) -> None:
    check(MODELS["h200"], text)


@given(
    st.sampled_from(["", "_ZN2at6native", "at::native::elementwise_kernel<", "multi_tensor_apply_kernel<"]),
    st.text("_ZN23ISELjabc<>(){},:#", max_size=60),
)
def test_any_kernel_name_is_priced(start: str, rest: str) -> None:
    check(MODELS["h200"], f"kernel;k{start}{rest};3,2,1;64,2,1;0;aten::add;[[5, 7], []]")
    check(MODELS["h200"], f"kernel;{start}{rest}k;3,2,1;64,2,1;0;;")


@pytest.mark.parametrize(
    "signature",
    [
        "gemm;cublasSgemm;n;n;0;5;5;1;f32;f32;f32;f32;default;;",
        "conv;fwd;0x1x1;1x1x1;0x1x1;;;;1;f32;nchw;;",
        "sdpa;fwd;0x1x1x1;0x1x1x1;0x1x1x1;f16;1;1;;",
        "norm;fwd;m;0x4;f32;nchw;;",
    ],
)
def test_empty_work_is_never_free(signature: str) -> None:
    check(MODELS["h200"], signature)


def test_a_faster_gpu_is_faster() -> None:
    signature = "gemm;cublasGemmEx;n;n;8192;8192;8192;1;bf16;bf16;bf16;f32;default;;"
    order = ["b200", "h200", "a100-80g", "rtx4090"]
    times = [MODELS[name].cost(signature).solo_ns for name in order]
    assert times == sorted(times)


def test_same_answer_twice() -> None:
    signature = "copy;d2d;12345;pinned"
    assert MODELS["h200"].cost(signature) is MODELS["h200"].cost(signature)
