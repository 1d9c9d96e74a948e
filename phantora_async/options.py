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

from emu.contract import isolation
from emu.contract.policies import loading_policy, routing_policy, shape_policy
from phantora_async.errors import UsageError
from phantora_async.remote.wire import TOKEN_VARIABLE
from phantora_async.trace_request import FORMS
from phantora_async.virtual_time.policy import POLICIES
from profiles import DEFAULT_CLUSTER

HOST_MODES = ("modelled", "measured", "none")
REPLICAS = ("shared", "each")
ROLES = ("alike", "similar")
ISOLATIONS = isolation.LEVELS
NETWORKS = isolation.NETWORKS
LOOP_TURNS = 1000
"""The turns after which a loop counts as endless. A training loop takes minutes for so many turns here."""
DEFAULT_MOE = routing_policy.CHANGING
JOB, MACHINE, LIMITS, SEVERAL, OUTPUT = "job", "emulated machine", "limits", "several machines", "output"
"""The groups of options, as --help shows them."""
MOST_SHOWN = 60
"""The most characters of a wrong value that a message repeats."""
PathText = str | os.PathLike[str]


class Kind(enum.Enum):
    """The kinds of values that options take; the member's value is the text that an error message expects."""

    COUNT = "a whole number"
    SECONDS = "a number"
    TEXT = "text"
    PATH = "a path"
    TEXTS = "a list of texts"
    SWITCH = "True or False"
    PORT = "a port, or 0 for any free one"


