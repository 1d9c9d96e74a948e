"""The table: everything private that is used, by purpose."""

from __future__ import annotations

from . import compiler_names, measuring_names, python_names, torch_names
from .names import Purpose

PURPOSES: dict[str, Purpose] = {
    purpose.key: purpose
    for names in (torch_names, compiler_names, measuring_names, python_names)
    for purpose in names.PURPOSES
}
ORDER = compiler_names.ORDER
