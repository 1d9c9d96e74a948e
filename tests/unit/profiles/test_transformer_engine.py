"""Kernels of Transformer Engine on an H200: by the bytes of their operands, not by their grids.

Measured times are those of one GPU (driver 580, PyTorch 2.11, Transformer Engine 2.20.2).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles import CostModel, Source, load_gpu

H200 = CostModel(load_gpu("h200"))
FORWARD = (
    "_ZN18transformer_engine13normalization24rmsnorm_fwd_tuned_kernelINS0_13Kernel_traitsI13__nv_bfloat16S3_S3_fjLj8192"
    "ELj1ELj1ELj4ELj16ENS0_18Kernel_traits_baseILj8192ES3_S3_S3_fjLj128EEEEEEEvNS0_19ForwardKernelParamsE"
)
CAST = "_Z31cast_transpose_optimized_kernelPK13__nv_bfloat16PKfP13__nv_fp8_e4m3S5_S3_PfS6_mm"
ACTIVATION = (
    "_ZN18transformer_engine16gated_act_kernelILi16ELb1EfNS_5EmptyEXadL_ZNS_4siluIffEET_T0_RKS1_EE13__nv_bfloat16S7_EE"
    "vPKT4_PT5_PKT1_PSD_SG_mmT2_m"
)
BOUND = 4800.0
"""Bytes that an H200's memory can move in a nanosecond, by its datasheet."""


def cost(name: str, numbers: str, *buffers: int, grid: int = 2112):
    return H200.cost(f"sized;{name};{grid},1,1;128,1,1;0;;;{numbers};{','.join(map(str, buffers))}")


def test_a_norm_of_the_same_grid_costs_what_its_rows_need() -> None:
    large = cost(FORWARD, "2112,1,8192,8192", 8192 * 8192 * 2, 32768, 16384, 8192 * 8192 * 2)
    small = cost(FORWARD, "2112,1,2112,8192", 2112 * 8192 * 2, 8448, 16384, 2112 * 8192 * 2)
    assert large.source is Source.ROOFLINE
    assert large.solo_ns == pytest.approx(72_600, rel=0.12)
    assert large.solo_ns > 4 * 8192 * 8192 / BOUND
    assert 3.0 < large.solo_ns / small.solo_ns < 4.5  # 3.9 times the rows


@pytest.mark.parametrize(("rows", "columns", "measured_ns"), [(4096, 4096, 22_900), (16384, 8192, 147_000)])
def test_a_cast_reads_two_bytes_and_writes_two(rows: int, columns: int, measured_ns: int) -> None:
    items = rows * columns
    assert cost(CAST, f"{columns},{rows}", 2 * items, 512, items, items).solo_ns == pytest.approx(measured_ns, rel=0.15)


def test_a_weight_in_a_buffer_of_all_parameters_counts_as_itself() -> None:
    items = 4096 * 4096
    whole = cost(CAST, "4096,4096", 2 * items, 512, items, items)
    given = f"~{1 << 33},512,{items},{items}"
    view = H200.cost(f"sized;{CAST};1024,1,1;128,1,1;0;;;4096,4096;{given}")
    assert whole.solo_ns < view.solo_ns < 1.6 * whole.solo_ns  # an item of the view may have four bytes


def test_a_gated_activation_reads_twice_what_it_writes() -> None:
    items = 8192 * 8192
    found = cost(ACTIVATION, "8192,8192,1024", 4 * items, 2 * items, grid=8192)
    assert found.solo_ns == pytest.approx(95_800, rel=0.12)
    assert found.bound == "memory"


LINEAR_ROPE = (
    "_ZN18transformer_engine41fused_rope_thd_linear_grid_forward_kernelI13__nv_bfloat16EEvPKT_PKiPKfPS2_iiiiiiiiiiii"
)
QKV_ROPE = "_ZN18transformer_engine29fused_qkv_rope_forward_kernelI13__nv_bfloat16EEvPKT_PKfS6_PS2_S7_S7_"
PACKED_ROPE = "_ZN18transformer_engine25fused_rope_forward_kernelI13__nv_bfloat16EEvPKT_PKiPKfS6_PS2_iiiiiiiiiiiiii"


