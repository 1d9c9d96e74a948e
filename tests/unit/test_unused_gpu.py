"""Programs that use no emulated GPU: what may be the cause, and that JAX is refused when it is to compute."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from emu.start.script import words_of
from emu.start.unused_gpu import causes, install


@pytest.mark.parametrize(
    "argument",
    ["--no-accel", "--no_cuda", "--cpu", "--use-cpu", "--device=cpu", "trainer.accelerator=cpu", "--cpu-only"],
)
def test_an_argument_that_asks_for_the_cpu(argument: str) -> None:
    assert list(causes(["--lr", "1", argument], {}, ())) == [f"the argument {argument} asks for the CPU"]


def test_an_option_and_its_value() -> None:
    assert list(causes(["--device", "cpu"], {}, ())) == ["the argument --device cpu asks for the CPU"]


@pytest.mark.parametrize("argument", ["--no-acceleration-log", "--cpu-offload", "--num-cpus", "cuda", "--device=cuda"])
def test_other_arguments_are_no_cause(argument: str) -> None:
    assert not list(causes([argument, "cuda"], {"CUDA_VISIBLE_DEVICES": "0,1"}, ("torch",)))


def test_the_environment_and_other_libraries() -> None:
    found = list(causes([], {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}, ("jax", "tensorflow")))
    assert found == [
        'CUDA_VISIBLE_DEVICES="" hides all GPUs',
        "JAX_PLATFORMS=cpu asks for the CPU",
        "the script imports JAX; the emulated GPUs serve PyTorch alone",
        "the script imports TensorFlow; the emulated GPUs serve PyTorch alone",
    ]


def test_jax_is_refused_when_it_asks_for_its_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for it and to import it is allowed. Who has chosen the CPU may compute there."""
    config = SimpleNamespace(jax_platforms=None, jax_platform_name="")
    bridge, settings = ModuleType("jax._src.xla_bridge"), ModuleType("jax._src.config")
    vars(bridge)["backends"] = lambda: {"cpu": "client"}
    vars(settings)["config"] = config
    monkeypatch.setitem(sys.modules, bridge.__name__, bridge)
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    install()
    with pytest.raises(RuntimeError, match=r"JAX is not emulated.*set JAX_PLATFORMS=cpu"):
        bridge.backends()
    config.jax_platforms = "cuda,cpu"
    with pytest.raises(RuntimeError, match="JAX is not emulated"):
        bridge.backends()
    config.jax_platforms = "cpu"
    assert bridge.backends() == {"cpu": "client"}


def test_notes_that_a_library_adds_to_an_exception_are_not_its_words() -> None:
    error = RuntimeError("JAX is not emulated")
    error.add_note("For simplicity, some frames are left out")
    assert words_of(error) == "RuntimeError: JAX is not emulated"


def test_what_an_exception_says_in_further_paragraphs_is_not_its_words() -> None:
    error = RuntimeError("no space\non the disk\n\nSet TORCHDYNAMO_VERBOSE=1 for the full stack trace\n\n")
    assert words_of(error) == "RuntimeError: no space on the disk"
    assert words_of(RuntimeError("expected:\n\n3")) == "RuntimeError: expected: 3"


def test_the_words_of_an_exception_are_one_line_without_colours() -> None:
    error = RuntimeError("\x1b[1mnot used\x1b[0m.\n\tIndices: 0\n\n")
    assert words_of(error) == "RuntimeError: not used. Indices: 0"


def test_of_a_traceback_in_a_message_what_was_raised_is_told() -> None:
    """The messages are those by which PyTorch passes on what was raised in a process that it has started, or in a data
    loader's.
    """

    class ProcessRaisedException(RuntimeError):
        pass

    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in work\n    1 / 0\n    ~~^~~\n'
    caused = f"{frames}ValueError: x\n\nDuring handling of it, another exception occurred:\n\n{frames}"
    error = ProcessRaisedException(f"\n\n-- Process 0 terminated with the following error:\n{caused}KeyError: 'lr'\n")
    assert words_of(error).endswith("Exception: -- Process 0 terminated with the following error: KeyError: 'lr'")
    caught = f"Caught ZeroDivisionError in DataLoader worker process 0.\nOriginal {frames}ZeroDivisionError: by zero"
    told = "ZeroDivisionError: Caught ZeroDivisionError in DataLoader worker process 0. ZeroDivisionError: by zero"
    assert words_of(ZeroDivisionError(caught)) == told


def test_of_a_message_of_many_lines_whole_ones_at_its_beginning_are_kept() -> None:
    lines = ["set find_unused_parameters=True", "a" * 400, "b" * 400, "c"]
    assert words_of(RuntimeError("\n".join(lines))) == f"RuntimeError: {lines[0]} {lines[1]} ..."
    assert words_of(RuntimeError("a" * 700)) == f"RuntimeError: {'a' * 700}"


def test_what_pytorch_says_of_memory_beside_the_size_that_it_asked_for_is_left_to_the_log() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    told = "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 39.49 GiB. If reserved ..."
    assert words_of(OutOfMemoryError(told)).endswith(
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB."
    )
    assert words_of(OutOfMemoryError("no blocks")).endswith("OutOfMemoryError: no blocks")
    assert words_of(RuntimeError(told)) == f"RuntimeError: {told}"
