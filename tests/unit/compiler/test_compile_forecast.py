"""Guesses whether a script compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest

from emu.compiler import compile_forecast, graph_cache
from emu.compiler.compile_forecast import compiles


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


def test_a_script_that_has_run_without_compiling_is_not_guessed_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, settings = tmp_path / "train.py", tmp_path / "large.toml"
    script.write_text("model = torch.compile(model) if args.compile else model\n")
    settings.write_text("compile = false\n")

    def never_compiled(*arguments: str) -> bool:
        past = compile_forecast.past_runs("2.15", [str(script)], arguments)
        assert past is not None
        return past.never_compiled()

    monkeypatch.setenv(graph_cache.FOLDER, str(tmp_path / "cache"))
    assert [never_compiled("--fast"), never_compiled("--fast")] == [False, True]
    assert never_compiled("--slow") is False, "other arguments"
    assert [never_compiled(str(settings)), never_compiled(str(settings))] == [False, True]
    settings.write_text("compile = true\n")
    assert never_compiled(str(settings)) is False, "other settings"
    script.write_text("model = torch.compile(model)\n")
    assert never_compiled("--fast") is False, "another script"
    monkeypatch.delenv(graph_cache.FOLDER)
    assert compile_forecast.past_runs("2.15", [str(script)], ()) is None


def test_a_rank_that_compiles_notes_it(tmp_path: Path) -> None:
    past, entered = compile_forecast.PastRuns(tmp_path / "note"), []

    @contextlib.contextmanager
    def install_callbacks(handler: str, trigger: str) -> Generator[None]:
        entered.append((handler, trigger))
        yield

    assert past.never_compiled() is False
    with past.note_compilation(install_callbacks)("handler", "DYNAMO"):
        assert entered == [("handler", "DYNAMO")]
    assert compile_forecast.PastRuns(tmp_path / "note").never_compiled() is False
