"""Takes snapshots of virtual time and the network at one instant, and has the report made of them."""

from __future__ import annotations

from collections.abc import Sequence

from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.coordinator.restarts import Restart
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.report import Document, Seen, Usage, build
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import Timeline


def whole_report(
    spec: RunSpec,
    timeline: Timeline,
    fact_builder: FactBuilder,
    network: NetsimNetworkModel,
    usage: Usage,
    restarts: Sequence[Restart] = (),
    exit_code: int = 0,
    failure: Document | None = None,
    stopped: Document | None = None,
    reasons: Document | None = None,
    folding: Document | None = None,
) -> Document:
    """Builds the report of the run until now. `failure`, `stopped`: see ``report.build``; `reasons`, `folding`: see
    ``report.Seen``.
    """
    traffic = network.traffic()
    seen = Seen(
        timeline.snapshot(),
        timeline.activity(),
        timeline.generation(),
        traffic,
        network.links_of(traffic.links),
        [restart._asdict() for restart in restarts],
        reasons,
        folding,
    )
    return build(spec, seen, fact_builder, usage, exit_code, failure, stopped)
