"""Converts between a signature's text and its dataclass, as the definition says.

Two things are told apart. A text is *malformed* if it does not follow the definition; ``parse`` raises ProfileError. A
well-formed text may still name a dtype, a word of an open set or a flag that the definition does not list;
``unknown_parts`` finds these.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

from profiles.errors import ProfileError
from profiles.signature.definition import DEFINITION, OTHER, Field
from profiles.signature.kinds import CLASSES, Shape, Signature

MOST = 2**63
"""The bound of one number, and of the elements of one shape: no memory holds more."""
_KIND_OF = {made: kind for kind, made in CLASSES.items()}


def parse(text: str) -> Signature:
    """The signature of a text. Raises ProfileError saying which field is malformed."""
    kind, *texts = (field.strip() for field in text.split(";"))
    if kind not in DEFINITION.kinds:
        raise ProfileError(f"unknown kind {kind[:60]!r}; known: {', '.join(DEFINITION.kinds)}")
    fields = DEFINITION.kinds[kind].fields
    if len(texts) != len(fields):
        raise ProfileError(f"{kind}: expected {len(fields)} fields after the kind, found {len(texts)}")
    make: Callable[..., Signature] = CLASSES[kind]
    try:
        return make(*(_value(field, one) for field, one in zip(fields, texts, strict=True)))
    except ProfileError as error:
        raise ProfileError(f"{kind} {error}") from None


def format_signature(what: Signature) -> str:
    """The text that the hook writes for the signature."""
    kind = _KIND_OF[type(what)]
    return ";".join((kind, *(_text(field, what) for field in DEFINITION.kinds[kind].fields)))


def family_of(what: Signature) -> tuple[str, ...]:
    """The family of a signature: equal for signatures that differ in sizes alone."""
    kind = _KIND_OF[type(what)]
    return (kind, *(_text(field, what) for field in DEFINITION.kinds[kind].fields if field.names_family))


def family_of_text(text: str) -> tuple[str, ...]:
    """The family of the signature of a well-formed text as ``format_signature`` writes it, without parsing it."""
    kind, *texts = text.split(";")
    fields = DEFINITION.kinds[kind].fields
    return (kind, *(one for field, one in zip(fields, texts, strict=True) if field.names_family))


def unknown_parts(what: Signature) -> tuple[str, ...]:
    """The parts of a signature that the definition does not list: ``("gemm a: unknown dtype 'f3'",)``."""
    kind = _KIND_OF[type(what)]
    found = []
    for field in DEFINITION.kinds[kind].fields:
        value = getattr(what, field.name)
        if field.type == "dtype":
            if value == OTHER or value not in DEFINITION.dtypes:
                found.append(f"{kind} {field.name}: unknown dtype {value!r}")
        elif (words := DEFINITION.words.get(field.type)) is not None:
            parts = value.split("_") if words.macro == "FLAGS" and value != "default" else [value]
            found += [
                f"{kind} {field.name}: unknown {field.type} {part!r}"
                for part in parts
                if part not in words.numbers and part != "default"
            ]
    return tuple(found)


def dtype_nbytes(name: str) -> float:
    """The bytes of an item; half a byte for 4 bits. A dtype that the definition does not list counts as OTHER."""
    return DEFINITION.dtypes.get(name, DEFINITION.dtypes[OTHER]).nbits / 8


def elements(shape: Shape) -> int:
    return prod(shape)


def shapes_in(text: str) -> tuple[Shape, ...]:
    """Every shape that a malformed text mentions, as ``[8, 64]`` or as ``8x64``. Numbers above MOST are left out."""
    found = re.findall(r"\[([\d, ]*\d)\]", text) + re.findall(r"\b\d+(?:x\d+)+\b", text)
    shapes = (tuple(map(int, re.findall(r"\d+", one))) for one in found if not re.search(r"\d{20}", one))
    return tuple(shape for shape in shapes if elements(shape) < MOST)


def _value(field: Field, text: str) -> Any:
    try:
        if field.type in _READ:
            return _READ[field.type](text)
        words = DEFINITION.words[field.type]
        if words.macro == "WORDS" and text not in words.numbers:
            raise ProfileError(f"expected {', '.join(words.numbers)}, found {text[:60]!r}")
        return _word(text)
    except ProfileError as error:
        raise ProfileError(f"{field.name}: {error}") from None


def _text(field: Field, what: Signature) -> str:
    value = getattr(what, field.name)
    return _FORMAT[field.type](value) if field.type in _FORMAT else str(value)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) >= MOST:
        raise ProfileError(f"expected an integer from 0 to 2^63, found {text[:60]!r}")
    return int(text)


def _name(text: str) -> str:
    if not text:
        raise ProfileError("empty")
    return text


def _word(text: str) -> str:
    if not re.fullmatch(r"\w+", text):
        raise ProfileError(f"expected one word, found {text[:60]!r}")
    return text


def _bool(text: str) -> bool:
    if text not in ("0", "1"):
        raise ProfileError(f"expected 0 or 1, found {text[:60]!r}")
    return text == "1"


def _grid(text: str) -> tuple[int, int, int]:
    numbers = [_number(one) for one in text.split(",")]
    if len(numbers) != 3 or min(numbers) < 1:
        raise ProfileError(f"expected three positive integers, found {text[:60]!r}")
    return numbers[0], numbers[1], numbers[2]


def _bounded(shape: Shape, text: str) -> Shape:
    if elements(shape) >= MOST:
        raise ProfileError(f"more elements than any memory holds: {text[:60]!r}")
    return shape


def _dims(text: str) -> Shape:
    return _bounded(tuple(_number(one) for one in text.split("x")) if text else (), text)


def _positive_dims(least: int) -> Callable[[str], Shape]:
    def read(text: str) -> Shape:
        dims = _dims(text)
        if len(dims) < least or min(dims) < 1:
            raise ProfileError(f"expected {least} or more positive integers like 64x128x28x28, found {text[:60]!r}")
        return dims

    return read


def _sizes(text: str) -> tuple[Shape, ...]:
    """``[[8, 64], [64], []]`` as PyTorch prints input sizes -> ((8, 64), (64,), ()). Lists of tensors are flattened one
    level. A text that its sender cut short gives the shapes that are complete.
    """
    if not text or text == "[]":
        return ()
    if not re.fullmatch(r"[\[\]0-9,.\s-]+", text):
        raise ProfileError(f"expected nested lists of integers, found {text[:60]!r}")
    inner = re.findall(r"\[([\d,\s]*)\]", text)
    return tuple(_bounded(tuple(map(_number, re.findall(r"\d+", one))), one) for one in inner)


def _clean(text: str) -> str:
    """A name as the hook writes it: it may not hold what separates fields or a table's lines."""
    return re.sub(r"[\x01-\x1f]", " ", text.replace(";", ","))


_READ: dict[str, Callable[[str], Any]] = {
    "text": _name,
    "op": str,
    "sizes": _sizes,
    "u64": _number,
    "bool": _bool,
    "grid": _grid,
    "dims": _dims,
    "dims3": _positive_dims(3),
    "dims4": _positive_dims(4),
    "dtype": _word,
}


def _format_dims(shape: Shape) -> str:
    return "x".join(map(str, shape))


_FORMAT: dict[str, Callable[[Any], str]] = {
    "text": _clean,
    "op": _clean,
    "bool": lambda value: str(int(value)),
    "grid": lambda grid: ",".join(map(str, grid)),
    "dims": _format_dims,
    "dims3": _format_dims,
    "dims4": _format_dims,
    "sizes": lambda sizes: str([list(shape) for shape in sizes]) if sizes else "",
}
