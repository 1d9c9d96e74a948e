"""The errors in a network, a flow or a question about them."""

from __future__ import annotations


class NetsimError(Exception):
    """Base of every error a caller of netsim can meet."""


class SpecError(NetsimError, ValueError):
    """A network description is not valid; the message names the field (and the line, if it came from a file)."""


class TopologyError(NetsimError, ValueError):
    """An endpoint, link or route that does not exist was asked for."""


class FlowError(NetsimError, ValueError):
    """A flow that cannot exist was given: negative bytes, unknown link, a zero weight, a key used twice."""


class CommittedError(NetsimError, ValueError):
    """Something before the committed horizon was asked for or changed."""
