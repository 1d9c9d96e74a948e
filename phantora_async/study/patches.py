"""Changes that a script can be given from outside: a program runs it unmodified after it has changed a default or a
keyword of PyTorch.

Each change says on the rank's standard error where it took hold, as a change that the script never meets proves
nothing.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phantora_async.options import RunOptions

TOOK_HOLD = "phantora-async advise: took hold"
"""The line in a rank's log that says that the change was used."""


@dataclass(frozen=True, slots=True)
class Patch:
    what: str
    """The change in words."""
    code: str
    """The statements that make it, with `torch` and the function `took_hold` at hand."""
    missing: str
    """Says what the script lacks if the change does not take hold."""


KEYWORDS = """
def _with(cls, **keywords):
    import functools
    made = cls.__init__
    @functools.wraps(made)
    def init(self, *arguments, **given):
        took_hold()
        made(self, *arguments, **{**given, **keywords})
    cls.__init__ = init
"""
DDP = KEYWORDS + "from torch.nn.parallel import DistributedDataParallel\n"
OPTIMIZERS = "for cls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):\n"
NO_DDP = "the script makes no DistributedDataParallel"
NO_OPTIMIZER = "the script makes no Adam, AdamW, SGD or Adagrad of PyTorch"
TF32 = Patch(
    "TF32 for products of FP32 (torch.backends.cuda.matmul.allow_tf32 = True)",
    "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.allow_tf32 = True\ntook_hold()\n",
    "",
)
BF16 = Patch(
    "autocast to bf16 around the whole script",
    'torch.autocast("cuda", dtype=torch.bfloat16).__enter__()\ntook_hold()\n',
    "",
)
BUCKETS = [
    Patch(
        f"DistributedDataParallel(bucket_cap_mb={mb})",
        f"{DDP}_with(DistributedDataParallel, bucket_cap_mb={mb})\n",
        NO_DDP,
    )
    for mb in (25, 100)
]
BUCKET_VIEWS = Patch(
    "DistributedDataParallel(gradient_as_bucket_view=True)",
    f"{DDP}_with(DistributedDataParallel, gradient_as_bucket_view=True)\n",
    NO_DDP,
)
FUSED = Patch(
    "a fused optimizer (fused=True)",
    f"{KEYWORDS}{OPTIMIZERS}    _with(cls, fused=True, foreach=None)\n",
    NO_OPTIMIZER,
)
FOREACH = Patch(
    "an optimizer that takes all parameters at once (foreach=True)",
    f"{KEYWORDS}{OPTIMIZERS}    _with(cls, foreach=True, fused=None)\n",
    NO_OPTIMIZER,
)
NO_RECOMPUTATION = Patch(
    "no recomputation (torch.utils.checkpoint.checkpoint calls its function alone)",
    """
import torch.utils.checkpoint as _checkpoint
_OWN = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
def _direct(function, *arguments, **keywords):
    took_hold()
    return function(*arguments, **{name: one for name, one in keywords.items() if name not in _OWN})
_checkpoint.checkpoint = _direct
""",
    "the script calls no torch.utils.checkpoint.checkpoint",
)
PREFETCH = Patch(
    "a data loader with 4 workers, pinned memory and 4 batches ahead",
    f"""{KEYWORDS}from torch.utils.data import DataLoader
_with(DataLoader, num_workers=4, pin_memory=True, prefetch_factor=4)
""",
    "the script makes no torch.utils.data.DataLoader",
)
PROGRAM = """\
import runpy
import sys

import torch

_told = []


def took_hold():
    if not _told:
        _told.append(True)
        print({said!r}, file=sys.stderr, flush=True)


{code}
sys.argv = [{target!r}, *sys.argv[1:]]
sys.path[0] = {folder!r}
{run}
"""


def patches(*, ranks: int, signatures: Sequence[str], script: str) -> Iterator[Patch]:
    """Yields the changes that could make a run faster. `signatures`: the work that it launched; `script`: its text."""
    if any(_is_f32_product(one) for one in signatures):
        yield from (TF32, BF16)
    if ranks > 1:
        yield from (*BUCKETS, BUCKET_VIEWS)
    at_once = any("aten::_foreach_" in one for one in signatures)
    if not any("aten::_fused_" in one for one in signatures):
        yield FUSED
        if not at_once:
            yield FOREACH
    if "checkpoint" in script:
        yield NO_RECOMPUTATION
    if "DataLoader" in script:
        yield PREFETCH


def _is_f32_product(signature: str) -> bool:
    words = signature.split(";")
    return words[0] == "gemm" and "f32" in words


def took_hold(log: str) -> bool:
    """Returns true if the rank of this log has met the change."""
    return TOOK_HOLD in log


def patched(options: RunOptions, patch: Patch, folder: Path) -> RunOptions:
    """The options of a run of the same script with the change. `folder`: gets the program. Raises ValueError with the
    reason if the script is not started by its path or as a module.
    """
    if options.launcher:
        raise ValueError("a launcher starts the script: name the change in the script")
    target = str(options.script)
    where = ""
    if options.module:
        run = f"runpy.run_module({target!r}, run_name='__main__', alter_sys=True)"
    else:
        target = str(Path(target).absolute())
        where = str(Path(target).parent)
        run = f"runpy.run_path({target!r}, run_name='__main__')"
    program = folder / "changed.py"
    text = PROGRAM.format(said=TOOK_HOLD, code=textwrap.dedent(patch.code), target=target, folder=where, run=run)
    program.write_text(text, encoding="utf-8")
    return dataclasses.replace(options, script=str(program), module=False)
