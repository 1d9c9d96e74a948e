"""Changes that a script can be given from outside: a program runs it unmodified after it has changed a default, a
keyword or a function of PyTorch.

Each change says on the rank's standard error where it took hold, as a change that the script never meets proves
nothing.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emu.contract.records import NcclKind
from phantora_async.options import RunOptions
from phantora_async.virtual_time.facts import DTYPE_NAMES

TOOK_HOLD = "phantora-async advise: took hold"
"""The line in a rank's log that says that a change was used, before its number."""


@dataclass(frozen=True, slots=True)
class Patch:
    what: str
    """The change in words."""
    code: str
    """The statements that make it, with `torch` and the function `took_hold` at hand."""
    missing: str
    """Says what the script lacks if the change does not take hold."""
    kind: str = ""
    """Changes of one kind exclude each other; empty: the change is the only one of its kind."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a recorded run by which changes are chosen."""

    ranks: int
    servers: int = 1
    signatures: Sequence[str] = ()
    """The cost signatures of the work that it launched."""
    script: str = ""
    """The script's text."""
    collectives: frozenset[tuple[NcclKind, str]] = field(default_factory=frozenset)
    """The kinds of its collectives, with the names of their data types."""
    reduced_again: bool = False
    """True if each of its all-reduces occurs several times in a step, as with micro batches."""
    waits: Sequence[str] = ()
    """The lines at which the host waits for the GPU in the steps that count."""

    def has(self, kind: NcclKind, *dtypes: str) -> bool:
        """Returns true if there are collectives of the kind, and of one of the data types if any are given."""
        return any(one == kind and (not dtypes or dtype in dtypes) for one, dtype in self.collectives)


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
NO_SHARDING = "the script calls neither fully_shard nor FullyShardedDataParallel"
NO_OPTIMIZER = "the script makes no Adam, AdamW, SGD or Adagrad of PyTorch"
TF32 = Patch(
    "TF32 for products of FP32 (torch.backends.cuda.matmul.allow_tf32 = True)",
    "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.allow_tf32 = True\ntook_hold()\n",
    "",
    "type",
)
BF16 = Patch(
    "autocast to bf16 around the whole script",
    'torch.autocast("cuda", dtype=torch.bfloat16).__enter__()\ntook_hold()\n',
    "",
    "type",
)
BUCKETS = [
    Patch(
        f"DistributedDataParallel(bucket_cap_mb={mb})",
        f"{DDP}_with(DistributedDataParallel, bucket_cap_mb={mb})\n",
        NO_DDP,
        "buckets",
    )
    for mb in (25, 100)
]
BUCKET_VIEWS = Patch(
    "DistributedDataParallel(gradient_as_bucket_view=True)",
    f"{DDP}_with(DistributedDataParallel, gradient_as_bucket_view=True)\n",
    NO_DDP,
)
USED_PARAMETERS = Patch(
    "DistributedDataParallel(find_unused_parameters=False)",
    f"{DDP}_with(DistributedDataParallel, find_unused_parameters=False)\n",
    NO_DDP,
)
COMPRESSED = Patch(
    "gradients that DistributedDataParallel sends as bf16 (bf16_compress_hook)",
    """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
_made = DistributedDataParallel.__init__
_register = DistributedDataParallel.register_comm_hook
def _init(self, *arguments, **given):
    _made(self, *arguments, **given)
    _register(self, None, bf16_compress_hook)
    took_hold()
DistributedDataParallel.__init__ = _init
DistributedDataParallel.register_comm_hook = lambda self, state, hook: None
""",
    NO_DDP,
)
NO_SYNC = Patch(
    "no_sync() for all micro batches but the last one before an optimizer's step",
    """
import weakref
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook
_passes = weakref.WeakKeyDictionary()
_forward = DistributedDataParallel.forward
def _counted(self, *arguments, **given):
    counts = _passes.setdefault(self, [0, 0])
    if torch.is_grad_enabled() and self.training and self.require_backward_grad_sync:
        counts[0] += 1
        if counts[0] < counts[1]:
            took_hold()
            with self.no_sync():
                return _forward(self, *arguments, **given)
    return _forward(self, *arguments, **given)
def _stepped(*_):
    for counts in _passes.values():
        counts[:] = [0, counts[0] or counts[1]]
DistributedDataParallel.forward = _counted
register_optimizer_step_post_hook(_stepped)
""",
    "no gradients of DistributedDataParallel are reduced more than once before an optimizer's step",
)
SHARDED = Patch(
    "FSDP2 in place of DistributedDataParallel (fully_shard of each block of a ModuleList, and of the model)",
    """
import contextlib
import torch.nn.parallel.distributed
from torch.distributed.fsdp import fully_shard
_stepped = set()
_made = torch.optim.Optimizer.__init__
def _init(self, params, *arguments, **given):
    _made(self, params, *arguments, **given)
    _stepped.update(id(one) for group in self.param_groups for one in group["params"])
torch.optim.Optimizer.__init__ = _init
@contextlib.contextmanager
def _no_sync(self):
    self.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        self.set_requires_gradient_sync(True)
class DistributedDataParallel:
    def __new__(cls, module, *arguments, **given):
        if any(id(one) in _stepped for one in module.parameters()):
            raise RuntimeError("the optimizer is made before the model is sharded")
        for one in list(module.modules()):
            if isinstance(one, torch.nn.ModuleList):
                for block in one:
                    fully_shard(block)
        fully_shard(module)
        object.__setattr__(module, "module", module)
        object.__setattr__(module, "no_sync", lambda: _no_sync(module))
        object.__setattr__(module, "register_comm_hook", lambda state, hook: None)
        took_hold()
        return module
torch.nn.parallel.DistributedDataParallel = DistributedDataParallel
torch.nn.parallel.distributed.DistributedDataParallel = DistributedDataParallel
""",
    NO_DDP,
    "sharding",
)
EARLY_REDUCE = Patch(
    "all-reduces of gradients that begin in the backward pass, each as soon as its gradient is known",
    """
import torch.distributed
_reduce = torch.distributed.all_reduce
_parameters, _early, _sent = {}, set(), {}
_made = torch.optim.Optimizer.__init__
def _init(self, params, *arguments, **given):
    _made(self, params, *arguments, **given)
    _parameters.update((id(one), one) for group in self.param_groups for one in group["params"])
torch.optim.Optimizer.__init__ = _init
def _all_reduce(tensor, op=torch.distributed.ReduceOp.SUM, group=None, async_op=False):
    work = _sent.pop(tensor.data_ptr(), None)
    if work is not None:
        took_hold()
        return work if async_op else work.wait()
    for one in _parameters.values():
        if one.grad is not None and one.grad.data_ptr() == tensor.data_ptr() and id(one) not in _early:
            _early.add(id(one))
            def send(parameter):
                at = parameter.grad.data_ptr()
                if at in _sent:
                    raise RuntimeError("gradients are accumulated before they are reduced")
                _sent[at] = _reduce(parameter.grad, op, group, async_op=True)
            one.register_post_accumulate_grad_hook(send)
            break
    return _reduce(tensor, op, group, async_op)
torch.distributed.all_reduce = _all_reduce
torch.distributed.distributed_c10d.all_reduce = _all_reduce
""",
    "the script reduces no gradients of an optimizer's parameters one by one",
)
SHARDING = """
import dataclasses
import functools
import torch.distributed._composable.fsdp
import torch.distributed.fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
def _mesh_of(*shape):
    return init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
def _changed(keywords, older):
    made, init = torch.distributed.fsdp.fully_shard, FullyShardedDataParallel.__init__
    kept = {}
    @functools.wraps(made)
    def fully_shard(module, **given):
        took_hold()
        mesh = given.get("mesh")
        world = torch.distributed.get_world_size()
        if keywords is None:
            raise RuntimeError("this change is one of FullyShardedDataParallel")
        if not kept:
            kept.update(keywords(world))
        if "mesh" in kept and mesh is not None and (mesh.ndim > 1 or mesh.size() != world):
            raise RuntimeError("the script shards over a mesh of its own")
        return made(module, **{**given, **kept})
    @functools.wraps(init)
    def changed(self, *arguments, **given):
        took_hold()
        if "process_group" in given or "device_mesh" in given or len(arguments) > 1:
            raise RuntimeError("the script shards over a group of its own")
        init(self, *arguments, **{**given, **older})
    _put(fully_shard, changed)
def _put(fully_shard, init):
    for module in (torch.distributed.fsdp, torch.distributed._composable.fsdp, torch.distributed.fsdp._fully_shard):
        module.fully_shard = fully_shard
    FullyShardedDataParallel.__init__ = init
def _types(**types):
    made, init = torch.distributed.fsdp.fully_shard, FullyShardedDataParallel.__init__
    @functools.wraps(made)
    def fully_shard(module, **given):
        took_hold()
        policy = given.get("mp_policy") or torch.distributed.fsdp.MixedPrecisionPolicy()
        return made(module, **{**given, "mp_policy": dataclasses.replace(policy, **types)})
    @functools.wraps(init)
    def changed(self, *arguments, **given):
        took_hold()
        policy = given.get("mixed_precision") or torch.distributed.fsdp.MixedPrecision()
        init(self, *arguments, **{**given, "mixed_precision": dataclasses.replace(policy, **types)})
    _put(fully_shard, changed)
"""
GATHERED = Patch(
    "parameters that stay gathered from the forward to the backward pass (reshard_after_forward=False, SHARD_GRAD_OP)",
    f"""{SHARDING}
_changed(lambda world: dict(reshard_after_forward=False), dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP))
""",
    NO_SHARDING,
    "sharding",
)
REPLICATED = Patch(
    "replicas in place of shards, as in data parallelism (a mesh of all ranks x 1, NO_SHARD)",
    f"""{SHARDING}
_changed(lambda world: dict(mesh=_mesh_of(world, 1)), dict(sharding_strategy=ShardingStrategy.NO_SHARD))
""",
    NO_SHARDING,
    "sharding",
)
BF16_SHARDS = Patch(
    "parameters that are gathered as bf16 (MixedPrecisionPolicy(param_dtype=torch.bfloat16))",
    f"{SHARDING}_types(param_dtype=torch.bfloat16)\n",
    NO_SHARDING,
    "gathered type",
)
BF16_REDUCED = Patch(
    "gradients that are reduced as bf16 (MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))",
    f"{SHARDING}_types(reduce_dtype=torch.bfloat16)\n",
    NO_SHARDING,
    "reduced type",
)
ON_GPU = Patch(
    "parameters and optimizer states on the GPU (no CPUOffloadPolicy)",
    f"""{SHARDING}
from torch.distributed.fsdp import OffloadPolicy
_changed(lambda world: dict(offload_policy=OffloadPolicy()), dict(cpu_offload=None))
""",
    NO_SHARDING,
)
FUSED = Patch(
    "a fused optimizer (fused=True)",
    f"{KEYWORDS}{OPTIMIZERS}    _with(cls, fused=True, foreach=None)\n",
    NO_OPTIMIZER,
    "optimizer",
)
FOREACH = Patch(
    "an optimizer that takes all parameters at once (foreach=True)",
    f"{KEYWORDS}{OPTIMIZERS}    _with(cls, foreach=True, fused=None)\n",
    NO_OPTIMIZER,
    "optimizer",
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
NO_WAITS = Patch(
    "no waits for the GPU: a line reads its loss once (.item(), float(), tolist()); no torch.cuda.synchronize()",
    """
def _once(name):
    read, known = getattr(torch.Tensor, name), {}
    def first(self):
        if not (self.is_cuda and self.is_floating_point() and self.numel() == 1):
            return read(self)
        frame = sys._getframe(1)
        at = (frame.f_code, frame.f_lineno)
        if at not in known:
            known[at] = read(self)
        else:
            took_hold()
        return known[at]
    setattr(torch.Tensor, name, first)
for _name in ("item", "tolist", "__float__"):
    _once(_name)
def _synchronize(device=None):
    took_hold()
torch.cuda.synchronize = _synchronize
""",
    "the script reads no losses with .item(), float() or tolist(), and does not synchronize",
)
KEPT_CACHE = Patch(
    "no torch.cuda.empty_cache()",
    "torch.cuda.empty_cache = lambda: took_hold()\n",
    "the script does not call torch.cuda.empty_cache",
)
COMPILED = Patch(
    "torch.compile of the model (the first module that is called with parameters)",
    """
_call = torch.nn.Module.__call__
def _compiled(self, *arguments, **given):
    if torch.is_grad_enabled() and any(one.requires_grad for one in self.parameters()):
        torch.nn.Module.__call__ = _call
        self.compile()
        took_hold()
    return _call(self, *arguments, **given)
torch.nn.Module.__call__ = _compiled
""",
    "the script calls no module with parameters",
)
PROGRAM = """\
import runpy
import sys

import torch


def _teller(number):
    told = []

    def took_hold():
        if not told:
            told.append(True)
            print(f"{said} ({{number}})", file=sys.stderr, flush=True)

    return took_hold


{code}
sys.argv = [{target!r}, *sys.argv[1:]]
sys.path[0] = {folder!r}
{run}
"""
CHANGE = """
def _change_{number}(took_hold):
{code}


_change_{number}(_teller({number}))
"""
"""Each change is a function, so that the names of one are not those of another."""


def within_servers(servers: int) -> Patch:
    """The change that shards inside each of so many servers and keeps replicas between them."""
    return Patch(
        f"shards inside each server, replicas between the {servers} servers (a mesh of servers x GPUs, HYBRID_SHARD)",
        f"""{SHARDING}
_changed(
    lambda world: dict(mesh=_mesh_of({servers}, world // {servers})),
    dict(sharding_strategy=ShardingStrategy.HYBRID_SHARD),
)
""",
        NO_SHARDING,
        "sharding",
    )


def patches(known: Facts) -> Iterator[Patch]:
    """Yields the changes that could make a run faster."""
    if any(_is_f32_product(one) for one in known.signatures):
        yield from (TF32, BF16)
    if known.ranks > 1:
        yield from _of_communication(known)
    at_once = any("aten::_foreach_" in one for one in known.signatures)
    if not any("aten::_fused_" in one for one in known.signatures):
        yield FUSED
        if not at_once:
            yield FOREACH
    if "checkpoint" in known.script:
        yield NO_RECOMPUTATION
    if "DataLoader" in known.script:
        yield PREFETCH
    if known.waits:
        yield NO_WAITS
    if "empty_cache" in known.script:
        yield KEPT_CACHE
    if not any("triton" in one for one in known.signatures):
        yield COMPILED


def _of_communication(known: Facts) -> Iterator[Patch]:
    sharded = known.has(NcclKind.ALL_GATHER) and known.has(NcclKind.REDUCE_SCATTER)
    if known.has(NcclKind.ALL_REDUCE) and not sharded:
        # Without the keyword buckets have 25 MB.
        yield from BUCKETS if "bucket_cap_mb" in known.script else BUCKETS[1:]
        yield BUCKET_VIEWS
        if known.reduced_again:
            yield NO_SYNC
        if known.has(NcclKind.ALL_REDUCE, "f32"):
            yield COMPRESSED
        if "find_unused_parameters" in known.script:
            yield USED_PARAMETERS
        if "all_reduce" in known.script:
            yield EARLY_REDUCE
        yield SHARDED  # last, since it puts another class in the place of that which the others change
    if sharded:
        yield from (GATHERED, REPLICATED)
        if 1 < known.servers < known.ranks and known.ranks % known.servers == 0:
            yield within_servers(known.servers)
        if known.has(NcclKind.ALL_GATHER, "f32"):
            yield BF16_SHARDS
        if known.has(NcclKind.REDUCE_SCATTER, "f32"):
            yield BF16_REDUCED
        if "ffload" in known.script:
            yield ON_GPU


def _is_f32_product(signature: str) -> bool:
    """Returns true for a product of FP32 numbers: bf16 products add up in FP32, too, so that the first type decides."""
    kind, *words = signature.split(";")
    return kind == "gemm" and next((word for word in words if word in DTYPE_NAMES), "") == "f32"


def took_hold(log: str, number: int = 0) -> bool:
    """Returns true if the rank of this log has met the change of this number among those of its program."""
    return f"{TOOK_HOLD} ({number})" in log


def patched(options: RunOptions, changes: Sequence[Patch], folder: Path) -> RunOptions:
    """The options of a run of the same script with the changes. `folder`: gets the program. Raises ValueError with the
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
    code = "".join(
        CHANGE.format(number=number, code=textwrap.indent(textwrap.dedent(one.code).strip("\n"), "    "))
        for number, one in enumerate(changes)
    )
    text = PROGRAM.format(said=TOOK_HOLD, code=code, target=target, folder=where, run=run)
    program.write_text(text, encoding="utf-8")
    return dataclasses.replace(options, script=str(program), module=False)
