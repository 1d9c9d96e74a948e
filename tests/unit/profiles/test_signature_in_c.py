"""Signatures that the hook library writes are those that Python parses: one definition, read by both."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from profiles.signature import (
    DEFINITION,
    Conv,
    Gemm,
    Grouped,
    Kernel,
    Library,
    Memset,
    Packed,
    Rnn,
    Scaled,
    Sdpa,
    Sequences,
    Signature,
    Sized,
    Strided,
    Triton,
    Windowed,
    format_signature,
    parse,
    unknown_parts,
)

HERE = Path(__file__).parent
HOOK = HERE.parents[2] / "emu" / "hook"
SIZES = ((8, 64), (64,), ())

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Returns the program's lines by their first word."""
    program = tmp_path_factory.mktemp("signature") / "texts"
    sources = [HERE / "signature_texts.c", HOOK / "costs" / "signature.c"]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", f"-I{HOOK}"]
    subprocess.run(["cc", *flags, "-o", program, *sources], check=True)
    found: dict[str, list[str]] = {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        name, _, text = line.partition(" ")
        found.setdefault(name, []).append(text)
    return found


@pytest.mark.parametrize("library", ["cuda", "cudnn"])
def test_every_number_has_a_dtype_that_python_knows(written: dict[str, list[str]], library: str) -> None:
    numbers = {getattr(dtype, library): name for name, dtype in DEFINITION.dtypes.items()}
    for line in written[library]:
        number, name = line.split()
        assert name == numbers.get(int(number), "other")
        found = parse(f"norm;fwd;spatial;1x2;{name};nchw;;")
        assert bool(unknown_parts(found)) == (name == "other")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel", Kernel("_Z3foov", (2, 3, 1), (128, 1, 1), 4096, "aten::op", SIZES)),
        ("odd", Kernel("a,b c", (1, 1, 1), (1, 1, 1), 0, "layer 1, forward", ())),
        (
            "conv",
            Conv(
                "wgrad",
                (8, 3, 32, 30),
                (8, 3, 32),
                (8, 3, 32, 30),
                (1, 0),
                (1,),
                (),
                2,
                "tf32",
                "nhwc",
                "aten::op",
                SIZES,
            ),
        ),
        ("sdpa", Sdpa("bwd", *[(2, 4, 128, 64)] * 3, "f16", True, False, "aten::op", SIZES)),
        (
            "packed",
            Packed(
                *("fwd", *[(2, 4, 128, 64)] * 3, "bf16", True, False, "aten::op", SIZES, True),
                *(3, 1000, 990, 9, 8, 22, 5, 230000),
            ),
        ),
        ("windowed", Windowed("bwd", *[(2, 4, 128, 64)] * 3, "f16", True, False, "aten::op", SIZES, 65, 64)),
        (
            "triton",
            Triton("add_kernel", (64, 1, 1), (128, 1, 1), 0, "-,-,4096", "module {|tt.return|}", "aten::op", SIZES),
        ),
        (
            "grouped",
            Grouped("device_kernel", (132, 1, 1), (384, 1, 1), 200000, 64, 60, 4096, 512, 90, 70, "aten::op", SIZES),
        ),
        (
            "sequences",
            Sequences("_Z3foov", (2, 3, 1), (128, 1, 1), 0, "aten::op", SIZES, 3, 1000, 990, 9, 8, 22, 5, 230000),
        ),
        ("strided", Strided("_Z3foov", (2, 3, 1), (128, 1, 1), 0, "aten::op", SIZES, (8, 3), "2x16384,16384x2")),
        ("scaled", Scaled("_Z3foov", (2, 3, 1), (128, 1, 1), 0, "aten::op", SIZES, (8, 3), (8, 3))),
        ("sized", Sized("_Z3foov", (2, 3, 1), (128, 1, 1), 0, "aten::op", SIZES, "8192,4096", "67108864,~1048576")),
        ("rnn", Rnn("dgrad", "lstm", "standard", 35, 20, 1500, 1500, 1500, 2, True, "f16", "aten::op", SIZES)),
        ("library", Library("cudnnRNN", 2**63 - 1, "aten::op", SIZES)),
        ("memset", Memset(4096)),
    ],
)
def test_fields_come_over_in_order(written: dict[str, list[str]], name: str, expected: Signature) -> None:
    (text,) = written[name]
    assert parse(text) == expected
    if name != "odd":  # blanks at a field's end are no part of it
        assert format_signature(expected) == text


def test_what_is_missing_is_empty(written: dict[str, list[str]]) -> None:
    assert written["unnamed"] == ["kernel;;2,3,1;128,1,1;4096;;"]


@pytest.mark.parametrize("name", ["gemm_call", "transpose", "norm_mode", "copy_direction"])
def test_every_word_comes_over(written: dict[str, list[str]], name: str) -> None:
    words = {number: word for word, number in DEFINITION.words[name].numbers.items()}
    field = {"gemm_call": "call", "transpose": "transa", "norm_mode": "mode"}.get(name, "direction")
    for number, text in enumerate(written[name]):
        found = parse(text)
        assert getattr(found, field) == words.get(number, "other")
        assert len(unknown_parts(found)) == (number not in words)
        assert format_signature(found) == text


def test_flags_come_over(written: dict[str, list[str]]) -> None:
    flags = {number: flag for flag, number in DEFINITION.words["epilogue"].numbers.items()}
    for bit, text in enumerate(written["epilogue"]):
        found = parse(text)
        assert isinstance(found, Gemm)
        assert found.epilogue == ("default" if bit == 0 else flags.get(1 << bit, "other"))
    (text,) = written["epilogues"]
    several = parse(text)
    assert isinstance(several, Gemm)
    assert set(several.epilogue.split("_")) == {"gelu", "aux", "bias", "other"}
    assert unknown_parts(several) == ("gemm epilogue: unknown epilogue 'other'",)


def test_every_kind_is_shown(written: dict[str, list[str]]) -> None:
    texts = [text for name in written.keys() - {"cuda", "cudnn"} for text in written[name]]
    assert {text.partition(";")[0] for text in texts} == set(DEFINITION.kinds)
