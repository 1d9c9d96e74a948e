"""Finds the way in which cuDNN convolves channels in groups. One kernel takes all groups as they are, where it fits;
else their channels are padded to a power of two, so that it does; or the groups are convolved one by one.

When it does what is not documented: the rules were read off 1,600 calls on an H100 (laboratory/notes/kernel-models.md
says how many they tell). `launches_of_groups` in emu/hook/cudnn/work.c has the same ones.
"""

from __future__ import annotations

from math import prod

from profiles.signature import Conv

FEWEST_CHANNELS = 8
THREE_BY_THREE = 9  # taps
LONG_TAPS, LONGEST_TAPS = 64, 128  # filters so long have kernels of their own
FEWEST_OF_GROUP, MOST_OF_GROUP = 4, 128
"""The least and most channels of a group for which cuDNN has kernels that take all groups at once."""
HALF = ("f16", "bf16")
TOGETHER, SHORT_TAPS = {"tf32": 48}, 25
"""The channels of a group up to which groups are convolved together, by dtype, where a filter is longer or has three
dimensions, or images are few.
"""
# 16 bits: channels of a group that are padded, and that are not though more are.
ALWAYS_PADDED, MOST_PADDED, NEVER_PADDED, WIDE_GROUP, FEW_IMAGES = 32, 256, (48, 64), 64, 4
# Groups of 64 channels, which fit: the number of groups up to which gradients of data go one by one, images and sides
# forward. Groups of 128: the pixels up to which, and the rows from which on, gradients of weights do.
APART_GROUPS, APART_IMAGES, APART_SIDE, APART_PIXELS, APART_ROWS = 6, 32, 14, 10_000, 100_000
# Gradients of weights: the pixels from and up to which a sum goes through them group by group; of few channels in
# channels-last rows, up to more.
SUMMED_FROM, SUMMED_TO, SUMMED_ROWS_TO = 3_000, 16_000, 88_000
# tf32: groups that are so few that weights are summed group by group, where they fit and where not; padded channels
# of all groups that are too many.
FEW_GROUPS, FEW_UNFIT_GROUPS, MOST_CHANNELS = 4, 6, 3_328
MOST_FORWARD = 256  # channels of a group of few images that are convolved together forward
STRIDED_CHANNELS = 28  # more than these: data gradients with a stride go group by group
# tf32, channels first: groups whose operands are turned round, for a kernel without tensor cores.
TURNED_GROUPS, TURNED_FROM, TURNED_BELOW = 5, 16, 64
FEWEST_IN_ALL, FEWEST_STRIDED = 64, 80  # channels of all groups: fewer are turned round forward, too
TURNED_WIDE, TURNED_SIDES, TURNED_PIXELS = 40, (48, 96), 128_000  # or so many of a group, of such images
BETWEEN, WIDE_SIDE, MANY_GROUPS = (44, 64), 28, 16  # channels, side and groups that are not padded forward


def unfit(what: Conv) -> bool:
    """Returns true for convolutions by tensor cores in groups that no kernel takes as they are."""
    groups = max(what.groups, 1)
    inner, taps = what.w[1], prod(what.w[2:])
    if groups == 1 or inner == 1 or len(what.w) != 4 or taps >= LONG_TAPS:
        return False
    if what.dtype == "tf32":
        if not _goes_by_ways(what):
            return _is_of_few_images(what) and not one_by_one(what) and what.w[0] != groups * inner
        return one_by_one(what) or not _fits(what)
    if what.dtype not in HALF:
        return False
    return not _fits(what) or _apart(what)


