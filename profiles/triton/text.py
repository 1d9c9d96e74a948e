"""Reads shapes, types and constants from the text of a Triton operation."""

from __future__ import annotations

import functools
import re
from math import prod
from typing import Any

import numpy as np

from formats.ttir import Operation
from profiles.triton.values import Loaded, Pointer, Share, Value


@functools.lru_cache(maxsize=4096)  # each of a launch's instances that are followed asks for the same texts
def tensors_of(text: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The shapes and element types of the tensors that a text names."""
    found = re.findall(r"tensor<((?:\d+x)+)(!tt\.ptr<[^>]+>|[\w]+)", text)
    return tuple((tuple(int(one) for one in dims.split("x") if one), kind) for dims, kind in found)


def elements(shape: tuple[int, ...]) -> int:
    return prod(shape) if shape else 1


def result_of(one: Operation) -> tuple[int, str]:
    """The elements and type of the result."""
    types = tensors_of(one.text)
    return (elements(types[-1][0]), types[-1][1]) if types else (1, "")


def pointed(text: str) -> tuple[tuple[int, ...], str]:
    """The shape and item type of the addresses of a load or a store."""
    found = re.search(r"tensor<((?:\d+x)+)!tt\.ptr<(\w+)", text)
    if found:
        return tuple(int(one) for one in found[1].split("x") if one), found[2]
    single = re.search(r"!tt\.ptr<(\w+)", text)
    return (), single[1] if single else "f32"


def axis_of(text: str) -> str:
    found = re.search(r"\b([xyz])\b", text.split(":")[0].split(" ", 1)[1])
    return found[1] if found else "x"


def constant(text: str) -> Value:
    value = text.split(" ", 1)[1]
    dense = re.match(r"dense<(.*?)> : tensor<((?:\d+x)+)(\w+)", value)
    literal, item = (
        (dense[1], dense[3]) if dense else (value.split(" : ")[0].strip(), value.rsplit(" : ", 1)[-1].strip())
    )
    if literal in ("true", "false"):
        scalar: Any = literal == "true"
    elif item.startswith("i") and re.fullmatch(r"-?\d+", literal):
        scalar = int(literal)
    else:
        return None
    if dense is None:
        return scalar
    shape = tuple(int(one) for one in dense[2].split("x") if one)
    return np.broadcast_to(np.asarray(scalar), shape)


def reshaped(one: Operation, name: str, value: Value) -> Value:
    types = tensors_of(one.text)
    shape = types[-1][0] if types else ()
    if isinstance(value, Pointer):
        return None if value.offset is None else Pointer(value.base, reshaped(one, name, value.offset), value.random)
    if isinstance(value, Loaded):
        return Loaded(reshaped(one, name, value.value))
    if value is None or isinstance(value, Share):
        return value
    array = np.asarray(value)
    if name == "tt.expand_dims":
        found = re.search(r"axis = (\d+)", one.text)
        return np.expand_dims(array, int(found[1]) if found else 0)
    if name == "tt.trans":
        found = re.search(r"order = array<i32: ([\d, ]+)>", one.text)
        return array.transpose([int(axis) for axis in found[1].split(",")]) if found else array.T
    if name == "tt.reshape":
        return array.reshape(shape) if array.size == prod(shape) else None
    return np.broadcast_to(array, shape)
