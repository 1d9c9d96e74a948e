"""Random numbers of a GPU, drawn for some elements of a large tensor alone."""

import ctypes
import shutil

import pytest

torch = pytest.importorskip("torch")

from emu.control.random_numbers.distributions import AT_ANY_SIZE, IN_PLACE, Distributions, Output  # noqa: E402
from emu.control.random_numbers.philox import GeneratorState, Philox  # noqa: E402

THREADS = 512


class Hook:
    def __init__(self, path):
        self.philox = ctypes.CDLL(str(path)).phantora_philox
        self.philox.argtypes = (ctypes.c_uint64,) * 5 + (ctypes.c_void_p,)


@pytest.fixture(scope="module")
def hook(library, tmp_path_factory):
    """Loads a copy of the library: other tests load the library itself, in processes that are forked from this one."""
    return Hook(shutil.copy(library, tmp_path_factory.mktemp("hook") / "hook.so"))


def given(place, name, default):
    return default


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted(AT_ANY_SIZE))
@pytest.mark.parametrize("numel", [300, 1500, 4 * THREADS])
def test_some_elements_are_those_of_a_whole_draw(hook, name, dtype, numel):
    drawing, state = Distributions(Philox(hook, THREADS)), GeneratorState(7, 40)
    whole = IN_PLACE[name](drawing, state, Output(numel, dtype), given)
    for first, last in ((0, 1), (250, 290), (numel - 40, numel), (numel // 3, numel // 3 + 2), (0, numel)):
        some = torch.cat([*drawing.some(IN_PLACE[name], state, Output(numel, dtype), given, first, last)])
        assert torch.equal(some.to(dtype), whole[first:last].to(dtype)), (first, last)


def test_one_thread_draws_what_it_draws_among_all(hook):
    philox, state = Philox(hook, THREADS), GeneratorState(7, 40)
    words, _ = philox.words(state, 4 * THREADS, 4)
    assert philox.thread(state, 300, 4) == words[0, 300].tolist()


def test_threads_of_a_launch_may_be_more_than_the_gpu_holds(hook):
    """torch.multinomial's launch with replacement is such: it has a thread for each sample."""
    drawing, state = Distributions(Philox(hook, THREADS)), GeneratorState(7, 40)
    drawn = drawing.groups(state, 5 * THREADS)
    assert drawn.shape == (5 * THREADS, 4)
    assert torch.equal(drawn[:THREADS], drawing.groups(state, THREADS))
    assert torch.equal(drawn, Distributions(Philox(hook, 8 * THREADS)).groups(state, 5 * THREADS))
