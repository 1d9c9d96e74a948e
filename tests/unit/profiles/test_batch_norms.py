"""cuDNN's batch norm with channels last: grids and times in traces of ResNets (docs/data/steps-h100.jsonl.gz)."""

import pytest

from profiles.descriptions.gpu import load_gpu
from profiles.models.batch_norms import norm, sharing
from profiles.signature import Norm


def of(direction, *x):
    return Norm(direction, "spatial_persistent", x, "f16", "nhwc", "", ())


@pytest.mark.parametrize(
    ("direction", "x", "grid"),
    [
        ("fwd", (128, 1024, 14, 14), (66, 4)),
        ("fwd", (96, 1024, 14, 14), (49, 5)),
        ("fwd", (96, 2048, 7, 7), (13, 20)),
        ("fwd", (128, 512, 28, 28), (262, 1)),
        ("fwd", (96, 128, 56, 56), None),
        ("bwd", (128, 1024, 14, 14), (131, 2)),
        ("bwd", (96, 512, 14, 14), (118, 2)),
        ("bwd", (96, 2048, 7, 7), (25, 10)),
        ("bwd", (128, 512, 28, 28), None),
    ],
)
def test_blocks_share_the_pixels_of_64_channels(direction, x, grid):
    assert sharing(of(direction, *x), 264) == grid


@pytest.mark.parametrize(
    ("direction", "x", "us"),
    [
        ("fwd", (128, 256, 56, 56), 237.2),
        ("fwd", (96, 512, 28, 28), 136.4),
        ("fwd", (128, 1024, 14, 14), 63.8),
        ("bwd", (128, 256, 56, 56), 362.6),
        ("bwd", (128, 1024, 14, 14), 104.5),
        ("bwd", (96, 2048, 7, 7), 39.6),
    ],
)
def test_inputs_that_fit_are_read_once(direction, x, us):
    assert norm(load_gpu("h100"), of(direction, *x)).solo_ns / 1e3 == pytest.approx(us, rel=0.12)
