"""Finds changes that make a recorded run faster: each line of advice is a simulation of one.

Machine settings are replays of the recording. What the script itself decides (batch, recomputation, sharding, bucket
sizes) is run: with arguments that the user names or that `arguments` finds, and with the defaults and keywords of
PyTorch that `patches` changes from outside.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import gcd, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.api import running
from phantora_async.api.replays import replayed
from phantora_async.api.results import Run
from phantora_async.api.run_processes import RunProcesses
from phantora_async.errors import PhantoraError, UsageError
from phantora_async.figures import INTERVAL_HIGH, INTERVAL_LOW, RESERVED, counted_in, times_the_tokens, tokens_of_step
from phantora_async.options import OPTIONS, RunOptions
from phantora_async.recording import Recording, load
from phantora_async.replaying.machine import Changes
from phantora_async.replaying.replay import uncollected
from phantora_async.replaying.variants import Player, Variant
from phantora_async.spending.job import Job, job_of
from phantora_async.study.arguments import Worth, worth_trying
from phantora_async.study.patches import Facts, Patch, patched, patches, took_hold
from phantora_async.study.unsimulated import reasons
from phantora_async.virtual_time.facts import DTYPE_NAMES
from phantora_async.wording import printable, seconds

FIRST_WITH_NCCL2 = (2, 15)
LEAST = 0.005
"""The relative change of the step below which there is none to report."""
ALIKE = 0.1
"""The relative difference up to which a step is taken to have as much work as an argument's name says."""
MOST_LINES = 5
"""The most changes that are listed, the one that makes the run fastest first."""
NCCL = ("NCCL_ALGO=Ring", "NCCL_ALGO=Tree", "NCCL_PROTO=Simple", "NCCL_PROTO=LL128", "NCCL_NVLS_ENABLE=0")
TWICE = {"server.gpu_gbps": "NVLink twice as fast", "server.nic_gbps": "network cards twice as fast"}
NO_HOST = "a host that takes no time: the most that a faster host can bring with these kernels"
WITHOUT_AUTO = (
    "what the script decides (batch, types, buckets, sharding, optimizer, recomputation, waits, compiling): --try auto"
)
NOT_TRIED = (
    "CUDA graphs and tensor parallelism, unless the script has an option for them: other programs",
    "other places of ranks, and processes that are bound to the CPUs beside their GPU (torchrun --numa-binding): the "
    "model of hosts knows no sockets; what a faster host brings is simulated",
)
"""The changes that are not simulated, with the reason."""
TOGETHER = 2
"""The least changes that are tried together: those of the best of each kind."""
EARLIER_NCCL = ("TORCH_DIST_USE_NCCL2", "0")
"""The variable with which PyTorch uses its NCCL backend from before 2.15 (docs/prediction-off.md)."""
FOUND = "auto"
"""The word in place of arguments that stands for those which the script's text suggests."""
OF_RUN = ("run_dir", "report", "record", "trace", "trace_ranks", "trace_steps", "ui", "progress", "show_ranks")
"""The options of the recorded run that a run with other arguments does not take over."""
Document = dict[str, Any]
Runner = Callable[[RunOptions, Mapping[str, str]], Run]


@dataclass(frozen=True, slots=True)
class Try:
    what: str
    step_s: float | None
    """The step time in seconds; None: not known."""
    change: float | None
    """The relative change of the time of a step, or of a token if both runs' tokens per second are known: -0.05 is 5 %
    less.
    """
    by_tokens: bool = False
    reason: str = ""
    """The reason why nothing is known."""
    memory_nbytes: float | None = None
    """The memory that the fullest GPU's allocator reserves; None: it is that of the recorded run, or not known."""
    interval_s: tuple[float, float] | None = None
    """The 90% interval of the step time; None: not known."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The results of the tries. ``print(advice)`` shows them as the command line does."""

    document: Document

    def __str__(self) -> str:
        return text(self.document)


