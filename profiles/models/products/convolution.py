"""cuDNN's convolutions: an implicit matrix product over output channels, pixels and the filter's volume, and the
kernels around it.

cuDNN multiplies channels-last data whose channels fill vectors of 16 bytes. Other layouts are converted before and
after, other channel counts padded. A 1x1 filter without stride is a plain matrix product. Depthwise filters have
kernels of their own that multiply without tensor cores. So have 3x3 filters in groups whose channels are a power of
two; other groups are padded and multiplied one by one, which takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.models.products.depthwise import depthwise
from profiles.models.products.engines import engine_of
from profiles.models.products.first_layers import (
    FIRST_TAPS,
    first_layer,
    is_first_layer,
    is_short,
    is_spread,
    spread,
)
from profiles.models.products.group_ways import (
    FEWEST_CHANNELS,
    HALF,
    LONG_TAPS,
    LONGEST_TAPS,
    THREE_BY_THREE,
    one_by_one,
    turned,
    unfit,
)
from profiles.models.products.groups import (
    few_weights_ns,
    has_few_weights,
    is_slow,
    of_one_group,
    one_by_one_ns,
    padded,
    padding_ns,
    slow_ns,
    turned_ns,
)
from profiles.models.products.layouts import converted_ns
from profiles.models.products.long_sums import has_no_tiles, is_unsplit, unsplit_ns
from profiles.models.products.pointwise import by_images, by_rows, sum_of_images_ns
from profiles.models.products.tiles import (
    MEDIUM,
    SINGLE_ITEMS,
    SMALL,
    UNALIGNED,
    VECTOR_F32,
    Engine,
    product_ns,
)
from profiles.models.products.transforms import NEVER_SPLIT, fourier_ns, in_fourier_space, winograd_ns, winograds
from profiles.signature import Conv, dtype_nbytes

IMPLICIT_16 = Engine("convolution 16 bit", MEDIUM, 0.925, 0.18, 93.0, 1.0, 1.56, 845.0, 0.025, 2700.0, 2200.0)
WEIGHTS_16 = Engine(
    "convolution weights 16 bit", MEDIUM, 1.03, 1.95, 90.0, 0.965, 1.27, 400.0, 0.081, 1390.0, 10_600.0, 340
)
IMPLICIT_TF32 = Engine("convolution tf32", MEDIUM, 1.91, 90.0, 92.0, 0.76, 6.5, 2300.0, 0.037, 0.0, 900.0)
DATA_TF32 = Engine("convolution data tf32", MEDIUM, 2.11, 130.0, 79.0, 0.22, 6.5, 1700.0, 0.001, 0.0, 900.0)
WEIGHTS_TF32 = Engine("convolution weights tf32", MEDIUM, 0.52, 35.0, 43.0, 1.0, 30.0, 3000.0, 0.162, 350.0, 50.0)
# Kernels of older GPUs, for channels that must be padded.
PADDED = Engine("convolution padded", SMALL, 0.38, 0.0, 32.0, 1.0, 0.0, 300.0, 0.03, 1000.0, 2200.0)
PADDED_WEIGHTS = replace(PADDED, name="convolution weights padded", rate=0.80, split_ns=3700.0)
UNALIGNED_STREAM = 0.62  # share of the bandwidth that is left where rows do not begin at 16 bytes
VECTOR = replace(VECTOR_F32, name="convolution f32")
VECTOR_FORWARD = replace(VECTOR_F32, name="convolution forward f32", least_k=NEVER_SPLIT)
VECTOR_RATE = {"fwd": 0.75, "dgrad": 0.7, "wgrad": 0.56}  # share of a plain product's rate
VECTOR_POINTWISE = {"fwd": 0.86, "dgrad": 0.62, "wgrad": 0.35}
VECTOR_STRIDED = 1.5  # the gradient of the data, with a stride
# Gradients of images of few channels: a kernel of its own that multiplies at this share of the vector units' rate.
FEW_DATA, FEW_DATA_RATE, FEW_VOLUME = 4, 0.2, 2
# First layers of f16, channels last: share of that rate for nine taps.
FIRST_RATE, FIRST_WEIGHTS_RATE = 0.39, 0.21

STRIDED = 1.35  # the gradient of the data of a strided convolution: addresses are looked up
GROUPED_STRIDED = 1.3  # likewise, in groups, over that
# Small groups multiplied together: time over that of a full tile, with up to NARROW_GROUP channels and with more.
GROUPED, GROUPED_WIDE, NARROW_GROUP = 1.3, 1.08, 8
# The same for tf32, except for gradients of weights; for the data's with a stride.
GROUPED_TF32, GROUPED_STRIDED_TF32 = 0.75, 3.1
# Taps that are further apart than NEAR_TAPS have kernels of older GPUs: time over that of others.
FAR_TAPS, NEAR_TAPS = {"fwd": 2.05, "dgrad": 1.62, "wgrad": 1.85}, 8
FAR_TAPS_TF32 = {"fwd": 2.0, "dgrad": 1.3, "wgrad": 1.3}
LONG_WEIGHTS = 2.3  # gradients of long filters in groups
FEW_DATA_16 = 0.62  # gradients of images of few channels, of 16 bits
VOLUME = 1.1  # filters over three dimensions, of 16 bits, likewise
GROUP_CHANNELS = 64  # channels that fill a tile
EMPTY_16, EMPTY_TF32 = 0.45, 0.17  # exponents of the time that a tile's empty part costs

STREAM = 0.87  # share of the streaming bandwidth
VECTOR_NBYTES = 16
# Groups whose filters are long, or whose channels do not fill a vector: kernels without tensor cores.
DIRECT_RATE, FEW_RATE, FEW_IMAGES = 0.17, 0.04, 64


GROUPED_DIRECT = "convolution in groups, without tensor cores"
GROUPED_SERIAL = "convolution in groups, one by one"
GROUPED_SLOW = "convolution in groups, padded"


@dataclass(frozen=True, slots=True)
class Product:
    """The convolution as `groups` products of m x k by k x n."""

    m: int
    n: int
    k: int
    groups: int


def conv(gpu: Gpu, what: Conv) -> Estimate:
    if what.groups < 1:
        return conv(gpu, replace(what, groups=1))
    if what.layout == "nchw" and prod(what.x[2:]) == 1 and prod(what.w[2:]) == 1:  # both layouts are the same
        return conv(gpu, replace(what, layout="nhwc"))
    groups = what.groups
    taps = prod(what.w[2:])
    outer, inner = max(what.w[0] // groups, 1), what.w[1]
    pixels_out = what.y[0] * prod(what.y[2:])
    flops = 2.0 * groups * outer * pixels_out * inner * taps
    if groups > 1 and inner == 1 and outer == 1:
        return depthwise(gpu, what, flops)
    if groups > 1 and taps >= LONG_TAPS and what.dtype in (*HALF, "tf32"):
        return _long_filters(gpu, what, flops)
    if unfit(what) and not turned(what):
        return (_groups_in_turn if one_by_one(what) else _padded_groups)(gpu, what, flops)
    if one_by_one(what):
        return _one_by_one(gpu, what)
    if has_few_weights(what):
        return _few_weights(gpu, what, flops)
    if is_unsplit(what) or has_no_tiles(what):
        return _apart(gpu, what, flops, unsplit_ns)
    if is_first_layer(what):
        return first_layer(gpu, what, flops)
    if is_spread(what):
        return spread(gpu, what, flops)
    if rate := _direct_rate(what, inner):
        return _at_rate(gpu, what, flops, rate)
    if what.dtype == "f32" and (transformed := _transformed(gpu, what, flops)):
        return transformed
    return _implicit(gpu, what, flops)


def _one_by_one(gpu: Gpu, what: Conv) -> Estimate:
    """The estimate of groups that are convolved one by one without tensor cores. For channels last, a group is cut out
    of its operands, and the result is put in.
    """
    groups, single = what.groups, of_one_group(what)
    flops = 2.0 * prod(what.w) * what.y[0] * prod(what.y[2:]) / groups
    slow = turned(what)
    one = _implicit(gpu, replace(single, dtype="f32"), flops) if slow else conv(gpu, single)
    nbytes = dtype_nbytes(what.dtype) * (prod(single.x) + prod(single.y))
    floor = gpu.achieved.kernel_floor_ns

    def cut_ns(machine: Machine) -> float:
        if slow:
            return turned_ns(machine, single)
        return 2 * floor + 2 * machine.memory_ns(nbytes) / STREAM if what.layout == "nhwc" else 0.0

    alone, beside = cut_ns(Machine.alone(gpu)), cut_ns(Machine.beside_nccl(gpu))
    return replace(
        one,
        solo_ns=groups * (one.solo_ns + alone),
        contended_ns=groups * (one.contended_ns + beside),
        flops=groups * one.flops,
        kernels=groups * one.kernels,
        nbytes=groups * one.nbytes,
        model=GROUPED_SERIAL,
    )


def _long_filters(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """The estimate for groups of filters of 64 taps and more, as those that code positions in speech."""
    if is_slow(what):
        return both(gpu, lambda machine: slow_ns(what), flops, model=GROUPED_DIRECT, kernels=4 * what.groups)
    if what.dtype == "tf32" and what.direction == "dgrad" and prod(what.w[2:]) >= LONGEST_TAPS:
        return _at_rate(gpu, what, flops, DIRECT_RATE)
    if one_by_one(what):
        return _groups_in_turn(gpu, what, flops)
    fits = padded(replace(what, layout="nhwc")) == replace(what, layout="nhwc")
    return _implicit(gpu, what, flops) if fits else _padded_groups(gpu, what, flops)


def _at_rate(gpu: Gpu, what: Conv, flops: float, rate: float) -> Estimate:
    """The estimate at this share of the vector units' rate."""
    vectors = gpu.peak_flops("f32") * gpu.achieved.vector_fraction * rate * 1e-9
    model = GROUPED_DIRECT if what.groups > 1 else f"convolution {what.dtype}"
    return both(gpu, lambda machine: flops / vectors * gpu.sm_count / machine.sms, flops, model=model, peak="f32")