def rope(name: str, grid: str, block: str, numbers: str, buffers: str) -> float:
    return H200.cost(f"sized;{name};{grid};{block};1024;nvte_fused_rope_forward;;{numbers};{buffers}").solo_ns


@pytest.mark.parametrize(
    ("found", "measured_ns"),
    [
        (rope(QKV_ROPE, "16384,1,1", "32,4,1", "-", "100663296,8388608,67108864,16777216,16777216"), 137_300),
        (rope(LINEAR_ROPE, "32760,1,1", "32,8,1", "1,0,16,16,64,64,1024", "67108864,512,1835008,67108864"), 123_400),
        (rope(PACKED_ROPE, "3409,16,1", "32,8,1", "1,0,3409,32,128,128", "67108864,512,1769472,67108864"), 92_100),
    ],
)
def test_rope_takes_what_its_tokens_warps_and_items_take(found: float, measured_ns: int) -> None:
    """Queries, keys and values of 16,384 tokens together; 32,760 packed tokens of 16 heads of 64; 8,192 packed tokens
    of 32 heads of 128, for which 54,544 blocks are launched.
    """
    assert found == pytest.approx(measured_ns, rel=0.12)


def test_without_operands_its_kernels_are_not_recognised() -> None:
    """So that the rank tells them."""
    for name in (FORWARD, CAST, ACTIVATION):
        assert H200.cost(f"kernel;{name};2112,1,1;128,1,1;0;;").source is Source.UNRECOGNISED


ADAM = (
    "_Z25multi_tensor_apply_kernelI18TensorListMetadataILi{lists}ELb0EEN18transformer_engine17multi_tensor_adam"
    "{functor}EJffffffNS1_10adamMode_tEfEEvlPViT_T0_DpT1_"
)


@pytest.mark.parametrize(
    ("lists", "functor", "measured_ns"),
    [(4, "11AdamFunctorIffffiE", 176_000), (5, "17AdamFunctorMasterI13__nv_bfloat16S3_ffiE", 183_500)],
)
def test_adam_writes_its_parameters_and_both_moments(lists: int, functor: str, measured_ns: int) -> None:
    """320 blocks of 65,536 numbers: a gradient is read, parameters and moments are read and written, 28 bytes each."""
    name = ADAM.format(lists=lists, functor=functor)
    found = H200.cost(f"kernel;{name};320,1,1;512,1,1;0;;")
    assert found.solo_ns > 320 * 65536 * 28 / BOUND
    assert found.solo_ns == pytest.approx(measured_ns, rel=0.12)


PUSH = "_Z21kuserbuffers_pushsendPiS_P4int4S1_i"


def test_a_push_of_user_buffers_moves_its_lines_over_nvlink() -> None:
    """Without lines it sets a flag: the bytes behind its pointers, which are those of whole regions, do not count."""
    hgx = replace(load_gpu("h200"), peer_gb_per_s=400.0)
    flag, lines = (
        CostModel(hgx).cost(f"sized;{PUSH};{grid},1,1;1024,1,1;0;;;{count};512,~4194304,~33554432,~33554432")
        for grid, count in ((1, 0), (16, 1 << 21))
    )
    assert flag.source is Source.ROOFLINE
    assert flag.solo_ns < 2_000
    assert lines.solo_ns - flag.solo_ns == pytest.approx((1 << 25) / 400, rel=0.02)
    few = CostModel(hgx).cost(f"sized;{PUSH};1,1,1;1024,1,1;0;;;{1 << 21};-")
    assert few.solo_ns > 5 * lines.solo_ns  # one block keeps a tenth of the links busy


def test_the_sum_of_user_buffers_reads_a_part_of_each_member() -> None:
    items, members = 1 << 24, 8
    name = "_Z16reduce_bf16_cudaILi32EEvPvS0_iiii"
    found = H200.cost(
        f"sized;{name};2048,1,1;256,1,1;0;;;{members},{items},{items // 32},{members * items};{2 * members * items}"
    )
    assert found.source is Source.ROOFLINE
    assert found.solo_ns == pytest.approx(2 * items * (members + 1) / 4_200, rel=0.15)  # 4.2 TB/s are reached