def advise(folder: str | os.PathLike[str], arguments: Sequence[str] = (), run: Runner | None = None) -> Advice:
    """Finds changes that make a recorded run faster, as `phantora-async advise` does. `arguments`: texts of further
    arguments of the script, ``"--batch 2"``, each for a run of it; ``"auto"`` finds them. Raises UsageError.
    """
    if isinstance(arguments, str):
        raise UsageError(f"arguments: expected a list of texts, found {arguments!r}", '["--batch 2"]')
    for one in arguments:  # before the recording is read, which takes longer
        _words(one)
    recording = load(Path(folder))
    player = Player(recording, frozenset())
    with uncollected():
        played = player.play(Variant("", Changes()))
        if played.left:
            raise UsageError(played.left)
        tries = [_replayed(player, what, changes, played.step_ns) for what, changes in _settings(recording)]
    # The player keeps no report: one replay without changes gives what the recorded run's report says.
    done, _, _ = replayed(recording, Changes(), ())
    simulated = done.report["simulated"]
    shared = RunProcesses()
    base = _Base(recording, played.step_ns, simulated, run or partial(running.run_with, processes=shared))
    wanted = [one for text in arguments for one in (_found(recording) if text == FOUND else [Worth(text, 1.0)])]
    runs = [_Run(one) for one in wanted]
    if FOUND in arguments:
        runs += [_Run(patch=one) for one in patches(_facts(recording, simulated))]
    if hides_nothing(recording):
        runs.append(_Run(environment=(EARLIER_NCCL,)))
    with shared:
        found = [base.tried(one) for one in runs]
        tries += [one.tried for one in found]
        # Changes that help alone may help with the same work, so their gains are not added up: they are run together.
        if FOUND in arguments and len(best := _best_of_each_kind(found)) >= TOGETHER:
            tries.append(base.together(best))
    known = [one for one in tries if one.change is not None]
    low, high = INTERVAL_LOW.value(simulated), INTERVAL_HIGH.value(simulated)
    return Advice(
        {
            "gpus": recording.world_size,
            "gpu": recording.setup.gpu.name,
            "step_s": played.step_ns / 1e9,
            "interval_s": None if low is None or high is None else (low, high),
            "memory_nbytes": RESERVED.value(simulated),
            "reasons": list(reasons(done.report)),
            "tries": [asdict(one) for one in sorted(known, key=lambda one: one.change or 0.0)],
            "unknown": [asdict(one) for one in tries if one.change is None],
            "not_tried": [*NOT_TRIED, *([] if FOUND in arguments else [WITHOUT_AUTO])],
        }
    )


