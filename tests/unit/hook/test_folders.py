"""The folders of the hook library: what each may include, and that each says what lives in it."""

import re
from pathlib import Path

import pytest

from .conftest import HOOK

FOLDERS = sorted(path for path in HOOK.iterdir() if path.is_dir() and any(path.glob("*.c")))
# The folders with the entry points of one API each; the others do not know them.
APIS = {path.name for path in FOLDERS if (path / "calls.def").exists()} - {"nvtx"}
MAY_INCLUDE = {"driver": {"driver", "cudart"}}


def included(source: Path) -> set[str]:
    return set(re.findall(r'#include "(\w+)/\w+\.h"', source.read_text()))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_includes_no_other_api(folder):
    allowed = MAY_INCLUDE.get(folder.name, {folder.name})
    for source in folder.glob("*.[ch]"):
        assert included(source) & APIS <= allowed, source


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_says_what_lives_in_it(folder):
    """One file begins with "<folder>/: ..."; it is the folder's main header, or its only source."""
    begins = re.compile(rf"/\*\s+(\* )?{folder.name}/: ")
    assert len([source for source in folder.glob("*.[ch]") if begins.match(source.read_text())]) == 1
