"""Tables of descriptions and traces: their errors are SpecErrors that name the field."""

from __future__ import annotations

from formats.toml import Table
from netsim.errors import SpecError


class FieldError(SpecError):
    """A SpecError that names its field, so that the line of the file can be added (``formats.toml.Source.locate``)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class SpecTable(Table):
    """One table of a description; its getters raise FieldErrors."""

    def wrong(self, field: str, problem: str) -> FieldError:
        return FieldError(field, problem)