def _transformed(gpu: Gpu, what: Conv, flops: float) -> Estimate | None:
    """The estimate without tensor cores, where cuDNN multiplies less by a transform; None where it does not."""
    ns = winograd_ns if winograds(what) else fourier_ns if in_fourier_space(what) else None
    return _apart(gpu, what, flops, ns) if ns else None


def _apart(gpu: Gpu, what: Conv, flops: float, ns: Callable[[Machine, Conv], float]) -> Estimate:
    """The estimate of kernels that are no product in tiles."""
    nbytes = dtype_nbytes(what.dtype) * (prod(what.x) + prod(what.w) + prod(what.y))
    model = f"convolution {what.dtype}"
    return both(gpu, lambda machine: ns(machine, what), flops, model=model, kernels=4, nbytes=nbytes)


def _padded_groups(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """The estimate for 16 bits where one kernel takes all groups, once their channels are padded."""
    wider = padded(what)
    main = _implicit(gpu, wider, flops, rounds=False)
    alone, beside = (padding_ns(one, what, wider) for one in (Machine.alone(gpu), Machine.beside_nccl(gpu)))
    return replace(
        main,
        solo_ns=main.solo_ns + alone,
        contended_ns=main.contended_ns + beside,
        kernels=main.kernels + 6,
        model=GROUPED_SLOW,
    )


def _groups_in_turn(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """The estimate for 16 bits by kernels of older GPUs, one group after the other."""
    nbytes = dtype_nbytes(what.dtype) * (prod(what.x) + prod(what.w) + prod(what.y))
    kernels = 3 * what.groups
    return both(
        gpu,
        lambda machine: one_by_one_ns(machine, what),
        flops,
        model=GROUPED_SLOW,
        kernels=kernels,
        nbytes=nbytes,
        peak=what.dtype,
    )


def _direct_rate(what: Conv, inner: int) -> float:
    """The share of the vector units' rate; 0: the convolution is an implicit matrix product."""
    if what.groups == 1 and inner <= FEW_DATA and what.dtype in ("f32", "tf32"):
        overlap = len(what.w) == 4 or prod(what.stride) < prod(what.w[2:])
        if (what.direction == "dgrad" and overlap) or (
            what.direction == "fwd" and len(what.w) == 5 and inner <= FEW_VOLUME
        ):
            return FEW_DATA_RATE
    if what.groups == 1 and inner <= FEW_DATA and len(what.w) == 4:
        half, taps = what.dtype in HALF, prod(what.w[2:])
        if half and what.direction == "fwd" and taps == THREE_BY_THREE and what.layout == "nchw":
            return FEW_DATA_RATE
        short = THREE_BY_THREE <= taps <= FIRST_TAPS and what.layout != "nchw" and what.dtype == "f16"
        if what.direction == "fwd" and short:  # tensor cores: as many outputs whatever the taps
            return FIRST_RATE * taps / THREE_BY_THREE
        if what.direction == "wgrad" and short and taps < FIRST_TAPS and min(what.stride) > 1:
            return FIRST_WEIGHTS_RATE * taps / THREE_BY_THREE
    few = what.groups > 1 and what.dtype == "tf32" and inner < FEWEST_CHANNELS and what.layout == "nchw"
    return FEW_RATE if few and what.direction == "dgrad" and what.x[0] <= FEW_IMAGES else 0.0


def _few_weights(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    def ns(machine: Machine) -> float:
        return few_weights_ns(machine, what)

    nbytes = dtype_nbytes(what.dtype) * (prod(what.x) + prod(what.w) + prod(what.y))
    return both(gpu, ns, flops, model=GROUPED_DIRECT, kernels=2, nbytes=nbytes, peak=what.dtype)


def _implicit(gpu: Gpu, what: Conv, flops: float, *, rounds: bool = True) -> Estimate:
    """The estimate of an implicit matrix product. `rounds`: no kernel before has rounded the operands to tf32."""
    item = dtype_nbytes(what.dtype)
    vector = max(int(VECTOR_NBYTES / item), 1)
    tensor = what.dtype in ("f16", "bf16", "tf32")
    pointwise = prod(what.w[2:]) == 1 and prod(what.stride or (1,)) == 1 and not any(what.padding)
    pixels = prod(what.x[2:])
    groups = max(what.groups, 1)
    outer, inner = what.w[0] // groups, what.w[1]
    # Channels-first, a 1x1 filter is a batch of products with the pixels of an image as columns.
    plain = _engine(what, padded=False, pointwise=True)[0]
    single = by_images(what, plain) if pointwise and what.layout == "nchw" and groups == 1 else None
    per_image = single is not None
    small = groups > 1 and GROUP_CHANNELS % max(outer, inner, 1) == 0
    rows = pointwise and what.layout == "nhwc" and groups == 1 and tensor
    padded = tensor and not per_image and not small and not rows and (inner % vector != 0 or outer % vector != 0)
    convert = tensor and what.layout == "nchw" and not per_image
    size = _product(what, vector if padded else 1)
    engine, dtype = _engine(what, padded=padded, pointwise=pointwise)
    engine = single or (by_rows(what) if rows and what.dtype != "tf32" else engine)
    touched = min(prod(what.x), prod(what.y) // max(what.y[1], 1) * what.x[1] * prod(what.w[2:]))
    nbytes = item * (touched + prod(what.w) + prod(what.y)) / STREAM
    if rows and what.direction != "wgrad" and engine in (UNALIGNED, SINGLE_ITEMS):
        nbytes /= UNALIGNED_STREAM
    around = [one for one in (what.x, what.y, what.w) if convert or (padded and one[1] % vector)]
    slower = _slower(what)
    # Kernels of older GPUs, of tf32 in groups: both operands are rounded first, by kernels that convert layouts, too.
    older = what.direction == "wgrad" or (what.direction == "dgrad" and prod(what.stride) > 1)
    rounds = rounds and groups > 1 and what.dtype == "tf32" and older and what.layout == "nhwc"
    least = item * (min(prod(what.x), touched) + prod(what.w) + prod(what.y))

    def ns(machine: Machine) -> float:
        if per_image and what.direction != "wgrad":
            main = product_ns(machine, engine, dtype, size.m, pixels, size.k, what.x[0], nbytes=nbytes)
        elif per_image and tensor:
            main = sum_of_images_ns(machine, what, engine, dtype, nbytes)
        else:
            main = product_ns(machine, engine, dtype, size.m, size.n, size.k, size.groups, nbytes=nbytes)
        rounded = 2 * machine.memory_ns(2 * item * prod(what.y)) if rounds else 0.0
        return (
            main * slower
            + rounded
            + sum(
                converted_ns(machine, shape, item, vector if padded else 0, turned=not is_short(what))
                for shape in around
            )
        )

    return both(gpu, ns, flops, model=f"convolution {what.dtype}", kernels=1 + len(around), nbytes=least, peak=dtype)


def _slower(what: Conv) -> float:
    """The time over that of a product of the same size."""
    if what.dtype not in ("f16", "bf16", "tf32"):
        rates = VECTOR_RATE if prod(what.w[2:]) > 1 else VECTOR_POINTWISE
        apart = what.direction == "dgrad" and prod(what.stride or (1,)) > 1 and prod(what.w[2:]) > 1
        return (VECTOR_STRIDED if apart else 1.0) / rates[what.direction]
    strided = what.direction == "dgrad" and prod(what.stride or (1,)) > 1
    channels = min(what.w[0], what.w[1] * max(what.groups, 1))
    empty = max(GROUP_CHANNELS / max(channels, FEWEST_CHANNELS), 1.0) if prod(what.w[2:]) > 1 else 1.0
    few = float(empty ** (EMPTY_TF32 if what.dtype == "tf32" else EMPTY_16))
    of_group = max(what.w[0] // max(what.groups, 1), what.w[1])
    grouped = what.groups > 1 and of_group < GROUP_CHANNELS
    together = (GROUPED if of_group <= NARROW_GROUP else GROUPED_WIDE) if grouped else 1.0
    if what.groups > 1 and what.dtype == "tf32" and what.direction != "wgrad":
        together = GROUPED_STRIDED_TF32 if strided else GROUPED_TF32
    apart = prod(what.w[2:]) > 1 and max(what.dilation, default=1) > NEAR_TAPS
    far = (FAR_TAPS_TF32 if what.dtype == "tf32" else FAR_TAPS)[what.direction] if apart else 1.0
    long = LONG_WEIGHTS if what.groups > 1 and prod(what.w[2:]) >= LONG_TAPS and what.direction == "wgrad" else 1.0
    image = what.direction == "dgrad" and what.dtype in HALF and max(what.groups, 1) == 1 and what.w[1] <= FEW_DATA
    long *= FEW_DATA_16 if image and prod(what.w[2:]) > 1 else 1.0
    volume = VOLUME if len(what.w) == 5 and min(what.w[2:]) > 1 and what.dtype != "tf32" else 1.0
    apart_groups = GROUPED_STRIDED if strided and what.groups > 1 and what.dtype != "tf32" else 1.0
    return few * (STRIDED if strided else 1.0) * together * apart_groups * far * volume * long


def _engine(what: Conv, *, padded: bool, pointwise: bool) -> tuple[Engine, str]:
    plain, dtype = engine_of(what.dtype)
    weights = what.direction == "wgrad"
    if what.dtype == "tf32":
        implicit = {"fwd": IMPLICIT_TF32, "dgrad": DATA_TF32, "wgrad": WEIGHTS_TF32}[what.direction]
        return (plain if pointwise and not weights else implicit), dtype
    if what.dtype not in ("f16", "bf16"):
        return ((VECTOR_FORWARD if what.direction == "fwd" else VECTOR) if what.dtype == "f32" else plain), dtype
    if padded:
        return (PADDED_WEIGHTS if weights else PADDED), dtype
    if pointwise:
        return plain, dtype
    return (WEIGHTS_16 if weights else IMPLICIT_16), dtype


def _product(what: Conv, multiple: int) -> Product:
    """The product that a convolution is. `multiple`: channels are padded to it. Small groups are multiplied together,
    as one group with zeros in it.
    """
    groups = max(what.groups, 1)
    taps = prod(what.w[2:])
    outer, inner = (-(-count // multiple) * multiple for count in (max(what.w[0] // groups, 1), what.w[1]))
    together = min(max(GROUP_CHANNELS // max(outer, inner), 1), groups)
    outer, inner, groups = outer * together, inner * together, -(-groups // together)
    pixels_in, pixels_out = what.x[0] * prod(what.x[2:]), what.y[0] * prod(what.y[2:])
    if what.direction == "fwd":
        return Product(outer, pixels_out, inner * taps, groups)
    if what.direction == "wgrad":
        return Product(outer, inner * taps, pixels_out, groups)
    # A pixel of the input gathers from the taps that reach it: with a stride, from fewer than all.
    return Product(inner, pixels_in, max(round(outer * taps * pixels_out / max(pixels_in, 1)), 1), groups)
