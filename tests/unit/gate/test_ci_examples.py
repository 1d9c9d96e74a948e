"""The CI examples install what exists: no package of an index, and one version of PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CI = Path(__file__).parents[3] / "examples" / "ci"


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_the_package_comes_from_a_checkout_or_a_wheel_and_pytorch_is_pinned(name: str) -> None:
    text = (CI / name).read_text()
    assert re.search(r"^ +PHANTORA: git\+https://\S+/phantora-async@\S+$", text, re.MULTILINE)
    assert re.search(r"^ +TORCH: torch==\d+\.\d+\.\d+$", text, re.MULTILINE)
    assert re.findall(r"pip install (.*)", text) == ['"$TORCH" "$PHANTORA"']
