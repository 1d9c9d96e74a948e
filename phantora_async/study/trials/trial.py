"""One configuration: the program that runs, and the machine on which it does."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from formats.files import MOST_DATA_NBYTES, read_bytes
from phantora_async.config import AUTO, folding_of, folds_by_itself, own_sources, servers_of
from phantora_async.errors import UsageError
from phantora_async.options import OPTIONS, Kind, RunOptions
from phantora_async.replaying.machine import Changes
from profiles import EmulatedMachine, Gpu, load_machine

REPLAYED = ("nccl", "set_network", "slow_gpu")
"""Settings that are lists of texts, named as the options of `phantora-async replay`."""
ONLY_REPLAYED = ("set_network", "slow_gpu")
"""The settings that only a replay can have, not a run."""
OF_MACHINE = ("cluster", "gpu", "host", "kernel_times", "fault", "faults")
"""The options of a run that a replay may change."""
Value = str | int | float | bool | list[str]


@dataclass(frozen=True)
class Trial:
    name: str
    chosen: Mapping[str, Value]
    """The settings from the grid or from the trial's own table."""
    options: RunOptions
    """The options of the run, without limits, run directory and recording."""
    environment: Mapping[str, str]
    """The environment variables of this trial."""
    replayed: Mapping[str, tuple[str, ...]]
    """The settings of replays, by the names of REPLAYED."""
    tokens_per_step: float | None
    """The tokens of a step; None: the script logs them."""
    may_fold: bool = False
    """True if the study does not say how ranks share processes."""

    @cached_property
    def gpu(self) -> Gpu:
        """The emulated GPU. Raises ProfileError."""
        return self._machine.gpu

    @cached_property
    def servers(self) -> tuple[int, ...]:
        """The number of GPUs of each server."""
        return servers_of(self.options, self._machine.cluster)

    @cached_property
    def _machine(self) -> EmulatedMachine:
        """The emulated machine. Raises ProfileError."""
        return load_machine(self.options.cluster, self.options.gpu)

    @property
    def gpus(self) -> int:
        return sum(self.servers)

    @cached_property
    def folded(self) -> bool:
        """True if a run of it is folded by itself, as the jobs of `check` are: ranks that do the same share a process.
        The slow GPUs of a replay need ranks of their own.
        """
        if not self.may_fold or self.replayed.get("slow_gpu"):
            return False
        try:
            return folds_by_itself(self.options, self.servers)
        except UsageError:
            return False  # the run says what is wrong, if it is not the mesh

    @cached_property
    def ranks(self) -> int:
        """The number of processes that a run of it has on this machine."""
        folding, _ = folding_of(self.started(self.options), self.servers)
        return self.gpus if folding is None else len(folding.live)

    def started(self, options: RunOptions) -> RunOptions:
        """Returns the options of a run of it, with which it is folded by itself."""
        return replace(options, fold=AUTO) if self.folded else options

    @cached_property
    def program(self) -> str:
        """Identifies the program: of trials with the same one, one is run and the others are replays. Compilers and
        PyTorch choose kernels by the compute capability, and ranks are told how many GPUs their server has.
        """
        given = {name: value for name, value in self.options.given().items() if name not in OF_MACHINE}
        return _digest(
            [
                self._what,
                given,
                sorted(self.environment.items()),
                self.servers,
                self.folded,
                self.recordable,
                (self.gpu.cc_major, self.gpu.cc_minor),
            ]
        )

    @cached_property
    def key(self) -> str:
        """The key of its result: it changes with everything that the result depends on, as far as that is known."""
        given = self.options.given()
        machine = [_content(str(given[name])) for name in ("cluster", "gpu", "faults") if name in given]
        tables = [_content(path) for path in self.options.kernel_times]
        settings = [sorted(self.environment.items()), sorted(self.replayed.items())]
        # A study that says `fold = "none"` asks for another run than one that says nothing.
        return _digest([self._what, given, machine, tables, settings, self.may_fold])

    @property
    def _what(self) -> list[Any]:
        script = str(self.options.script)
        versions = [own_version(), torch_version(None if self.options.python is None else str(self.options.python))]
        sources = [source.digest for source in own_sources(self.options)]
        return [script, _content(script), sources, list(self.options.arguments), versions]

    @property
    def recordable(self) -> bool:
        return self.options.host != "measured"

    @property
    def runs_as_it_is(self) -> bool:
        """True if a plain run gives the trial: it has no setting that only replays can have, or that a recording must
        not have.
        """
        return not any(self.replayed.values()) and not self.options.fault and self.options.faults is None

    @property
    def can_run(self) -> bool:
        return not any(self.replayed.get(name) for name in ONLY_REPLAYED)

    def recorded_options(self) -> RunOptions:
        """The options of a run whose recording can become this trial: without faults, which replays add."""
        return replace(self.options, fault=(), faults=None)

    def run_environment(self) -> dict[str, str]:
        pairs = (text.partition("=") for text in self.replayed.get("nccl", ()))
        return {**self.environment, **{name: value for name, _, value in pairs}}

    def changes(self) -> Changes:
        """The changes for a replay of a recording of any trial with the same program."""
        given = self.options
        return Changes(
            cluster=None if given.cluster is None else str(given.cluster),
            gpu=None if given.gpu is None else str(given.gpu),
            as_run=True,
            host=given.host,
            kernel_times=tuple(given.kernel_times),
            nccl=self.replayed.get("nccl", ()),
            network=self.replayed.get("set_network", ()),
            slow=self.replayed.get("slow_gpu", ()),
            fault=tuple(given.fault),
            faults=None if given.faults is None else str(given.faults),
        )

    def command(self, recording: Path | None) -> str:
        """The command for a shell that runs or replays the trial."""
        if not self.can_run and recording is not None:
            return shlex.join(["phantora-async", "replay", str(recording), *self._replay_flags()])
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.run_environment().items()]
        started = self.started(self.options).given()
        given = {name: value for name, value in started.items() if name not in ("show_ranks", "progress")}
        launcher = given.pop("launcher", False)
        words = [word for name, value in given.items() for word in _flags(name, value)]
        words += ["--launcher", "--"] if launcher else []
        words += [str(self.options.script), *self.options.arguments]
        return " ".join([*settings, shlex.join(["phantora-async", "run", *words])])

    def _replay_flags(self) -> list[str]:
        given = self.options.given()
        found = [word for name in OF_MACHINE if name in given for word in _flags(name, given[name])]
        for name, texts in self.replayed.items():
            found += [word for text in texts for word in (f"--{name.replace('_', '-')}", text)]
        return found


