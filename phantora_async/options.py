"""The options of a run: what `phantora-async run` takes on its command line, and `phantora_async.run` as keywords.

``RunOptions`` is the only list of them. The command line (``commands.run``) makes its flags of the fields, the Python
API its keywords. ``config.resolve`` checks what they say together.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from emu.contract import isolation, routing_policy
from phantora_async.errors import UsageError
from phantora_async.remote.wire import TOKEN_VARIABLE
from phantora_async.trace_request import FORMS
from phantora_async.virtual_time.speculation_policy import POLICIES

HOST_MODES = ("modelled", "measured", "none")
CLOCKS = ("exact", "optimistic")
ISOLATIONS = isolation.LEVELS
NETWORKS = isolation.NETWORKS
STALL_TIMEOUT_S = 1800.0
"""gloo's default and three times NCCL's: many ranks share few processors here."""
LOOP_TURNS = 1000
"""Turns after which a loop counts as one that never ends. So many turns of a training loop take minutes here."""
DEFAULT_CLUSTER = "dgx-h200"
DEFAULT_MOE = routing_policy.BALANCED
JOB, MACHINE, SEVERAL, OUTPUT = "job", "emulated machine", "several machines", "output"
"""Groups of options, as --help shows them."""
MOST_SHOWN = 60
"""Characters of a wrong value that a message repeats."""
PathText = str | os.PathLike[str]


class Kind(enum.Enum):
    """What values an option takes; its value is what a message expects."""

    COUNT = "a whole number"
    SECONDS = "a number"
    TEXT = "text"
    PATH = "a path"
    TEXTS = "a list of texts"
    SWITCH = "True or False"
    PORT = "a port, or 0 for any free one"


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line takes a field of ``RunOptions``."""

    group: str
    flags: tuple[str, ...]
    kind: Kind
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    hidden: bool = False