def _words(text: str) -> list[str]:
    """The words of the text. Raises UsageError, before anything is simulated."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--try {text!r}: not words as a shell reads them: {error}") from None
    if not words:
        raise UsageError(f"--try {text!r}: no arguments", "as in --try '--batch 2'")
    return words


def _settings(recording: Recording) -> Iterator[tuple[str, Changes]]:
    """Yields the settings of the machine that could change something."""
    setup = recording.setup
    if recording.world_size > 1:
        for text in NCCL:
            yield text, Changes(nccl=(text,))
        server = setup.cluster.network.get("server", {})
        for key, what in TWICE.items():
            gbps = server.get(key.partition(".")[2]) if isinstance(server, dict) else None
            if gbps is not None and (key != "server.nic_gbps" or len(setup.servers) > 1):
                yield what, Changes(network=(f"{key}={2 * gbps}",))
    if setup.host_mode == "modelled":
        yield NO_HOST, Changes(host="none")


def hides_nothing(recording: Recording) -> bool:
    """Returns true if every all-reduce was followed at once by a stream that waits for it, before any other work, under
    PyTorch's NCCL backend of 2.15. DDP's all-reduces cannot run beside the backward pass then.
    """
    versions = recording.run.get("versions", {})
    torch = re.match(r"(\d+)\.(\d+)", str(versions.get("torch", ""))) if isinstance(versions, dict) else None
    if torch is None or tuple(map(int, torch.groups())) < FIRST_WITH_NCCL2 or recording.world_size < 2:
        return False
    if recording.run.get("environment", {}).get(EARLIER_NCCL[0]) == EARLIER_NCCL[1]:
        return False
    waited = [_waits_at_once(recording, rank) for rank in recording.own[:1]]
    return all(together > 1 and together == all_of_them for together, all_of_them in waited)


def _waits_at_once(recording: Recording, rank: int) -> tuple[int, int]:
    """The number of a rank's all-reduces for which another stream waits before it gets further work, and the number of
    all.
    """
    rows = recording.stream(rank).rows
    reducing = [any(call.op == NcclKind.ALL_REDUCE for call in kernel) for kernel in recording.kernels]
    at_once = every = 0
    running: int | None = None
    for kind, stream, value in zip(
        rows["kind"].tolist(), rows["stream"].tolist(), rows["values"][:, 0].tolist(), strict=True
    ):
        if kind == records.NCCL_LAUNCH:
            running = stream if reducing[value] else None
            every += reducing[value]
        elif kind == records.STREAM_WAIT and running not in (None, stream):
            at_once += 1
            running = None
        elif kind == records.SEGMENT and stream != running:
            running = None
    return at_once, every


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of the script with one change: other arguments, a program around it, or variables."""

    worth: Worth | None = None
    patch: Patch | None = None
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def what(self) -> str:
        if self.worth is not None:
            return self.worth.text
        if self.patch is not None:
            return self.patch.what
        of_variable = "PyTorch's earlier NCCL backend, in which DDP's all-reduces hide behind backward"
        return f"{' '.join(map('='.join, self.environment))}: {of_variable}"

    @property
    def kind(self) -> str:
        """Changes of one kind exclude each other."""
        if self.worth is not None:
            return self.worth.kind or self.worth.text
        return (self.patch.kind or self.patch.what) if self.patch is not None else "environment"


@dataclass(frozen=True, slots=True)
class _Found:
    """A run with what it gave."""

    run: _Run
    tried: Try
    work: float
    """The factor by which a step has more work."""


def _best_of_each_kind(found: Sequence[_Found]) -> list[_Found]:
    """The changes that make the run faster, the best of each kind."""
    best: dict[str, _Found] = {}
    for one in found:
        if one.tried.change is None or one.tried.change > -LEAST:
            continue
        kind = one.run.kind
        if kind not in best or one.tried.change < (best[kind].tried.change or 0.0):
            best[kind] = one
    return list(best.values())


