"""Explicit graphs."""

from __future__ import annotations

from netsim.spec import FieldError, Table
from netsim.topology import Topology


def from_table(table: Table) -> Topology:
    """The topology in ``[network.graph]``."""
    raise FieldError(table.name, "explicit graphs are not supported yet")
