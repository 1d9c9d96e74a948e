"""The table: everything private that is used, by purpose."""

from __future__ import annotations

from . import compiler_names, python_names, torch_names
from .names import Purpose

PURPOSES: dict[str, Purpose] = {
    purpose.key: purpose for purpose in (*torch_names.PURPOSES, *compiler_names.PURPOSES, *python_names.PURPOSES)
}
ORDER = compiler_names.ORDER