@dataclass(frozen=True, slots=True)
class _Base:
    """The recorded run, with which others are compared."""

    recording: Recording
    step_ns: int
    simulated: Mapping[str, Any]
    run: Runner

    def tried(self, one: _Run) -> _Found:
        """Runs the script with the change."""
        tried, work = self._tried([one], one.what, None)
        return _Found(one, tried, work)

    def together(self, best: Sequence[_Found]) -> Try:
        """Runs the script with all these changes. The work of a step is what each of them was found to make of it."""
        what = "together: " + "; ".join(one.tried.what for one in best)
        return self._tried([one.run for one in best], what, prod(one.work for one in best))[0]

    def _tried(self, changes: Sequence[_Run], what: str, work: float | None) -> tuple[Try, float]:
        """The result, with the factor by which a step has more work. `work`: that factor; None: it is to be found."""
        worths = [one.worth for one in changes if one.worth is not None]
        programs = [one.patch for one in changes if one.patch is not None]
        environment = {name: value for one in changes for name, value in one.environment}
        more = [word for one in worths if not one.without for word in _words(one.text)]
        without = [word for one in worths for word in one.without]
        with TemporaryDirectory(prefix="phantora-advise-") as folder:
            try:
                options = _options(self.recording, more, without)
                if programs:
                    options = patched(options, programs, Path(folder))
                done = self.run(options, environment)
                log = done.log(0) if programs else ""
            except PhantoraError as error:
                return Try(what, None, None, reason=error.message.splitlines()[0]), 1.0
            except ValueError as error:
                return Try(what, None, None, reason=str(error)), 1.0
        unmet = [one for number, one in enumerate(programs) if not took_hold(log, number)]
        if unmet and len(changes) == 1:
            return Try(what, None, None, reason=unmet[0].missing), 1.0
        if unmet:
            what += f" (without effect beside the others: {'; '.join(one.what for one in unmet)})"
        job = job_of(done.report)
        if job is None:
            return Try(what, None, None, reason="no steps were found"), 1.0
        if work is None:
            work = self._work(done, worths)
        return self._compared(done, job, what, work, by_tokens=bool(worths)), work

    def _work(self, done: Run, worths: Sequence[Worth]) -> float:
        """The factor by which a step of the run has more work. Where its floating-point operations say another one than
        the argument's name, they are right: some scripts divide one batch by an argument that others multiply with.
        Where ranks share the work in another way, operations that each of them does alone count several times: then
        the tokens are the measure, if the shapes of their loss or of their embedding tell how many there are.
        """
        named = prod(one.work for one in worths)
        by_flops = any(one.work_by_flops for one in worths)
        if named == 1.0 and not by_flops:
            return 1.0
        if by_flops and (tokens := times_the_tokens(self.simulated, done.report["simulated"])):
            return tokens / prod(one.copies for one in worths)
        before, now = _flops(self.simulated), _flops(done.report["simulated"])
        if not before or not now:
            return named
        return now / before if by_flops or abs(now / before / named - 1) > ALIKE else named

    def _compared(self, done: Run, job: Job, what: str, work: float, *, by_tokens: bool) -> Try:
        """The result of a run. Its steps are compared with the recorded run's by their work: by the tokens that are
        known of both, else by what is known of the change.
        """
        before = tokens_of_step(self.simulated)
        if by_tokens and before is not None and job.tokens_per_step:
            change = (job.step_s / job.tokens_per_step) / (self.step_ns / 1e9 / before.of_step) - 1
            return _of_run(done, job, what, change, by_tokens=True)
        if abs(work - 1.0) > LEAST:
            change = job.step_s * 1e9 / self.step_ns / work - 1
            return _of_run(done, job, f"{what} (steps of {work:.3g} times the work)", change, by_tokens=True)
        return _of_run(done, job, what, job.step_s * 1e9 / self.step_ns - 1)


def _flops(simulated: Mapping[str, Any]) -> float:
    """The floating-point operations of a step on all GPUs; 0 if they are not known."""
    of_gpu = float(simulated["work"].get("tflops_per_gpu") or 0.0)
    return of_gpu * float(simulated["step"]["median_ns"] or 0.0) * int(simulated["world_size"])


def _of_run(done: Run, job: Job, what: str, change: float, by_tokens: bool = False) -> Try:
    """The result of a run, with what it needs and how sure it is."""
    simulated = done.report["simulated"]
    low, high = INTERVAL_LOW.value(simulated), INTERVAL_HIGH.value(simulated)
    interval = None if low is None or high is None else (low, high)
    return Try(what, job.step_s, change, by_tokens, "", RESERVED.value(simulated), interval)


def _facts(recording: Recording, simulated: Mapping[str, Any]) -> Facts:
    """The facts about the run by which changes are chosen."""
    script = Path(str(recording.run.get("script", "")))
    calls = recording.report.get("calls") or {}
    reductions: Counter[tuple[Any, ...]] = Counter()
    for one in calls.get("collectives", ()):
        if one["op"] == "all_reduce":
            reductions[one["nbytes"], one["dtype"], one["on"]] += int(one["calls"])
    reducing = {(NcclKind(call.op), DTYPE_NAMES[call.dtype]) for kernel in recording.kernels for call in kernel}
    return Facts(
        recording.world_size,
        len(recording.setup.servers),
        [one.signature for one in recording.costs.values()],
        script.read_text(errors="replace") if script.is_file() else "",
        frozenset(reducing),
        bool(reductions) and gcd(*reductions.values()) >= 2 * counted_in(simulated),
        [one["site"] for one in calls.get("waits", ()) if "(via torch/" not in one["site"]],
    )


