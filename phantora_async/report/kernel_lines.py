"""Adds to each cost signature of a report the line of the script at which it was launched."""

from __future__ import annotations

from collections.abc import Sequence

from phantora_async.ingest.costs import Costs
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.report.calls import Document


def add_lines(signatures: Sequence[Document], costs: Costs, fact_builder: FactBuilder) -> None:
    """Adds ``site``: the line at which the signature was launched first in a step, of the lowest rank that tells one;
    empty if none does. Work of a backward pass has the line that began it.
    """
    keys = {known.signature: key for key, known in costs.known.items()}
    for one in signatures:
        key = keys[one["signature"]]
        found = (
            fact_builder.site(rank, info.launches.sites[key])
            for rank, info in enumerate(fact_builder.rank_info)
            if key in info.launches.sites
        )
        one["site"] = str(next((site for site in found if site is not None), ""))
