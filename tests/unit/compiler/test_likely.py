"""Guesses whether a script compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.compiler.likely import compiles


@pytest.mark.parametrize(
    "text",
    [
        "model = torch.compile(model)",
        "args = TrainingArguments(torch_compile=True)",
        "from torch import compile, nn",
        "block.compile()",
        "from torch.nn.attention.flex_attention import create_block_mask",
    ],
)
def test_a_script_that_compiles(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n{text}\n")
    assert compiles(str(script), ())


def test_a_script_that_does_not(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import re, torch\npattern = re.compile('a')\n")
    assert not compiles(str(script), ("--epochs", "3"))
    assert compiles(str(script), ("--compile",))


def test_a_module_is_known_by_its_arguments() -> None:
    assert not compiles("torchtitan.train", ("--job.config_file", "debug.toml"))
    assert compiles("torchtitan.train", ("--compile.enable",))
