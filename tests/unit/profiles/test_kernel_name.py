"""Mangled names of PyTorch 2.11's kernels, read as c++filt reads them."""

from __future__ import annotations

import pytest

from profiles.kernel_names.demangle import demangle
from profiles.kernel_names.kernel_name import item_nbytes, read_name, split_arguments
from profiles.models.kernels.elementwise import Functor, functor_of

NATIVE = "at::native::"
ANONYMOUS = "at::native::(anonymous namespace)::"
PAIRS = [
    (
        "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_22reciprocal_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE_cl"
        "EvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_",
        NATIVE + "vectorized_elementwise_kernel<4, at::native::reciprocal_kernel_cuda(at::"
        "TensorIteratorBase&)::{lambda()#1}::"
        "operator()() const::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >",
    ),
    (
        "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_15gpu_kernel_implINS0_13BinaryFunctorIfffNS0_15binary_internal10Mul"
        "FunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_",
        NATIVE + "elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::"
        "BinaryFunctor<float, float, float, "
        "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, at::native::"
        "BinaryFunctor<float, float, "
        "float, at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>",
    ),
    (
        "_ZN2at6native52_GLOBAL__N__c815dac0_19_fused_adamw_impl_cu_8b44fa2325multi_tensor_apply_kernelINS1_32FusedOptimizerTe"
        "nsorListMetadataILi4EEENS1_20FusedAdamMathFunctorIN3c108BFloat16ELi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbSB_SB_EEEvT_T0_"
        "DpT1_",
        ANONYMOUS
        + "multi_tensor_apply_kernel<"
        + ANONYMOUS
        + "FusedOptimizerTensorListMetadata<4>, "
        + ANONYMOUS
        + "FusedAdamMathFunctor<c10::BFloat16, 4, (at::native::ADAM_MODE)1, false>, float const*, "
        "double, double, double, "
        "double, double, bool, float const*, float const*>",
    ),
    (
        "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c30CatArrayBatchedCopy_vectorizedINS1_10OpaqueTypeILj2EEEjLi4ELi1"
        "28ELi1ELi16ELi8EEEvPcNS1_25CatArrInputTensorMetadataIT_T0_XT2_EXT3_EEENS1_16TensorSizeStrideIS8_Lj4EEEiS8_",
        ANONYMOUS + "CatArrayBatchedCopy_vectorized<" + ANONYMOUS + "OpaqueType<2u>, unsigned int, 4, 128, 1, 16, 8>",
    ),
]


@pytest.mark.parametrize(("mangled", "readable"), PAIRS)
def test_demangles(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize("mangled", [pair[0] for pair in PAIRS])
def test_names_cut_short_never_raise(mangled: str) -> None:
    for end in range(len(mangled)):
        read_name(mangled[:end])


@pytest.mark.parametrize("name", ["triton_poi_fused_add_0", "nvjet_sm90_tst_256x128", "", "_Z", "_ZN", "_Zzz9"])
def test_unmangled_names_stay(name: str) -> None:
    assert demangle(name) == name


def test_name_of_what_cannot_be_read() -> None:
    assert read_name("_ZN2at6native13gather_kernelIU9something").base == "gather_kernel"


def test_parts() -> None:
    name = read_name(PAIRS[2][0])
    assert name.base == "multi_tensor_apply_kernel"
    assert name.arguments[0] == "at::native::FusedOptimizerTensorListMetadata<4>"
    # The same name as a profiler prints it gives the same parts.
    assert read_name(f"void {PAIRS[2][1]}(int)").arguments == name.arguments


def test_split_arguments() -> None:
    assert split_arguments("<a, b<c, d>, {lambda(e, f)#1}, (X)1>(int)") == ("a", "b<c, d>", "{lambda(e, f)#1}", "(X)1")


@pytest.mark.parametrize(
    ("type_name", "nbytes"),
    [
        ("float", 4),
        ("c10::BFloat16", 2),
        ("c10::Half const*", 2),
        ("double", 8),
        ("long", 8),
        ("bool", 1),
        ("OpaqueType<16u>", 16),
    ],
)
def test_item_nbytes(type_name: str, nbytes: float) -> None:
    assert item_nbytes(type_name) == nbytes


@pytest.mark.parametrize(
    ("functor", "expected"),
    [
        ("at::native::BinaryFunctor<c10::BFloat16, float, double, Mul>", Functor((2.0, 4.0), 8.0)),
        ("at::native::AUnaryFunctor<double, float, c10::Half, Mul>", Functor((4.0,), 2.0)),
        ("at::native::CUDAFunctor_add<float>", Functor((4.0, 4.0), 4.0)),
        ("at::native::CUDAFunctorOnSelf_add<c10::BFloat16>", Functor((2.0,), 2.0)),
        ("at::native::FillFunctor<long>", Functor((), 8.0)),
        ("at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", Functor((4.0,), 2.0)),
        ("f()::{lambda()#2}::operator()() const::{lambda(c10::BFloat16, bool)#1}", Functor((2.0, 1.0), 2.0)),
    ],
)
def test_functors(functor: str, expected: Functor) -> None:
    assert functor_of(functor) == expected
