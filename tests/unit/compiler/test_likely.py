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
    assert compiles([str(script)], ())


def test_a_script_that_does_not(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import re, torch\npattern = re.compile('a')\n")
    assert not compiles([str(script)], ("--epochs", "3"))
    assert compiles([str(script)], ("--compile",))


def test_a_module_of_the_script_compiles(tmp_path: Path) -> None:
    script, module = tmp_path / "train.py", tmp_path / "model.py"
    script.write_text("from model import build\n")
    module.write_text("import torch\ndef build(net): return torch.compile(net)\n")
    assert not compiles([str(script)], ())
    assert compiles([str(script), str(module)], ())


def test_arguments_and_the_settings_that_they_name(tmp_path: Path) -> None:
    settings = tmp_path / "debug.toml"
    settings.write_text("[training]\nsteps = 3\n# [compile]\n")
    assert not compiles([], ("--job.config_file", str(settings)))
    assert not compiles([], ("--job.config_file", str(tmp_path / "missing.toml")))
    assert compiles([], ("--compile.enable",))
    settings.write_text("[training]\nsteps = 3\n[compile]\nenable = true\n")
    assert compiles([], ("--job.config_file", str(settings)))
