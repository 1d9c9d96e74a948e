"""The trace of a run: its ranks' spans go to the writer of the form that was asked for, as they become final."""

from __future__ import annotations

import contextlib

from phantora_async.errors import ProtocolError
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.run_spec import RunSpec
from phantora_async.trace.chrome import ChromeFile
from phantora_async.trace.rank_trace import RankTrace
from phantora_async.trace.spans import Span, Step
from phantora_async.trace.telling import TraceEvent
from phantora_async.trace.writing import Context, Writer
from phantora_async.trace_request import TraceRequest
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
    """A ``virtual_time`` trace. ``failure`` says why it is incomplete: then nothing more is written."""

    def __init__(self, request: TraceRequest, spec: RunSpec, fact_builder: FactBuilder, context: Context) -> None:
        self.ranks = request.chosen()
        self.failure = ""
        self._request = request
        self._fact_builder = fact_builder
        self._costs = context.costs
        self._writer = _writer(request, spec, context)
        self._ranks: dict[int, RankTrace] = {}

    def tell(self, rank: int, event: TraceEvent) -> None:
        """Of one of ``ranks``, each rank's events in order."""
        if self.failure:
            return
        it = self._ranks.get(rank)
        if it is None:
            names = self._fact_builder.rank_info[rank].trace_names

            def emit(span: Span) -> None:
                self._emit(rank, span)

            it = self._ranks[rank] = RankTrace(rank, self._costs, names, emit)
        it.tell(event)

    def _emit(self, rank: int, span: Span) -> None:
        if isinstance(span, Step) and not self._request.first_step <= span.number <= self._request.last_step:
            return
        try:
            self._writer.add(rank, span)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.failure:
            path = short(self._request.path)
            self.failure = f"the trace {path} is incomplete: {error.strerror or error}"

    def close(self) -> None:
        """The run has ended, however. What is not final is left out."""
        for it in self._ranks.values():
            with contextlib.suppress(ProtocolError):
                it.close()
        try:
            self._writer.close()
        except OSError as error:
            self._fail(error)
