"""Finds changes that make a recorded run faster: each line of advice is a simulation of one.

Machine settings are replays of the recording. What the script itself decides (batch, recomputation, sharding, bucket
sizes) is run: with arguments that the user names or that `arguments` finds, and with the defaults and keywords of
PyTorch that `patches` changes from outside.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.api import running
from phantora_async.api.results import Run
from phantora_async.errors import PhantoraError, UsageError
from phantora_async.figures import INTERVAL_HIGH, INTERVAL_LOW, RESERVED
from phantora_async.options import OPTIONS, RunOptions
from phantora_async.recording import Recording, load
from phantora_async.replaying.machine import Changes
from phantora_async.replaying.replay import uncollected
from phantora_async.replaying.variants import Player, Variant
from phantora_async.spending.job import Job, job_of, logged_tokens
from phantora_async.study.arguments import Worth, worth_trying
from phantora_async.study.patches import patched, patches, took_hold
from phantora_async.wording import gib, printable, seconds

FIRST_WITH_NCCL2 = (2, 15)
LEAST = 0.005
"""The relative change of the step below which there is none to report."""
MOST_LINES = 5
"""The most changes that are listed, the one that makes the run fastest first."""
NCCL = ("NCCL_ALGO=Ring", "NCCL_ALGO=Tree", "NCCL_PROTO=Simple", "NCCL_PROTO=LL128", "NCCL_NVLS_ENABLE=0")
TWICE = {"server.gpu_gbps": "NVLink twice as fast", "server.nic_gbps": "network cards twice as fast"}
NO_HOST = "a host that takes no time: the most that a faster host can bring with these kernels"
NOT_TRIED = (
    "torch.compile and CUDA graphs, unless the script has a switch for them (--try): they change the program; kernels "
    "that are joined can bring more than a host that takes no time",
    "FSDP2 or tensor parallelism in place of DistributedDataParallel, and where ranks are placed: other programs",
)
"""The changes that are not simulated, with the reason."""
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


def advise(folder: str | os.PathLike[str], arguments: Sequence[str] = (), run: Runner = running.run_with) -> Advice:
    """Finds changes that make a recorded run faster, as `phantora-async advise` does. `arguments`: texts of further
    arguments of the script, ``"--batch 2"``, each for a run of it; ``"auto"`` finds them. Raises UsageError.
    """
    if isinstance(arguments, str):
        raise UsageError(f"arguments: expected a list of texts, found {arguments!r}", '["--batch 2"]')
    for one in arguments:
        _words(one)
    recording = load(Path(folder))
    player = Player(recording, frozenset())
    with uncollected():
        base = player.play(Variant("", Changes()))
        if base.left:
            raise UsageError(base.left)
        tries = [_replayed(player, what, changes, base.step_ns) for what, changes in _settings(recording)]
    wanted = [one for text in arguments for one in (_found(recording) if text == FOUND else [Worth(text, 1.0)])]
    tries += [_run(recording, one, base.step_ns, run) for one in wanted]
    if FOUND in arguments:
        tries += _patched(recording, base.step_ns, run)
    if hides_nothing(recording):
        tries.append(_with_earlier_nccl(recording, base.step_ns, run))
    known = [one for one in tries if one.change is not None]
    return Advice(
        {
            "gpus": recording.world_size,
            "gpu": recording.setup.gpu.name,
            "step_s": base.step_ns / 1e9,
            "tries": [asdict(one) for one in sorted(known, key=lambda one: one.change or 0.0)],
            "unknown": [asdict(one) for one in tries if one.change is None],
            "not_tried": list(NOT_TRIED),
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


def _with_earlier_nccl(recording: Recording, base_ns: int, run: Runner) -> Try:
    """Runs the script with PyTorch's earlier NCCL backend. This changes what it launches, so it cannot be replayed."""
    what = "=".join(EARLIER_NCCL) + ": PyTorch's earlier NCCL backend, in which DDP's all-reduces hide behind backward"
    try:
        done = run(_options(recording, ()), dict([EARLIER_NCCL]))
    except PhantoraError as error:
        return Try(what, None, None, reason=error.message.splitlines()[0])
    job = job_of(done.report)
    if job is None:
        return Try(what, None, None, reason="no steps were found")
    return _of_run(done, job, what, job.step_s * 1e9 / base_ns - 1)


def _of_run(done: Run, job: Job, what: str, change: float, by_tokens: bool = False) -> Try:
    """The result of a run, with what it needs and how sure it is."""
    simulated = done.report["simulated"]
    low, high = INTERVAL_LOW.value(simulated), INTERVAL_HIGH.value(simulated)
    interval = None if low is None or high is None else (low, high)
    return Try(what, job.step_s, change, by_tokens, "", RESERVED.value(simulated), interval)