def _replayed(player: Player, what: str, changes: Changes, base_ns: int) -> Try:
    try:
        found = player.play(Variant(what, changes))
    except UsageError as error:
        return Try(what, None, None, reason=error.message)
    if found.left:
        return Try(what, None, None, reason=found.left)
    return Try(what, found.step_ns / 1e9, found.step_ns / base_ns - 1)


def _found(recording: Recording) -> list[Worth]:
    recorded = recording.run
    if not recorded.get("script"):
        raise UsageError(f"{recording.folder}: run.json is missing: it is not known what was run")
    hint = "name the arguments: --try '--batch 2'"
    try:
        servers = recording.setup.servers
        found = worth_trying(
            Path(recorded["script"]), [str(one) for one in recorded["arguments"]], recording.world_size, max(servers)
        )
    except ValueError as error:
        raise UsageError(f"--try {FOUND}: {error}", hint) from None
    return found


def _options(recording: Recording, arguments: Sequence[str], without: Sequence[str] = ()) -> RunOptions:
    """The options of the recorded run, with more arguments of the script, and without these. Raises UsageError."""
    recorded = recording.run
    if not recorded.get("script"):
        raise UsageError(f"{recording.folder}: run.json is missing: it is not known what was run")
    given = {name: value for name, value in recorded["options"].items() if name in OPTIONS and name not in OF_RUN}
    return RunOptions(
        recorded["script"],
        [*(one for one in recorded["arguments"] if one not in without), *arguments],
        show_ranks="none",
        progress=False,
        **given,
    ).checked()


# ---- text ------------------------------------------------------------------------------------------------------------


def text(recorded: Document) -> str:
    step = seconds(round(recorded["step_s"] * 1e9))
    beside = _beside(recorded).partition(", ")[2]
    step += f" ({beside})" * bool(beside)
    lines = [f"{recorded['gpus']} x {recorded['gpu']}, a step takes {step} as recorded; each line is a simulation:"]
    better = [one for one in recorded["tries"] if one["change"] <= -LEAST]
    worse = [one for one in recorded["tries"] if one["change"] >= LEAST]
    same = [one["what"] for one in recorded["tries"] if abs(one["change"]) < LEAST]
    lines += [f"  {_change(one)}" for one in better[:MOST_LINES]] or ["  nothing that was tried makes it faster"]
    if len(better) > MOST_LINES:
        lines.append(f"  {len(better) - MOST_LINES} more that bring less: --json")
    if same:
        lines.append(f"not worth trying (less than {LEAST:.1%}): {'; '.join(same)}")
    if worse:
        lines.append(f"worse: {'; '.join(_change(one) for one in worse)}")
    lines += [f"reason: {one}" for one in recorded.get("reasons", ())]
    lines += [f"not known: {one['what']}: {one['reason']}" for one in recorded["unknown"]]
    lines += [f"not tried: {one}" for one in recorded.get("not_tried", ())]
    return printable("\n".join(lines))


def _change(one: Document) -> str:
    of = "time of a token" if one["by_tokens"] else "step"
    return f"{one['what']}: {of} {one['change']:+.1%} ({_beside(one)})"


def _beside(one: Document) -> str:
    """The step time with its interval, and the memory of a run."""
    texts = [f"{_seconds(one['step_s'])} a step"]
    if interval := one.get("interval_s"):
        texts.append(f"90% {_seconds(interval[0])} to {_seconds(interval[1])}")
    if memory := one.get("memory_nbytes"):
        texts.append(f"{RESERVED.text(memory)} reserved")
    return ", ".join(texts)


def _seconds(value: float) -> str:
    return seconds(round(value * 1e9))
