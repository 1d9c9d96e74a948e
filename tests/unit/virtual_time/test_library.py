"""The engine's library is built anew when anything that it was made of has changed."""

from __future__ import annotations

import re
from pathlib import Path

from phantora_async.virtual_time import native

FOLDER = Path(native.__file__).parent
ROOT = FOLDER.parents[2]


def test_all_that_the_c_files_include_from_elsewhere_is_known() -> None:
    texts = [path.read_text() for path in (*FOLDER.glob("*.c"), *FOLDER.glob("*.h"))]
    included = {name for text in texts for name in re.findall(r'#include "(\.\./.*)"', text)}
    assert {str((FOLDER / name).resolve().relative_to(ROOT)) for name in included} == {*native.OTHERS_LISTS}