def _patched(recording: Recording, base_ns: int, run: Runner) -> Iterator[Try]:
    """Runs the script with changes of PyTorch's defaults and keywords. One that changes nothing of it is no advice."""
    script = Path(str(recording.run.get("script", "")))
    text = script.read_text(errors="replace") if script.is_file() else ""
    signatures = [one.signature for one in recording.costs.values()]
    with TemporaryDirectory(prefix="phantora-advise-") as folder:
        for patch in patches(ranks=recording.world_size, signatures=signatures, script=text):
            try:
                done = run(patched(_options(recording, ()), patch, Path(folder)), {})
                held = took_hold(done.log(0))
            except PhantoraError as error:
                yield Try(patch.what, None, None, reason=error.message.splitlines()[0])
                continue
            except ValueError as error:
                yield Try(patch.what, None, None, reason=str(error))
                continue
            job = job_of(done.report)
            if not held:
                yield Try(patch.what, None, None, reason=patch.missing)
            elif job is None:
                yield Try(patch.what, None, None, reason="no steps were found")
            else:
                yield _of_run(done, job, patch.what, job.step_s * 1e9 / base_ns - 1)


def _replayed(player: Player, what: str, changes: Changes, base_ns: int) -> Try:
    try:
        found = player.play(Variant(what, changes))
    except UsageError as error:
        return Try(what, None, None, reason=error.message)
    if found.left:
        return Try(what, None, None, reason=found.left)
    return Try(what, found.step_ns / 1e9, found.step_ns / base_ns - 1)


def _found(recording: Recording) -> list[Worth]:
    told = recording.run
    if not told.get("script"):
        raise UsageError(f"{recording.folder}: run.json is missing: it is not known what was run")
    hint = "name the arguments: --try '--batch 2'"
    try:
        found = worth_trying(Path(told["script"]), [str(one) for one in told["arguments"]])
    except ValueError as error:
        raise UsageError(f"--try {FOUND}: {error}", hint) from None
    return found


def _run(recording: Recording, wanted: Worth, base_ns: int, run: Runner) -> Try:
    text = wanted.text
    try:
        done = run(_options(recording, () if wanted.without else _words(text), wanted.without), {})
    except PhantoraError as error:
        return Try(text, None, None, reason=error.message.splitlines()[0])
    job = job_of(done.report)
    if job is None:
        return Try(text, None, None, reason="no steps were found")
    before, _ = logged_tokens(recording.report, recording.world_size, base_ns / 1e9)
    if before and job.tokens_per_step:
        change = (job.step_s / job.tokens_per_step) / (base_ns / 1e9 / before) - 1
        return _of_run(done, job, text, change, by_tokens=True)
    if wanted.work != 1.0:
        what = f"{text} (steps of {wanted.work:g} times the work)"
        return _of_run(done, job, what, job.step_s * 1e9 / base_ns / wanted.work - 1, by_tokens=True)
    return _of_run(done, job, text, job.step_s * 1e9 / base_ns - 1)


def _options(recording: Recording, arguments: Sequence[str], without: Sequence[str] = ()) -> RunOptions:
    """The options of the recorded run, with more arguments of the script, and without these. Raises UsageError."""
    told = recording.run
    if not told.get("script"):
        raise UsageError(f"{recording.folder}: run.json is missing: it is not known what was run")
    given = {name: value for name, value in told["options"].items() if name in OPTIONS and name not in OF_RUN}
    return RunOptions(
        told["script"],
        [*(one for one in told["arguments"] if one not in without), *arguments],
        show_ranks="none",
        progress=False,
        **given,
    ).checked()


# ---- text ------------------------------------------------------------------------------------------------------------


def text(told: Document) -> str:
    step = seconds(round(told["step_s"] * 1e9))
    lines = [f"{told['gpus']} x {told['gpu']}, a step takes {step} as recorded; each line is a simulation:"]
    better = [one for one in told["tries"] if one["change"] <= -LEAST]
    worse = [one for one in told["tries"] if one["change"] >= LEAST]
    same = [one["what"] for one in told["tries"] if abs(one["change"]) < LEAST]
    lines += [f"  {_change(one)}" for one in better[:MOST_LINES]] or ["  nothing that was tried makes it faster"]
    if len(better) > MOST_LINES:
        lines.append(f"  {len(better) - MOST_LINES} more that bring less: --json")
    if same:
        lines.append(f"not worth trying (less than {LEAST:.1%}): {'; '.join(same)}")
    if worse:
        lines.append(f"worse: {'; '.join(_change(one) for one in worse)}")
    lines += [f"not known: {one['what']}: {one['reason']}" for one in told["unknown"]]
    lines += [f"not tried: {one}" for one in told.get("not_tried", ())]
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
        texts.append(f"{gib(memory)} reserved")
    return ", ".join(texts)


def _seconds(value: float) -> str:
    return seconds(round(value * 1e9))
