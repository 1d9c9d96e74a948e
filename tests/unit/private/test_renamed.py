"""Whatever private name a new version lacks: nothing raises, and what needs it is left out, with its warning."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emu.private import table

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
OF_FIXED_TYPES = 6
"""Names that cannot be taken away, at most."""


@pytest.mark.versions
def test_a_name_that_is_missing_leaves_out_what_needs_it(tmp_path: Path) -> None:
    if not torch.backends.cuda.is_built():
        pytest.skip("needs a CUDA build of PyTorch")
    command = [sys.executable, "-m", "tests.unit.private.renamed", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["raised"] for one in told if "raised" in one] == []
    removed = [one for one in told if one["removed"]]
    assert len(removed) >= 95
    assert len(told) - len(removed) <= OF_FIXED_TYPES, [one["name"] for one in told if not one["removed"]]
    for one in removed:
        gone = f"{one['name']}."  # and, of a class, all that is in it
        needing = {
            key
            for key, purpose in table.PURPOSES.items()
            if any(f"{name.full}.".startswith(gone) for name in purpose.names)
        }
        assert needing == set(one["left_out"]), one
        for key in needing:
            assert one["name"] in one["left_out"][key] or " and " in one["left_out"][key], one
            assert one["left_out"][key].endswith(table.PURPOSES[key].consequence)
