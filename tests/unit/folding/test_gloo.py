"""Questions of torch.distributed's to gloo's stand-in of a folded run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "can"),
    [
        ("supports_splitting", True),
        ("supports_coalescing", False),
        ("_supports_time_estimate", False),
        ("supports_shrinking", False),
        ("supports_reconfigure", False),
        ("supports_window", False),
    ],
)
def test_what_it_can_do_is_read_without_recursion(name: str, can: bool) -> None:
    """PyTorch's own properties look the name up in a backend that is written in Python, and find themselves."""
    from torch._C import _distributed_c10d as c10d

    from emu.folding.gloo import BY_METHODS, StandIn

    if not BY_METHODS or not hasattr(c10d.Backend, name):
        pytest.skip(f"this PyTorch has no {name}")

    class Backend(StandIn):
        def __init__(self) -> None:
            c10d.Backend.__init__(self, 0, 1)

    backend = Backend()
    assert bool(getattr(backend, name)) is can
    backend.eager_connect_single_device(torch.device("cpu"))


def test_what_takes_the_place_of_operators_takes_no_time_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before PyTorch 2.12 the stand-in calls functions of PyTorch where gloo's own backend calls none."""
    from emu.folding.dispatched import Dispatched

    depth, installed_at = [0], []

    class Hook:
        def uncounted(self, by: int) -> None:
            depth[0] += by

    class Gloo:
        def __init__(self, store: object, rank: int, size: int) -> None:
            pass

    monkeypatch.setattr(Dispatched, "install", lambda _: installed_at.append(depth[0]))
    made = Dispatched(Hook()).backends(Gloo, lambda *given: given)("store", 2, 4)
    assert made.stand_in == ("store", 2, 4)
    assert (installed_at, depth) == ([1], [0])
