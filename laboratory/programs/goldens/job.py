"""Runs one of Megatron-LM's scripts with Apex's stand-ins, and writes what it logs of memory and time to a file.

phantora-async run -n 8 --python PYTHON job.py SCRIPT OUT.jsonl ARGUMENTS
"""

import json
import os
import runpy
import sys
import types
import typing
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "stand_ins"), str(Path(__file__).parent)]
import words


class SummaryWriter:
    """TensorBoard's, as far as Megatron-LM uses it; the last rank has one."""

    def __init__(self, *_, **__):
        self._file = open(OUT, "a")

    def add_scalar(self, name, value, step, *_):
        if name.startswith("mem") or name == "iteration-time":
            self._file.write(json.dumps([name, step, float(value)]) + "\n")
            self._file.flush()

    def __getattr__(self, name):
        return lambda *_, **__: None


SCRIPT, OUT = sys.argv[1:3]
if not hasattr(typing, "override"):  # before Python 3.12
    typing.override = lambda method: method
board = types.ModuleType("torch.utils.tensorboard")
board.SummaryWriter = SummaryWriter
sys.modules["torch.utils.tensorboard"] = board
sys.path.insert(0, str(Path(SCRIPT).parent))
if "BertWordPieceCase" in sys.argv:
    from megatron.core.tokenizers.utils import build_tokenizer

    build_tokenizer.MegatronTokenizer = types.SimpleNamespace(from_pretrained=lambda **_: words.Tokenizer())
sys.argv = [SCRIPT, *sys.argv[3:]]
runpy.run_path(SCRIPT, run_name="__main__")
