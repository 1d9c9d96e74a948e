"""One run in this process, for the command line and for the process that ``run`` starts."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.files import write_whole
from phantora_async import garbage
from phantora_async.api.description import describe
from phantora_async.budget import broken_text, ended_over_budget
from phantora_async.config import Config, resolve
from phantora_async.errors import Interrupted, NotFoldable, NotWritten, OverBudget, PhantoraError, RunFailure
from phantora_async.options import RunOptions
from phantora_async.wording import short


@dataclass(frozen=True, slots=True)
class Executed:
    """A run that has ended, well or not, with its report."""

    config: Config
    report: dict[str, Any]
    run_failure: RunFailure | None
    """The failure of the run; None if the script ended well."""
    trace_unwritten: str
    """The reason why the trace is incomplete, else empty."""
    unrecorded: str
    """The reason why there is no recording, if there was to be one, else empty."""
    report_unwritten: str
    """The reason why the report could not be written, else empty."""
    unplayed: PhantoraError | None = None
    """The reason why steps that were to be played from the recording were not; None if there is none."""

    @property
    def files(self) -> str:
        """Names the files to look at, in words."""
        return f"{short(self.config.report)}; {self._logs}"

    @property
    def _logs(self) -> str:
        return f"logs: {short(self.config.run_dir)}/rank*.log"

    @property
    def failure(self) -> PhantoraError | None:
        """The error for the user: why the run failed, or which of its files could not be written; its hint names the
        other files.
        """
        if self.run_failure is not None:
            self.run_failure.hint = f"{self.report_unwritten or f'report: {short(self.config.report)}'}; {self._logs}"
            return self.run_failure
        if self.trace_unwritten:
            return NotWritten(self.trace_unwritten, f"report: {self.files}")
        if self.unrecorded:
            assert self.config.record is not None
            text = f"there is no recording in {short(self.config.record)}: {self.unrecorded}"
            return NotWritten(text, f"report: {self.files}")
        if self.report_unwritten:
            return NotWritten(self.report_unwritten, f"its text is printed above; {self._logs}")
        if self.unplayed is not None:
            self.unplayed.hint = f"{self.unplayed.hint}; the report has the steps that were done: {self.files}"
            return self.unplayed
        if over := self._over_budget():
            return OverBudget(f"over budget: {over}", f"report: {self.files}")
        return None

    def _over_budget(self) -> str:
        from phantora_async.report import used_no_gpu

        budget = self.config.budget
        if budget.by_figure and used_no_gpu(self.report["simulated"]):
            return "no emulated GPU was used"
        text, step = broken_text(budget.rows(self.report)), ended_over_budget(self.report)
        return text if step is None else f"{text} in step {step}, after which the run ended"


def execute(options: RunOptions, interpreters: Path | None = None) -> Executed:
    """Runs the script to its end and writes the report. Raises PhantoraError if there is nothing to report.

    A folded run that finds that its mesh needs parts is done again with these; one whose replicas differ, with each of
    them simulated, if they are few. It takes the place of the first one, in its directory. `interpreters`: the folder
    of the interpreters that it shares with other runs of a session; None: it has one of its own.
    """
    began_ns = time.time_ns()
    executed = _once(options, began_ns, interpreters)
    while (changes := _otherwise(executed)) is not None:
        assert executed.run_failure is not None
        told = " ".join(f"--{name} '{text}'" for name, text in changes.items())
        print(f"phantora-async: {executed.run_failure.message}: again with {told}", file=sys.stderr)
        options = dataclasses.replace(options, run_dir=str(executed.config.run_dir), **changes)
        executed.config.claimed.lock.close()
        executed = _once(options, began_ns, interpreters)
    return executed


def _otherwise(executed: Executed) -> dict[str, Any] | None:
    """Options with which the run can be folded; None: it was, or cannot be."""
    failure = executed.run_failure
    if not isinstance(failure, NotFoldable):
        return None
    if failure.needs_each and not executed.config.each_if_they_differ:
        return None
    changes = {"fold": failure.finer} if failure.finer else {}
    if failure.needs_each:
        changes["replicas"] = "each"
    return changes or None


def kept(config: Config) -> Executed | None:
    """The earlier run of which nothing changed, as if it were this one; None: there is none, or the user wants none."""
    if not config.known:
        return None
    from phantora_async.api import known_runs
    from phantora_async.report import to_json

    answer = known_runs.answer(config)
    if answer is None:
        return None
    return Executed(config, answer, None, "", "", _write(config.report, to_json(answer)))


def show_remarks(config: Config) -> None:
    for remark in config.remarks:
        print(f"phantora-async: {remark}", file=sys.stderr)


def _once(options: RunOptions, began_ns: int, interpreters: Path | None) -> Executed:
    config = resolve(options)
    show_remarks(config)
    if (answered := kept(config)) is not None:
        return answered
    # Imported only when the options are known to be good: they take longer to import than everything else.
    with garbage.importing():
        import uvloop

        from phantora_async.recording import recorder
        from phantora_async.report import to_json
        from phantora_async.session import Session

    profile = None
    if config.options.profile_simulator:
        from phantora_async.bench.profile import SimulatorProfile

        profile = SimulatorProfile()
        profile.start()
    key = ""
    if config.known:
        from phantora_async.known.key import key_of

        key = key_of(config)  # what it is of may change while the job runs
    session = Session(config, profile.sample if profile is not None else None, interpreters)
    with _handlers_kept():
        outcome = uvloop.run(session.run())
        if profile is not None:
            profile.write(config.run_dir)
        report = outcome.report | {"run": describe(config, session.versions)}
        unrecorded = outcome.unrecorded
        if config.record is not None and not unrecorded and outcome.failure is None:
            unrecorded = _write(config.record / "run.json", to_json(report["run"]), private=True)
            if unrecorded:
                (config.record / recorder.FILE).unlink()  # it could not be replayed
        unplayed = None
        if config.all_steps and outcome.failure is None and not unrecorded:
            try:
                report |= _played(config, report)
            except PhantoraError as error:
                unplayed = error
        unwritten = _write(config.report, to_json(report))
        if config.known and outcome.failure is None and not unwritten:
            from phantora_async.api import known_runs

            known_runs.keep(config, to_json(report).decode(), session.notes, began_ns, key)
    if outcome.failure is not None:
        outcome.failure.details = _with_verdict(outcome.failure, report)
    return Executed(config, report, outcome.failure, outcome.unwritten, unrecorded, unwritten, unplayed)


def _with_verdict(failure: RunFailure, report: Mapping[str, Any]) -> str:
    """The failure's details, with the memory that is missing and what is known of the steps before."""
    from phantora_async.report import memory_notes, verdict_until_failure

    memory = report["simulated"]["memory"]
    missing = [] if memory["verdict"]["fits"] else memory_notes(memory)
    known = [] if isinstance(failure, Interrupted) else verdict_until_failure(report)  # `run` prints its whole report
    parts = [*missing[:1], *known, *missing[1:], failure.details]
    if failure.sides or failure.shows_ranks:  # which explain the message
        parts = [*missing, failure.details, *known]
    return "\n".join(filter(None, parts))


def _played(config: Config, report: dict[str, Any]) -> dict[str, Any]:
    """The parts of the report that differ with the steps that the record plays; none, if the script has ended before.
    Raises PhantoraError.
    """
    from phantora_async.api.replays import replayed
    from phantora_async.recording import load
    from phantora_async.replaying.machine import Changes

    assert config.record is not None, "steps are played from a record"
    if report["stopped"] is None:
        return {}
    longer, *_ = replayed(load(config.record), Changes(steps=config.all_steps), ())
    return {"simulated": longer.report["simulated"], "stopped": longer.report["stopped"]}


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Puts back the signal handlers that a session replaces, so that nothing interrupts the writing of the report."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(report: Path, content: bytes, *, private: bool = False) -> str:
    """Returns why it could not."""
    try:
        write_whole(report, content, private=private)
    except OSError as error:
        return f"cannot write the report {short(report)}: {error.strerror}"
    return ""
