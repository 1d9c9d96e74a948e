"""Signatures: what parses, what is refused with the field's name, and that all that is written about them agrees."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import profiles
from profiles.cost import LONGEST_NS
from profiles.models.products.engines import MULTIPLIED_AS
from profiles.signature import (
    DEFINITION,
    Conv,
    Copy,
    Gemm,
    Kernel,
    Memset,
    Sdpa,
    dtype_nbytes,
    family_of,
    family_of_text,
    format_signature,
    parse,
    read_definition,
    shapes_in,
    unknown_parts,
)
from profiles.signature.definition import table
from profiles.signature.kinds import CLASSES

MODEL = profiles.CostModel(profiles.load_gpu("h200"))
ANNOTATIONS = {
    "text": "str",
    "op": "str",
    "sizes": "tuple[Shape, ...]",
    "u64": "int",
    "bool": "bool",
    "grid": "tuple[int, int, int]",
    "dims": "Shape",
    "dims3": "Shape",
    "dims4": "Shape",
    "dtype": "str",
}
VALUES = {
    "text": "name",
    "op": "aten::op",
    "sizes": "[[8, 64], [64], []]",
    "u64": "7",
    "bool": "1",
    "grid": "2,3,1",
    "dims": "0x1",
    "dims3": "8x3x32x32",
    "dims4": "1x2x3x4",
    "dtype": "bf16",
}


def sample(kind: str, **changed: str) -> str:
    """A signature with some value in every field."""
    texts = [kind]
    for field in DEFINITION.kinds[kind].fields:
        words = DEFINITION.words.get(field.type)
        texts.append(changed.get(field.name, next(iter(words.numbers)) if words else VALUES[field.type]))
    return ";".join(texts)


# ---- the definition --------------------------------------------------------------------------------------------------


def test_the_dataclasses_are_those_of_the_definition() -> None:
    assert list(CLASSES) == list(DEFINITION.kinds)
    for kind, made in CLASSES.items():
        defined = [(field.name, ANNOTATIONS.get(field.type, "str")) for field in DEFINITION.kinds[kind].fields]
        assert [(field.name, field.type) for field in fields(made)] == defined, kind


def test_dtypes_and_words_are_unambiguous() -> None:
    for numbers in (
        [one.cuda for one in DEFINITION.dtypes.values()],
        [one.cudnn for one in DEFINITION.dtypes.values()],
    ):
        known = [number for number in numbers if number is not None]
        assert len(known) == len(set(known))
    for name, words in DEFINITION.words.items():
        assert len(set(words.numbers.values())) == len(words.numbers) > 0, name
        if words.macro == "FLAGS":
            assert not any("_" in word for word in words.numbers), name


def test_the_documentation_has_the_definition_s_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data" / "signatures.md").read_text()
    assert "\n".join(table()) in page, "put the lines of `python -m profiles.signature` into the page"


def test_a_definition_with_an_unknown_type_is_refused() -> None:
    with pytest.raises(profiles.ProfileError, match="fill: value: unknown type 'u65'"):
        read_definition('SIGNATURE(fill, "a fill", FIELD(u65, value))')


# ---- texts -----------------------------------------------------------------------------------------------------------


def test_kernel() -> None:
    found = parse("kernel;_Z3foov;2,3,1;128,1,1;4096;aten::add;[[8, 64], [64], []]")
    assert found == Kernel("_Z3foov", (2, 3, 1), (128, 1, 1), 4096, "aten::add", ((8, 64), (64,), ()))


def test_gemm_keeps_order() -> None:
    found = parse("gemm;cublasGemmEx;t;n;10;20;30;2;bf16;f16;f32;tf32;bias;aten::mm;[]")
    assert isinstance(found, Gemm)
    assert (found.m, found.n, found.k, found.batch, found.a, found.b, found.c) == (10, 20, 30, 2, "bf16", "f16", "f32")
    assert (found.transa, found.transb, found.compute, found.epilogue) == ("t", "n", "tf32", "bias")


def test_others() -> None:
    conv = parse("conv;wgrad;8x3x32x32;16x3x3x3;8x16x32x32;1x0;2x1;1x1;1;f16;nhwc;op;[]")
    assert isinstance(conv, Conv)
    assert (conv.w, conv.padding, conv.stride) == ((16, 3, 3, 3), (1, 0), (2, 1))
    sdpa = parse("sdpa;bwd;1x2x3x4;1x2x3x4;1x2x3x4;bf16;1;0;;")
    assert isinstance(sdpa, Sdpa)
    assert (sdpa.causal, sdpa.dropout, sdpa.sizes) == (True, False, ())
    assert parse("copy;h2d;1024;pinned") == Copy("h2d", 1024, "pinned")
    assert parse("memset;0") == Memset(0)


@pytest.mark.parametrize("kind", DEFINITION.kinds)
def test_a_text_comes_back(kind: str) -> None:
    assert format_signature(parse(sample(kind))) == sample(kind)


def test_a_name_cannot_break_the_text() -> None:
    text = format_signature(Kernel("a;b", (1, 1, 1), (1, 1, 1), 0, "layer 1;\tforward\n", ()))
    assert text == "kernel;a,b;1,1,1;1,1,1;0;layer 1, forward ;"


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", ()),
        ("[]", ()),
        ("[[], []]", ((), ())),
        ("[[8,64],[64]]", ((8, 64), (64,))),
        ("[[[4096], [2, 3]], [], [7]]", ((4096,), (2, 3), (), (7,))),
        ("[[8, 64], [64], [12", ((8, 64), (64,))),
    ],
)
def test_sizes(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    found = parse(sample("library", sizes=text))
    assert isinstance(found, profiles.signature.Library)
    assert found.sizes == shapes


def test_a_family_differs_in_sizes_alone() -> None:
    for kind, definition in DEFINITION.kinds.items():
        base = family_of(parse(sample(kind)))
        assert base == (
            kind,
            *(sample(kind).split(";")[1:][at] for at, one in enumerate(definition.fields) if one.names_family),
        )
        assert family_of_text(sample(kind)) == base
    assert family_of(parse(sample("gemm", m="8"))) == family_of(parse(sample("gemm", m="9")))
    assert family_of(parse(sample("gemm", a="f16"))) != family_of(parse(sample("gemm", a="bf16")))
    assert family_of(parse(sample("copy", memory="pinned"))) != family_of(parse(sample("copy", memory="pageable")))


# ---- dtypes ----------------------------------------------------------------------------------------------------------


def test_every_dtype_that_the_hook_writes_has_a_cost() -> None:
    assert list(DEFINITION.dtypes) == list(MULTIPLIED_AS)
    gpus = [profiles.load_gpu(name) for name in profiles.gpu_names()]
    for name in DEFINITION.dtypes:
        signatures = [sample("gemm", **dict.fromkeys(("a", "b", "c", "compute"), name))]
        signatures += [sample(kind, dtype=name) for kind in ("conv", "norm", "sdpa")]
        for gpu in gpus:
            sources = {profiles.CostModel(gpu).cost(signature).source for signature in signatures}
            expected = profiles.Source.UNRECOGNISED if name == "other" else profiles.Source.ROOFLINE
            assert sources == {expected}, (name, gpu.name)


def test_four_bits_are_half_a_byte() -> None:
    assert (dtype_nbytes("f4e2m1"), dtype_nbytes("f8e8m0"), dtype_nbytes("c128")) == (0.5, 1, 16)
    assert dtype_nbytes("f3") == dtype_nbytes("other") == 4


# ---- what is not known, and what is malformed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "unknown"),
    [
        (sample("gemm", a="f3"), "gemm a: unknown dtype 'f3'"),
        (sample("gemm", b="other", compute="f2"), "gemm b: unknown dtype 'other', gemm compute: unknown dtype 'f2'"),
        (sample("gemm", call="cublasNewGemm"), "gemm call: unknown gemm_call 'cublasNewGemm'"),
        (sample("gemm", epilogue="gelu_other_bias"), "gemm epilogue: unknown epilogue 'other'"),
        (sample("norm", mode="other"), "norm mode: unknown norm_mode 'other'"),
    ],
)
def test_what_the_definition_does_not_list_is_an_estimate_by_the_model(signature: str, unknown: str) -> None:
    assert ", ".join(unknown_parts(parse(signature))) == unknown
    cost = MODEL.cost(signature)
    assert (cost.source, cost.unknown) == (profiles.Source.UNRECOGNISED, unknown)
    assert cost.contended_ns >= cost.solo_ns > 1


def test_an_epilogue_may_be_none_or_several() -> None:
    for epilogue in ("default", "relu", "gelu_aux_bias"):
        assert unknown_parts(parse(sample("gemm", epilogue=epilogue))) == ()


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("", "unknown kind ''"),
        ("kernal;x", "unknown kind 'kernal'; known: kernel"),
        ("memset", "memset: expected 1 fields after the kind, found 0"),
        ("memset;1;2", "memset: expected 1 fields after the kind, found 2"),
        ("memset;-1", "memset nbytes: expected an integer"),
        ("memset;1e3", "memset nbytes: expected an integer"),
        ("memset;9999999999999999999", "memset nbytes: expected an integer"),
        (sample("kernel", name=""), "kernel name: empty"),
        (sample("kernel", grid="1,1"), "kernel grid: expected three positive integers"),
        (sample("kernel", block="0,1,1"), "kernel block: expected three positive integers"),
        (sample("kernel", sizes="hello"), "kernel sizes: expected nested lists"),
        (sample("kernel", sizes="[[4294967296, 4294967296]]"), "kernel sizes: more elements than any memory holds"),
        (sample("gemm", transa=""), "gemm transa: expected one word"),
        (sample("gemm", a="b f16"), "gemm a: expected one word"),
        (sample("conv", direction="sideways"), "conv direction: expected fwd, dgrad, wgrad"),
        (sample("conv", x="1x1"), "conv x: expected 3 or more positive integers"),
        (sample("conv", w="1x0x1x1"), "conv w: expected 3 or more positive integers"),
        (sample("conv", padding="-1x1"), "conv padding: expected an integer"),
        (sample("sdpa", q=""), "sdpa q: expected 4 or more positive integers"),
        (sample("sdpa", causal="yes"), "sdpa causal: expected 0 or 1"),
        (sample("copy", direction="up"), "copy direction: expected h2h"),
        (sample("copy", memory="soft"), "copy memory: expected pageable, pinned"),
    ],
)
def test_a_malformed_text_is_refused_by_the_parser_and_costs_an_estimate(signature: str, message: str) -> None:
    with pytest.raises(profiles.ProfileError, match=message):
        parse(signature)
    cost = MODEL.cost(signature)
    assert cost.source is profiles.Source.UNRECOGNISED
    assert message in cost.unknown
    assert cost.contended_ns >= cost.solo_ns > 1


def test_a_malformed_text_costs_what_its_shapes_weigh() -> None:
    """A gigabyte of floats, known from the sizes alone, beside a text that says nothing."""
    text = "fold;aten::fold;[[16384, 16384], []];64x64;[99999999999999999999]"
    assert shapes_in(text) == ((16384, 16384), (64, 64))
    nbytes = 4 * (16384**2 + 64**2)
    rate = nbytes / MODEL.cost(text).solo_ns
    assert 0.5 < rate / MODEL.gpu.memory.bandwidth_gb_per_s < 1
    assert MODEL.cost("fold").solo_ns < 5_000


TEXTS = st.sampled_from(["", "0", "1", "-1", "9" * 18, "9" * 30, "1x1x1x1", "0x0x0x0", "[[1, 0], []]", "x", ";", "é\0"])


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.sampled_from(sorted(DEFINITION.kinds)), st.data())
def test_every_text_has_a_cost(kind: str, data: st.DataObject) -> None:
    names = [field.name for field in DEFINITION.kinds[kind].fields]
    changed = data.draw(st.dictionaries(st.sampled_from(names), TEXTS | st.text(max_size=20), max_size=4))
    cost = profiles.CostModel(MODEL.gpu).cost(sample(kind, **changed))
    assert 1 <= cost.solo_ns <= cost.contended_ns <= LONGEST_NS
    assert isinstance(cost.solo_ns, int)
