"""The trace of a run: its ranks' spans go to the writer of the form that was asked for, as they become final."""

from __future__ import annotations

import contextlib

from phantora_async.errors import ProtocolError
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.run_spec import RunSpec
from phantora_async.trace.chrome import ChromeFile
from phantora_async.trace.profile import Profile
from phantora_async.trace.rank_trace import RankTrace
from phantora_async.trace.spans import Span, Step
from phantora_async.trace.writing import Context, Writer
from phantora_async.trace_request import TraceRequest
from phantora_async.virtual_time import Event
from phantora_async.wording import short


class _ChromeFiles:
    """A ``Writer`` that has a file for each rank."""

    def __init__(self, request: TraceRequest, spec: RunSpec, context: Context) -> None:
        self._request = request
        self._spec = spec
        self._context = context
        self._files: dict[int, ChromeFile] = {}

    def add(self, rank: int, span: Span) -> None:
        file = self._files.get(rank)
        if file is None:
            file = self._files[rank] = ChromeFile(self._request.file(rank), rank, self._spec, self._context)
        file.add(span)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)


def _writer(request: TraceRequest, spec: RunSpec, context: Context) -> Writer:
    if not request.perfetto:
        return _ChromeFiles(request, spec, context)
    from phantora_async.trace.perfetto import PerfettoFile  # its messages take long to import

    return PerfettoFile(request.path, spec, context)


class RunTrace:
    """A ``Listener`` of virtual time: of the ranks that `--trace` asks for, and of those whose scripts run a profiler.

    ``failure`` says why the files are incomplete: then nothing more is written.
    """

    def __init__(self, spec: RunSpec, fact_builder: FactBuilder, context: Context) -> None:
        request = spec.trace
        self.failure = ""
        self.ranks: set[int] = set()
        self._request = request
        self._written = request.chosen() if request is not None else frozenset[int]()
        self._fact_builder = fact_builder
        self._context = context
        self._writer = _writer(request, spec, context) if request is not None else None
        self._traces: dict[int, RankTrace] = {}
        self._profiles: dict[int, Profile] = {}
        self.ranks |= self._written

    def on(self, rank: int, event: Event) -> None:
        """Handles an event of one of ``ranks``."""
        it = self._traces.get(rank)
        if it is None:
            it = self._traces[rank] = self._trace_of(rank)
        it.tell(event)

    def _trace_of(self, rank: int) -> RankTrace:
        info, profile = self._fact_builder.rank_info[rank], Profile(rank, self._context)
        self._profiles[rank] = profile

        def emit(span: Span) -> None:
            self._emit(rank, span)

        return RankTrace(rank, self._context.costs, info.trace_names, emit, profile.place)

    def take_answers(self) -> list[tuple[int, bytes]]:
        """The records for scripts' profilers since the last call, as (rank, encoded record)."""
        return [(rank, encoded) for rank, profile in self._profiles.items() for encoded in profile.take()]

    def _emit(self, rank: int, span: Span) -> None:
        request = self._request
        if self._writer is None or request is None or self.failure or rank not in self._written:
            return
        if isinstance(span, Step) and not request.first_step <= span.number <= request.last_step:
            return
        try:
            self._writer.add(rank, span)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.failure and self._request is not None:
            path = short(self._request.path)
            self.failure = f"the trace {path} is incomplete: {error.strerror or error}"

    def close(self) -> None:
        """The run has ended, however. What is not final is left out."""
        for it in self._traces.values():
            with contextlib.suppress(ProtocolError):
                it.close()
        try:
            if self._writer is not None:
                self._writer.close()
        except OSError as error:
            self._fail(error)