@dataclass(frozen=True, slots=True)
class Option:
    """The command-line form of a field of ``RunOptions``."""

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
    """One run, as the user describes it. An option that is not given has its default. A switch whose flag begins with
    ``--no-`` is on by default.
    """

    script: PathText
    """A path; with ``module`` the name of a module; with ``launcher`` a command."""
    arguments: Sequence[str] = ()
    """The arguments of the script itself."""
    _: KW_ONLY
    world_size: int | None = _option(
        None,
        JOB,
        "-n",
        kind=Kind.COUNT,
        metavar="WORLD",
        help="number of ranks, each with a GPU of its own; 12 ranks need two servers of 8 GPUs (default: 1)",
    )
    nnodes: int | None = _option(
        None,
        JOB,
        "--nnodes",
        kind=Kind.COUNT,
        metavar="N",
        help="number of servers, each with --nproc-per-node GPUs",
    )
    nproc_per_node: int | None = _option(
        None,
        JOB,
        "--nproc-per-node",
        "--nproc_per_node",
        kind=Kind.COUNT,
        metavar="GPUS",
        help="GPUs per server (default: as many as the cluster's servers have)",
    )
    fold: str | None = _option(
        None,
        JOB,
        "--fold",
        metavar="MESH|auto",
        help="start only the ranks that differ, which play the others: dp=128,pp=16,tp=8 names the axes of the mesh of "
        "ranks, the slowest first; data-parallel ones are folded, or those that are marked: replica*=4; dp=100+28: "
        "parts of an axis, in each of which ranks are alike; auto: as the script's options or its text say",
    )
    fold_apart: str = _option(
        "0,-1",
        JOB,
        "--fold-apart",
        metavar="RANKS|none",
        help="with --fold: ranks that play nobody, because scripts log and save there (default: %(default)s, the first "
        "and the last, and those whose numbers the script compares with its rank)",
    )
    witnesses: int | None = _option(
        None,
        JOB,
        "--witnesses",
        kind=Kind.COUNT,
        metavar="N",
        help="with --fold: so many ranks that could be played have a process, and the run ends if they do something "
        "else than the rank that would play them (default: 1)",
    )
    witness_seed: int = _option(
        0,
        JOB,
        "--witness-seed",
        kind=Kind.COUNT,
        metavar="SEED",
        help="with --witnesses: draws them (default: %(default)s)",
    )
    roles: str | None = _option(
        None,
        JOB,
        "--roles",
        choices=ROLES,
        help="with --fold: ranks of one role launch the same work (alike, the default), or may launch other work "
        "between the same calls (similar), as with Megatron's distributed optimizer: the result is then approximate, "
        "and the report says by how much the work of witnesses differs",
    )
    replicas: str | None = _option(
        None,
        JOB,
        "--replicas",
        choices=REPLICAS,
        help="with --fold: simulate ranks to which the same happens once (shared, the usual default), or each",
    )
    module: bool = _option(
        False,
        JOB,
        "-m",
        "--module",
        kind=Kind.SWITCH,
        help="SCRIPT is the name of a module, as with python -m",
    )
    launcher: bool = _option(
        False,
        JOB,
        "--launcher",
        kind=Kind.SWITCH,
        help="the rest of the line is a command that starts the ranks of one server; it is started once on each "
        "server: --launcher -- torchrun --nproc-per-node 8 train.py",
    )
    python: PathText | None = _option(
        None,
        JOB,
        "--python",
        kind=Kind.PATH,
        metavar="PATH",
        help="Python interpreter of the environment that has PyTorch (default: this one)",
    )
    preload: Sequence[str] = _option(
        (),
        JOB,
        "--preload",
        kind=Kind.TEXTS,
        metavar="MODULE",
        help="import MODULE once for all ranks, which saves memory and time; may be repeated",
    )
    auto_preload: bool = _option(
        True,
        JOB,
        "--no-auto-preload",
        kind=Kind.SWITCH,
        help="import for all ranks at once only what --preload names (default: also the installed packages that the "
        "script imports, if importing them does the same in each rank)",
    )
    compile_cache: PathText | None = _option(
        None,
        JOB,
        "--compile-cache",
        kind=Kind.PATH,
        metavar="DIR|off",
        help="directory for what later runs can use: compiled code (torch.compile, Triton) and which modules the "
        "script imports; off: keep nothing (default: ~/.cache/phantora-async)",
    )
    steps: int | None = _option(
        None,
        JOB,
        "--steps",
        kind=Kind.COUNT,
        metavar="N",
        help="end the run, with a complete report, when every rank has done N optimizer steps",
    )
    real_steps: int | None = _option(
        None,
        JOB,
        "--real-steps",
        kind=Kind.COUNT,
        metavar="N",
        help="with --steps: do N steps, 3 at least, and play the others from the record, if the last two were the same",
    )
    until: str | None = _option(
        None,
        JOB,
        "--until",
        metavar="TIME",
        help="end the run, with a complete report, at this virtual time: 500ms, 10s, 2m, 1h",
    )
    cluster: PathText | None = _option(
        None,
        MACHINE,
        "--cluster",
        kind=Kind.PATH,
        metavar="NAME|FILE",
        help=f"servers and network (default: those that the GPU of --gpu is sold in, or {DEFAULT_CLUSTER})",
    )
    gpu: PathText | None = _option(
        None,
        MACHINE,
        "--gpu",
        kind=Kind.PATH,
        metavar="NAME|FILE",
        help="GPU in place of the cluster's own; names: phantora-async profiles list",
    )
    kernel_times: Sequence[str] = _option(
        (),
        MACHINE,
        "--kernel-times",
        kind=Kind.TEXTS,
        metavar="FILE|none",
        help="table of measured kernel times, made by `phantora-async profile`; the table shipped for the GPU is asked "
        "for kernels that it lacks; may be repeated; none: estimates only",
    )
    measure: bool = _option(
        False,
        MACHINE,
        "--measure",
        kind=Kind.SWITCH,
        help="measure kernels that have no measured time on this machine's GPU, for this run and later ones",
    )
    host: str = _option(
        HOST_MODES[0],
        MACHINE,
        "--host",
        choices=HOST_MODES,
        help="cost of the script's Python code and CUDA calls: modelled (a calibrated cost per operation, default), "
        "measured (CPU time of this machine), or none",
    )
    loaders: str = _option(
        loading_policy.FREE,
        MACHINE,
        "--loaders",
        metavar="free|modelled|TIME",
        help="virtual time that loading data takes: free (none; the report says whether loading would limit the step), "
        "modelled (the time measured on this machine, with the CPUs of the described server), or the CPU time of a "
        "batch, such as 12ms (default: %(default)s)",
    )
    speculation: str = _option(
        POLICIES[0],
        MACHINE,
        "--speculation",
        choices=tuple(POLICIES),
        help="when the simulation runs ahead of the slowest rank; this changes how fast it is, not its results "
        "(default: %(default)s)",
    )
    moe: str = _option(
        DEFAULT_MOE,
        MACHINE,
        "--moe",
        metavar="POLICY",
        help="which experts the tokens of a mixture of experts go to, since the routers' scores are not computed: "
        "changing[:SHARE] from step to step, balanced, zipf:EXPONENT, random:SEED, or trace:FILE with the experts' "
        "loads, a line for each layer "
        "(default: %(default)s)",
    )
    data_shapes: str = _option(
        shape_policy.MOST,
        MACHINE,
        "--data-shapes",
        metavar="POLICY",
        help="how many elements there are where values that are not computed decide it (nonzero, masks, unique, NMS): "
        "most (as many as there can be), fraction:F of that, or trace:FILE with sizes by place, such as "
        "'roi_heads.py:712 128 96' or 'nonzero 25%%' (default: %(default)s)",
    )
    lengths: str | None = _option(
        None,
        MACHINE,
        "--lengths",
        metavar="POLICY",
        help="how many tokens a generated response has, since sampled tokens are not computed: fixed:N, "
        "lognormal:MEAN,SIGMA, or trace:FILE with lengths, a line for each prompt; for transformers' generate and "
        "vLLM (default: as many as the program allows)",
    )
    value: Sequence[str] = _option(
        (),
        MACHINE,
        "--value",
        kind=Kind.TEXTS,
        metavar="LINE=EXPR",
        help="the value that the program reads at a line, if it is not computed, such as a loss: "
        "--value 'train.py:42=2.5*exp(-step/100)'. EXPR may use n (number of reads at this line so far), step (number "
        "of steps so far), rank, random() and mathematical functions; or it is MODULE:FUNCTION, which is called with "
        "n, step and rank. A line without a file is a line of SCRIPT. May be repeated",
    )
    fault: Sequence[str] = _option(
        (),
        MACHINE,
        "--fault",
        kind=Kind.TEXTS,
        metavar="TEXT",
        help="what goes wrong on the machine, and when: --fault 'gpu 17 at 0.7x from 3s'; may be repeated; "
        "docs/faults.md lists the forms",
    )
    faults: PathText | None = _option(
        None,
        MACHINE,
        "--faults",
        kind=Kind.PATH,
        metavar="FILE",
        help="more of them, from a TOML file: faults = ['gpu 17 at 0.7x from 3s', ...]",
    )
    warm: bool = _option(
        False,
        MACHINE,
        "--warm",
        kind=Kind.SWITCH,
        help="keep the interpreter that has imported PyTorch for later runs, and use one that was kept (it ends after "
        "ten minutes without a run; `phantora-async warm --stop` ends it)",
    )
    shared_start: bool = _option(
        True,
        MACHINE,
        "--no-shared-start",
        kind=Kind.SWITCH,
        help="in a sweep, a check or a session of tests: start this run as one of its own, with imports of its own",
    )
    known: bool = _option(
        False,
        MACHINE,
        "--known",
        kind=Kind.SWITCH,
        help="answer from an earlier run if nothing changed on which it depended, else keep the result of this one; no "
        "file of the script is written again",
    )
    again: bool = _option(
        False,
        MACHINE,
        "--again",
        kind=Kind.SWITCH,
        help="with --known: run although nothing changed",
    )
    shared_weights: bool = _option(
        True,
        MACHINE,
        "--no-shared-weights",
        kind=Kind.SWITCH,
        help="let each rank initialise its own CPU tensors and propagate DTensor's shardings itself (default: ranks "
        "that would compute the same share one result, and its memory until one of them writes to it)",
    )
    isolation: str = _option(
        ISOLATIONS[0],
        MACHINE,
        "--isolation",
        choices=tuple(ISOLATIONS),
        help="full: each emulated server has its own processes, host name, network, /tmp and /dev/shm; none: servers "
        "share this machine's; auto: full where the kernel permits it, else none (default: %(default)s)",
    )
    network: str | None = _option(
        None,
        MACHINE,
        "--network",
        choices=tuple(NETWORKS),
        help="network of isolated servers: private: they reach only each other (default); host: that of this "
        "machine, for scripts that download",
    )
    write: Sequence[PathText] = _option(
        (),
        MACHINE,
        "--write",
        kind=Kind.TEXTS,
        metavar="PATH",
        help="an existing folder or file that isolated servers may write, too: of the home folder they write only the "
        "working directory, the script's folder, those that arguments name, and caches; may be repeated",
    )
    max_memory: str | None = _option(
        None,
        LIMITS,
        "--max-memory",
        metavar="SIZE",
        help="fail, with exit code 79, if PyTorch's allocator reserves more on any GPU: 76GiB, 80GB",
    )
    max_allocated: str | None = _option(
        None,
        LIMITS,
        "--max-allocated",
        metavar="SIZE",
        help="fail if tensors on any GPU ever take more, as torch.cuda.max_memory_allocated counts",
    )
    max_step_time: str | None = _option(
        None,
        LIMITS,
        "--max-step-time",
        metavar="TIME",
        help="fail if the median step takes longer: 450ms, 1.2s",
    )
    min_mfu: str | None = _option(
        None,
        LIMITS,
        "--min-mfu",
        metavar="SHARE",
        help="fail if the model's FLOPs are a smaller share of the GPUs' peak: 0.4, 40%%",
    )
    listen: str | None = _option(
        None,
        SEVERAL,
        "--listen",
        metavar="HOST:PORT",
        help="run the servers on other machines, which join with `phantora-async join`; this machine only coordinates "
        "(port 0: any free port)",
    )
    on: str | None = _option(
        None,
        SEVERAL,
        "--on",
        metavar="ray[://HOST:PORT]",
        help="run the servers on the nodes of this machine's Ray cluster, or of the one whose client server is there; "
        "each machine is an actor",
    )
    ray_env: PathText | None = _option(
        None,
        SEVERAL,
        "--ray-env",
        kind=Kind.PATH,
        metavar="FILE",
        help="JSON with Ray's runtime environment for these actors: working_dir, pip, env_vars ... (default: the "
        "working directory, the script and the Python environment are at the same paths on all nodes)",
    )
    machines: int | None = _option(
        None,
        SEVERAL,
        "--machines",
        kind=Kind.COUNT,
        metavar="N",
        help="number of machines that join (default: 1; with --on as many nodes as have room)",
    )
    token_file: PathText | None = _option(
        None,
        SEVERAL,
        "--token-file",
        kind=Kind.PATH,
        metavar="FILE",
        help=f"file with the token that machines must know (default: the environment variable {TOKEN_VARIABLE}, else a "
        "new one, in the file `token` of the run directory)",
    )
    run_dir: PathText | None = _option(
        None,
        OUTPUT,
        "--run-dir",
        kind=Kind.PATH,
        metavar="DIR",
        help="directory for logs and the report (default: a new one in phantora-runs/)",
    )
    report: PathText | None = _option(
        None,
        OUTPUT,
        "--report",
        kind=Kind.PATH,
        metavar="FILE",
        help="where to write the JSON report (default: report.json in the run directory)",
    )
    reasons: bool = _option(
        False,
        OUTPUT,
        "--reasons",
        kind=Kind.SWITCH,
        help="explain the step time: its critical path, what takes most of it, and how long the step would take with "
        "one resource twice as fast; see docs/seeing.md",
    )
    record: PathText | None = _option(
        None,
        OUTPUT,
        "--record",
        kind=Kind.PATH,
        metavar="DIR",
        help="record what the ranks do, for `phantora-async replay DIR`: it simulates them again, on this or another "
        "described machine",
    )
    trace: PathText | None = _option(
        None,
        OUTPUT,
        "--trace",
        kind=Kind.PATH,
        metavar="FILE",
        help=f"write a trace of ranks, GPUs and links: {FORMS}; docs/seeing.md says which tools read it",
    )
    trace_ranks: str | None = _option(
        None,
        OUTPUT,
        "--trace-ranks",
        metavar="RANKS",
        help="ranks that the trace shows, such as 0,8-15 (default: all)",
    )
    trace_steps: str | None = _option(
        None,
        OUTPUT,
        "--trace-steps",
        metavar="STEPS",
        help="steps that the trace shows, such as 3 or 3-5; the first is 1 (default: all)",
    )
    show_ranks: str = _option(
        "0",
        OUTPUT,
        "--show-ranks",
        metavar="RANKS",
        help="ranks whose output is shown, such as 0,3, or all, or none (default: 0)",
    )
    stall_timeout: float | None = _option(
        None,
        OUTPUT,
        "--stall-timeout",
        kind=Kind.SECONDS,
        metavar="SECONDS",
        help="end the run when all ranks, or a rank that others wait for, have made no visible progress for this "
        "long in real time (default: 1800, but 30 where all ranks only sleep; 0: no limit)",
    )
    loop_turns: int = _option(
        LOOP_TURNS,
        OUTPUT,
        "--loop-turns",
        kind=Kind.COUNT,
        metavar="N",
        help="end the run when a loop, which only a value that is not computed (such as a loss) can end, has run N "
        "turns (default: %(default)s; 0: only --stall-timeout ends it)",
    )
    progress: bool = _option(
        True,
        OUTPUT,
        "--no-progress",
        kind=Kind.SWITCH,
        help="show no status line",
    )
    ui: int | None = _option(
        None,
        OUTPUT,
        "--ui",
        kind=Kind.PORT,
        metavar="PORT",
        help="serve a live page of the run to browsers on this machine and print its address (default: any free port)",
    )
    profile_simulator: bool = _option(
        False, OUTPUT, "--profile-simulator", kind=Kind.SWITCH, help="for bench", hidden=True
    )

    def checked(self) -> RunOptions:
        """Returns these options with paths as text, lists as tuples. Raises UsageError for a value of another type."""
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
"""The options by the name of their keyword, in the order of --help."""


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
