"""The process tree without a coordinator: the launcher, the forker, servers and ranks, with a real torch."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from phantora_async.cli import Parser
from phantora_async.commands import run as run_command
from phantora_async.config import Config, resolve
from phantora_async.ingest.costs import CostTable
from phantora_async.launch.launcher import Launcher, plan_of
from phantora_async.launch.runtime import HOOK, make_runtime


@dataclass
class Ran:
    """The forker's messages, and the run's folder."""

    run_dir: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    def named(self, event: str) -> list[dict[str, Any]]:
        return [message for message in self.events if message["event"] == event]

    @property
    def exits(self) -> dict[int, tuple[int, int]]:
        """Return code and signal of each rank."""
        return {message["rank"]: (message["code"], message["signal"]) for message in self.named("exited")}

    def log(self, rank: int) -> str:
        return (self.run_dir / f"rank{rank}.log").read_text()


Jobs = Callable[..., Ran]


def configure(folder: Path, *options: str) -> Config:
    parser = Parser()
    run_command.add_arguments(parser)
    given = parser.parse_args(["--python", sys.executable, "--run-dir", str(folder / "run"), *options])
    return resolve(run_command.options_of(given))


async def run_processes(config: Config, on_event: Callable[[Launcher, dict[str, Any]], None] | None = None) -> Ran:
    """Runs the job to the end of its processes; `on_event` sees every message of the forker when it arrives."""
    runtime = make_runtime()
    launcher = Launcher(plan_of(config, runtime), runtime)
    ran = Ran(config.run_dir)
    CostTable(runtime.cost_table)
    listener = await asyncio.start_unix_server(_discard, runtime.socket)
    try:
        await launcher.start()
        async for event in launcher.events():
            ran.events.append(event)
            if on_event is not None:
                on_event(launcher, event)
    finally:
        listener.close()
        await launcher.close()
    return ran


async def _discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Listens and never answers, in the coordinator's place."""
    while await reader.read(1 << 16):
        pass
    writer.close()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """`job(source, *arguments, options=(), on_event=None)`: runs a script to the end of its processes."""
    if importlib.util.find_spec("torch") is None or not HOOK.exists():
        pytest.skip("needs a CUDA build of PyTorch and the built hook library")
    monkeypatch.chdir(tmp_path)

    def run_job(
        source: str,
        *arguments: str,
        options: tuple[str, ...] = (),
        on_event: Callable[[Launcher, dict[str, Any]], None] | None = None,
    ) -> Ran:
        (tmp_path / "script.py").write_text(source)
        config = configure(tmp_path, *options, "script.py", *arguments)
        return asyncio.run(run_processes(config, on_event))

    return run_job