def one_by_one(what: Conv) -> bool:
    """Returns true if the groups are convolved one after the other."""
    if what.groups == 1 or what.w[1] == 1:
        return False
    if prod(what.w[2:]) >= LONG_TAPS:
        return what.direction != "wgrad" or what.dtype not in HALF
    channels = max(what.w[0] // what.groups, what.w[1])
    if what.dtype not in HALF:
        if what.dtype == "tf32" and _goes_by_ways(what):
            return _tf32_one_by_one(what, channels)
        if _is_of_few_images(what):
            return _few_images_one_by_one(what, channels)
        return channels > TOGETHER.get(what.dtype, 0)
    if not unfit(what) or channels <= ALWAYS_PADDED:
        return False
    if channels & (channels - 1) == 0 or channels > MOST_PADDED:
        return True
    if what.direction == "wgrad":
        rows = what.layout == "nhwc" and channels <= WIDE_GROUP
        pixels = what.y[0] * prod(what.y[2:])
        return channels > MOST_OF_GROUP or SUMMED_FROM < pixels <= (SUMMED_ROWS_TO if rows else SUMMED_TO)
    strided = what.direction == "dgrad" and min(what.stride) > 1
    return strided or NEVER_PADDED[0] < channels <= NEVER_PADDED[1]


def launches_of_group(what: Conv) -> int:
    """The number of kernels and fills that the host starts for each group, where these are convolved one after the
    other: operands are cut out or turned round, a result is put in, a sum begins with a fill.
    """
    if what.dtype == "f32":
        return 1 if what.direction == "fwd" else 2
    return 3 if what.dtype in HALF and what.layout == "nhwc" and what.direction != "wgrad" else 4


def turned(what: Conv) -> bool:
    """Returns true for tf32 by a kernel without tensor cores, whose operands slow kernels turn round before and
    after.
    """
    inner = what.w[1]
    if what.dtype != "tf32" or what.layout != "nchw" or what.groups == 1 or not _goes_by_ways(what):
        return False
    if what.direction == "dgrad":
        few = what.groups <= TURNED_GROUPS and max(what.stride) == 1
        return few and TURNED_FROM <= inner < TURNED_BELOW
    if what.direction != "fwd" or inner < TURNED_FROM:
        return False
    side, in_all = max(what.x[2:]), inner * what.groups
    middle = TURNED_SIDES[0] <= side < TURNED_SIDES[1] and what.x[0] * prod(what.x[2:]) <= TURNED_PIXELS
    few = in_all < FEWEST_IN_ALL or (in_all < FEWEST_STRIDED and max(what.stride) > 1)
    return few or (TURNED_WIDE <= inner < TURNED_BELOW and middle)


def padded_channels(channels: int) -> int:
    return max(1 << (channels - 1).bit_length(), FEWEST_CHANNELS)


def _goes_by_ways(what: Conv) -> bool:
    """Returns true if these rules hold for tf32: not for few images (StyleGAN), and not for long filters."""
    return len(what.w) == 4 and prod(what.w[2:]) <= SHORT_TAPS and what.x[0] > FEW_IMAGES


def _apart(what: Conv) -> bool:
    """Returns true if groups of 16 bits are convolved one by one though a kernel takes all groups as they are."""
    inner, images = what.w[1], what.x[0]
    if inner < WIDE_GROUP:
        return False
    if what.direction == "wgrad":
        pixels = what.y[0] * prod(what.y[2:])
        apart = images <= FEW_IMAGES or pixels <= APART_PIXELS or (what.layout == "nhwc" and pixels > APART_ROWS)
        return inner > WIDE_GROUP and apart
    if images <= FEW_IMAGES or (what.direction == "dgrad" and min(what.stride) > 1):
        return True
    if what.direction == "dgrad":
        return inner == WIDE_GROUP and what.groups <= APART_GROUPS
    return inner == WIDE_GROUP and images <= APART_IMAGES and max(what.x[2:]) <= APART_SIDE


def _is_of_few_images(what: Conv) -> bool:
    short = len(what.w) == 4 and THREE_BY_THREE <= prod(what.w[2:]) <= SHORT_TAPS
    return what.dtype == "tf32" and short and what.x[0] <= FEW_IMAGES


def _fits(what: Conv) -> bool:
    outer, inner = what.w[0] // what.groups, what.w[1]
    power = outer == inner and inner & (inner - 1) == 0
    return power and FEWEST_OF_GROUP <= inner <= MOST_OF_GROUP and prod(what.w[2:]) == THREE_BY_THREE


def _few_images_one_by_one(what: Conv, channels: int) -> bool:
    """Returns true if the groups of a generator, whose images each have weights of their own, are convolved one by
    one.
    """
    outer, inner, rows = what.w[0] // what.groups, what.w[1], what.layout == "nhwc"
    if rows and what.direction != "dgrad" and outer != inner and channels >= MOST_OF_GROUP:
        return True
    if what.direction == "fwd":
        return channels > MOST_FORWARD or outer < inner == MOST_OF_GROUP
    widens = outer > inner and (outer >= MOST_OF_GROUP if what.direction == "dgrad" else inner >= WIDE_GROUP)
    return channels > MOST_OF_GROUP or widens


def _tf32_one_by_one(what: Conv, channels: int) -> bool:
    fits = _fits(what)
    if what.direction == "wgrad":
        in_all = padded_channels(channels) * what.groups
        return what.groups <= (FEW_GROUPS if fits else FEW_UNFIT_GROUPS) or (not fits and in_all > MOST_CHANNELS)
    if channels > MOST_OF_GROUP or turned(what):
        return True
    if what.direction == "dgrad":
        return min(what.stride) > 1 and channels > STRIDED_CHANNELS
    wide = max(what.x[2:]) >= WIDE_SIDE and what.groups <= MANY_GROUPS
    return wide and not fits and BETWEEN[0] < channels < BETWEEN[1]