def _option(
    default: Any,
    group: str,
    *flags: str,
    kind: Kind = Kind.TEXT,
    help: str,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    hidden: bool = False,
) -> Any:
    return field(default=default, metadata={"option": Option(group, flags, kind, help, metavar, choices, hidden)})


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run, as the user describes it: what is not given has its default. A switch whose flag begins with ``--no-``
    is on by default.
    """

    script: PathText
    """A path; with ``module`` a module's name; with ``launcher`` a command."""
    arguments: Sequence[str] = ()
    """The script's own."""
    _: KW_ONLY
    world_size: int | None = _option(
        None, JOB, "-n", kind=Kind.COUNT, metavar="WORLD",
        help="number of GPUs, one rank each; with 8 per server, 12 need two servers (default: 1)",
    )  # fmt: skip
    nnodes: int | None = _option(
        None, JOB, "--nnodes", kind=Kind.COUNT, metavar="N",
        help="number of servers, each with --nproc-per-node GPUs",
    )  # fmt: skip
    nproc_per_node: int | None = _option(
        None, JOB, "--nproc-per-node", "--nproc_per_node", kind=Kind.COUNT, metavar="GPUS",
        help="GPUs per server (default: as many as the cluster's servers have)",
    )  # fmt: skip
    module: bool = _option(
        False, JOB, "-m", "--module", kind=Kind.SWITCH,
        help="SCRIPT is the name of a module, as with python -m",
    )  # fmt: skip
    launcher: bool = _option(
        False, JOB, "--launcher", kind=Kind.SWITCH,
        help="what follows is a command that starts the ranks of one server; it is started once on each server, as on "
        "a cluster: --launcher -- torchrun --nproc-per-node 8 train.py",
    )  # fmt: skip
    python: PathText | None = _option(
        None, JOB, "--python", kind=Kind.PATH, metavar="PATH",
        help="Python interpreter of the environment that has PyTorch (default: this one)",
    )  # fmt: skip
    preload: Sequence[str] = _option(
        (), JOB, "--preload", kind=Kind.TEXTS, metavar="MODULE",
        help="import MODULE once for all ranks, which saves memory and time; may be repeated",
    )  # fmt: skip
    auto_preload: bool = _option(
        True, JOB, "--no-auto-preload", kind=Kind.SWITCH,
        help="import for all ranks what --preload names and nothing more; otherwise also what the script imports from "
        "installed packages, if each rank would import the same",
    )  # fmt: skip
    compile_cache: PathText | None = _option(
        None, JOB, "--compile-cache", kind=Kind.PATH, metavar="DIR|off",
        help="where torch.compile and Triton keep what they compile for later runs, and what is known of the script's "
        "imports; off: nowhere (default: ~/.cache/phantora-async)",
    )  # fmt: skip
    steps: int | None = _option(
        None, JOB, "--steps", kind=Kind.COUNT, metavar="N",
        help="end the run in good order, with its report, when every rank has done N optimizer steps",
    )  # fmt: skip
    until: str | None = _option(
        None, JOB, "--until", metavar="TIME",
        help="end the run in good order, with its report, at this virtual time: 500ms, 10s, 2m, 1h",
    )  # fmt: skip
    cluster: PathText = _option(
        DEFAULT_CLUSTER, MACHINE, "--cluster", kind=Kind.PATH, metavar="NAME|FILE",
        help="servers and network (default: %(default)s)",
    )  # fmt: skip
    gpu: PathText | None = _option(
        None, MACHINE, "--gpu", kind=Kind.PATH, metavar="NAME|FILE",
        help="GPU in place of the cluster's own; names: phantora-async profiles list",
    )  # fmt: skip
    kernel_times: Sequence[str] = _option(
        (), MACHINE, "--kernel-times", kind=Kind.TEXTS, metavar="FILE|none",
        help="measured times of kernels, as `phantora-async profile` writes them, before those shipped for the "
        "GPU; may be repeated; none: estimates only",
    )  # fmt: skip
    measure: bool = _option(
        False, MACHINE, "--measure", kind=Kind.SWITCH,
        help="measure kernels without a measured time on this machine's GPU, once: later runs find their times",
    )  # fmt: skip
    host: str = _option(
        HOST_MODES[0], MACHINE, "--host", choices=HOST_MODES,
        help="cost of the script's Python code and CUDA calls: modelled (a calibrated cost per operation, default), "
        "measured (CPU time of this machine), or none",
    )  # fmt: skip
    clock: str = _option(
        CLOCKS[0], MACHINE, "--clock", choices=CLOCKS,
        help="when ranks are told the virtual time: when it is certain (exact, default), or at once, which is faster "
        "but may be wrong (optimistic)",
    )  # fmt: skip
    speculation: str = _option(
        POLICIES[0], MACHINE, "--speculation", choices=tuple(POLICIES),
        help="when to simulate ahead of the slowest rank; changes the simulator's speed, not the results "
        "(default: %(default)s)",
    )  # fmt: skip
    moe: str = _option(
        DEFAULT_MOE, MACHINE, "--moe", metavar="POLICY",
        help="how tokens spread over the experts of a mixture of experts, as the routers' scores are not computed: "
        "balanced, zipf:EXPONENT, random:SEED, or trace:FILE with the experts' loads, a line for each layer "
        "(default: %(default)s)",
    )  # fmt: skip
    value: Sequence[str] = _option(
        (), MACHINE, "--value", kind=Kind.TEXTS, metavar="LINE=EXPR",
        help="what the script reads at a line where nobody computed what it reads, such as a loss: "
        "--value 'train.py:42=2.5*exp(-step/100)'. EXPR may use n (reads at this line before), step (steps that have "
        "ended), rank, random(), and functions of mathematics; or it is MODULE:FUNCTION, called with these. LINE alone "
        "is a line of SCRIPT. May be repeated",
    )  # fmt: skip
    shared_weights: bool = _option(
        True, MACHINE, "--no-shared-weights", kind=Kind.SWITCH,
        help="each rank initialises its CPU tensors and propagates DTensor's shardings itself; otherwise ranks that "
        "would draw the same numbers draw them once and share the memory until they write to it",
    )  # fmt: skip
    isolation: str = _option(
        ISOLATIONS[0], MACHINE, "--isolation", choices=tuple(ISOLATIONS),
        help="full: each emulated server has its own processes, host name, network, /tmp and /dev/shm; none: servers "
        "share this machine's; auto: full where the kernel permits it, else none (default: %(default)s)",
    )  # fmt: skip
    network: str | None = _option(
        None, MACHINE, "--network", choices=tuple(NETWORKS),
        help="private: isolated servers reach each other and nothing else (default); host: they have this machine's "
        "network, for scripts that download",
    )  # fmt: skip
    listen: str | None = _option(
        None, SEVERAL, "--listen", metavar="HOST:PORT",
        help="run the servers on other machines, which join with `phantora-async join`; this one coordinates "
        "(port 0: any free one)",
    )  # fmt: skip
    machines: int = _option(
        1, SEVERAL, "--machines", kind=Kind.COUNT, metavar="N",
        help="how many machines join (default: %(default)s)",
    )  # fmt: skip
    token_file: PathText | None = _option(
        None, SEVERAL, "--token-file", kind=Kind.PATH, metavar="FILE",
        help=f"file with the token that machines must know (default: the environment variable {TOKEN_VARIABLE}, else a "
        "new one, in the file `token` of the run directory)",
    )  # fmt: skip
    run_dir: PathText | None = _option(
        None, OUTPUT, "--run-dir", kind=Kind.PATH, metavar="DIR",
        help="directory for logs and the report (default: a new one in phantora-runs/)",
    )  # fmt: skip
    report: PathText | None = _option(
        None, OUTPUT, "--report", kind=Kind.PATH, metavar="FILE",
        help="where to write the JSON report (default: report.json in the run directory)",
    )  # fmt: skip
    reasons: bool = _option(
        False, OUTPUT, "--reasons", kind=Kind.SWITCH,
        help="tell why a step takes as long as it does: its critical path, what costs most, and what a resource that "
        "is twice as fast would change; see docs/seeing.md",
    )  # fmt: skip
    trace: PathText | None = _option(
        None, OUTPUT, "--trace", kind=Kind.PATH, metavar="FILE",
        help=f"write a trace of ranks, GPUs and links: {FORMS}; docs/seeing.md says which tools read it",
    )  # fmt: skip
    trace_ranks: str | None = _option(
        None, OUTPUT, "--trace-ranks", metavar="RANKS",
        help="ranks that the trace shows, such as 0,8-15 (default: all)",
    )  # fmt: skip
    trace_steps: str | None = _option(
        None, OUTPUT, "--trace-steps", metavar="STEPS",
        help="steps that the trace shows, such as 3 or 3-5; the first is 1 (default: all)",
    )  # fmt: skip
    show_ranks: str = _option(
        "0", OUTPUT, "--show-ranks", metavar="RANKS",
        help="ranks whose output is shown, such as 0,3, or all, or none (default: 0)",
    )  # fmt: skip
    stall_timeout: float = _option(
        STALL_TIMEOUT_S, OUTPUT, "--stall-timeout", kind=Kind.SECONDS, metavar="SECONDS",
        help="end the run when ranks have waited for so long, in real time, for a rank that makes no visible progress, "
        "or when no rank has made any (default: %(default)g; 0: no limit)",
    )  # fmt: skip
    loop_turns: int = _option(
        LOOP_TURNS, OUTPUT, "--loop-turns", kind=Kind.COUNT, metavar="N",
        help="end the run when a loop that only a value can end which nobody computed has gone round N times "
        "(default: %(default)s; 0: no limit but --stall-timeout)",
    )  # fmt: skip
    progress: bool = _option(
        True, OUTPUT, "--no-progress", kind=Kind.SWITCH,
        help="show no status (otherwise: a line on a terminal, else one every 30 s)",
    )  # fmt: skip
    ui: int | None = _option(
        None, OUTPUT, "--ui", kind=Kind.PORT, metavar="PORT",
        help="serve a live page of the run to browsers on this machine (default port: any free one); its address is "
        "printed",
    )  # fmt: skip
    profile_simulator: bool = _option(
        False, OUTPUT, "--profile-simulator", kind=Kind.SWITCH, help="for bench", hidden=True
    )  # fmt: skip

    def checked(self) -> RunOptions:
        """The same options: paths as text, lists as tuples. Raises UsageError for a value of another type."""
        if not isinstance(self.script, str | os.PathLike):
            raise UsageError(f"script: expected a path, found {_shown(self.script)}")
        values: dict[str, Any] = {"script": os.fspath(self.script)}
        values["arguments"] = _texts("arguments", self.arguments, Kind.TEXTS)
        for name, option in OPTIONS.items():
            values[name] = _checked(name, option, getattr(self, name))
        return dataclasses.replace(self, **values)

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name; script and arguments are not among them."""
        defaults = {one.name: one.default for one in dataclasses.fields(self)}
        values = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value != defaults[name]}


OPTIONS: dict[str, Option] = {
    one.name: one.metadata["option"] for one in dataclasses.fields(RunOptions) if "option" in one.metadata
}
"""By the name of the keyword, in the order of --help."""


def _checked(name: str, option: Option, value: Any) -> Any:
    if value is None and RunOptions.__dataclass_fields__[name].default is None:
        return None
    match option.kind:
        case Kind.PATH if isinstance(value, str | os.PathLike):
            return os.fspath(value)
        case Kind.TEXTS:
            return _texts(name, value, option.kind)
        case Kind.COUNT | Kind.PORT if isinstance(value, int) and not isinstance(value, bool):
            return value
        case Kind.SECONDS if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case Kind.SWITCH if isinstance(value, bool):
            return value
        case Kind.TEXT if isinstance(value, str) and (not option.choices or value in option.choices):
            return value
    expected = f"one of {', '.join(option.choices)}" if option.choices else option.kind.value
    raise UsageError(f"{name}: expected {expected}, found {_shown(value)}")


def _texts(name: str, value: Any, kind: Kind) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{name}: expected {kind.value}, found {_shown(value)}")
    return tuple(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