def _flags(name: str, value: Any) -> list[str]:
    option = OPTIONS[name]
    if option.kind is Kind.SWITCH:
        return [option.flags[0]]
    values = value if option.kind is Kind.TEXTS else [value]
    return [word for one in values for word in (option.flags[0], str(one))]


def identifier(key: str) -> str:
    """The name of a setting in expressions: ``micro_batch_size`` for ``--micro-batch-size``."""
    return re.sub(r"\W", "_", key.strip("-$="))


def name_of(chosen: Mapping[str, Value]) -> str:
    """The name of a trial with these settings: ``batch=2 gpu=h100 NCCL_ALGO=Ring``."""
    parts = []
    for key, value in chosen.items():
        text = " ".join(value) if isinstance(value, list) else str(value).lower() if value in (True, False) else value
        if key in REPLAYED:
            parts.append(f"{text}")
        else:
            parts.append(f"{key.strip('-$=')}={text}")
    return " ".join(filter(None, parts)) or "as it is"


@cache
def own_version() -> str:
    """A digest of this package's sources, cost models and tables: what it predicts may change with each of them."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[3]
    for room in ("phantora_async", "emu", "netsim", "formats", "profiles"):
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def torch_version(python: str | None) -> str:
    """The version of PyTorch that an interpreter has; empty if it has none. None: this interpreter."""
    if python is None:
        try:
            return version("torch")
        except PackageNotFoundError:
            return ""
    command = [python, "-c", "import importlib.metadata; print(importlib.metadata.version('torch'))"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""  # the run says what is wrong with it


def _content(path: str) -> str:
    """The digest of a file's content; the name itself if it is no file."""
    try:
        return hashlib.sha256(read_bytes(Path(path), MOST_DATA_NBYTES)).hexdigest()
    except OSError:
        return path


def _digest(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, default=str, sort_keys=True).encode()).hexdigest()[:16]
