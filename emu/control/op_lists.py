"""Which ATen operations are computed for real when their tensors are small: `name.overload`, as in their schemas.

To compute one more, add it to the list whose rule holds for it, and a case to `tests/e2e/scripts/control_tensors.py`.
Only operations belong here that a CPU kernel computes as the GPU's would.
"""

from __future__ import annotations

_POINTWISE = """
add.Tensor add_.Tensor add.out sub.Tensor sub_.Tensor sub.out rsub.Tensor rsub.Scalar mul.Tensor mul_.Tensor mul.out
div.Tensor div_.Tensor div.out div.Tensor_mode div_.Tensor_mode div.out_mode floor_divide floor_divide_.Tensor
floor_divide.out remainder.Tensor remainder_.Tensor remainder.Tensor_out remainder.Scalar_Tensor fmod.Tensor
fmod_.Tensor fmod.Tensor_out pow.Tensor_Tensor pow.Tensor_Scalar pow_.Scalar neg neg_ neg.out abs abs_ abs.out sgn
sign sign_ reciprocal reciprocal_ sqrt rsqrt ceil floor round trunc ceil_ floor_ round_ maximum minimum maximum.out
minimum.out clamp clamp_ clamp.out clamp_min clamp_min_ clamp_max clamp_max_ clamp.Tensor eq_.Scalar eq_.Tensor
ne_.Scalar ne_.Tensor lt_.Scalar lt_.Tensor le_.Scalar le_.Tensor gt_.Scalar gt_.Tensor ge_.Scalar ge_.Tensor
eq.Scalar_out eq.Tensor_out ne.Scalar_out ne.Tensor_out lt.Scalar_out lt.Tensor_out le.Scalar_out le.Tensor_out
gt.Scalar_out gt.Tensor_out ge.Scalar_out ge.Tensor_out logical_and logical_or logical_xor logical_not logical_and_
logical_or_ logical_xor_ logical_not_ logical_and.out logical_or.out logical_xor.out logical_not.out
bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and_.Tensor bitwise_or_.Tensor bitwise_xor_.Tensor
bitwise_and.Tensor_out bitwise_or.Tensor_out bitwise_xor.Tensor_out bitwise_not bitwise_not_ bitwise_not.out
bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor __lshift__.Scalar
__rshift__.Scalar where.self where.self_out lerp.Scalar
"""

_FILLS = "fill_.Scalar fill_.Tensor arange.start_out eye.out eye.m_out linspace.out tril_indices triu_indices"

_REDUCTIONS = """
sum.dim_IntList sum.IntList_out sum prod prod.dim_int max min max.dim min.dim max.dim_max min.dim_min amax amin
amax.out amin.out argmax argmin argmax.out argmin.out aminmax any all any.dim all.dim any.out all.out any.all_out
all.all_out any.dims all.dims cumsum cumsum_ cumsum.out cumprod cumprod.out _cummax_helper _cummin_helper
count_nonzero.dim_IntList mean mean.dim mean.out linalg_vector_norm linalg_vector_norm.out nll_loss_forward
nll_loss_forward.output mse_loss mse_loss.out smooth_l1_loss smooth_l1_loss.out huber_loss binary_cross_entropy
"""

_INDEXING = """
cat cat.out index.Tensor index.Tensor_out _index_put_impl_ index_select index_select.out index_fill_.int_Scalar
index_fill_.int_Tensor index_add index_add_ index_add.out index_copy index_copy_ index_copy.out gather gather.out
scatter.src scatter_.src scatter.src_out scatter.value scatter_.value scatter.value_out scatter_add scatter_add_
scatter_add.out scatter_reduce.two scatter_reduce_.two scatter_reduce.two_out masked_fill_.Scalar masked_fill_.Tensor
masked_fill.Scalar masked_fill.Tensor masked_select masked_select.out masked_scatter_ take put_ flip roll tril triu
tril_ triu_ tril.out triu.out repeat_interleave.Tensor bincount histc histc.out searchsorted.Tensor searchsorted.Scalar
bucketize.Tensor isin.Tensor_Tensor isin.Tensor_Tensor_out isin.Tensor_Scalar isin.Tensor_Scalar_out
"""

_ORDER = """
sort sort.stable sort.values_stable sort.values topk topk.values argsort.stable kthvalue.values median
median.dim_values
"""

_AMP = "_amp_update_scale_"


def _names(text: str) -> tuple[str, ...]:
    return tuple(f"aten::{name}" for name in text.split())


POINTWISE = _names(_POINTWISE + _AMP)
"""The outputs are as large as the largest input."""
SHRINKING = _names(_REDUCTIONS + _INDEXING + _ORDER)
"""A small output may come from large inputs."""
FILLS = _names(_FILLS)
"""They do not read the tensor that they write to."""
LISTS_OF_FLOATS = _names("_foreach_norm.Scalar")
"""They return a list of floating-point scalars, which are not computed."""
COMPARISONS = _names(
    "eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor"
    " gt.Scalar gt.Tensor ge.Scalar ge.Tensor isnan isposinf.out isneginf.out"
)
"""Unknown floats compare as finite numbers."""
RANDOM = _names("random_ random_.from random_.to randperm.generator_out")
"""Integers are drawn on the CPU."""
UNIQUE = _names("_unique2 unique_dim unique_consecutive")
"""The outputs' sizes depend on data."""
