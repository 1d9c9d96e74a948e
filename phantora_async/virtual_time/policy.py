"""Decides when the simulation goes ahead of global virtual time. Results are the same under every policy."""

from __future__ import annotations

from phantora_async.virtual_time.timeline import Stop, Timeline

ON_DEMAND, EAGER, NEVER = "on-demand", "eager", "never"
POLICIES = (ON_DEMAND, EAGER, NEVER)
LOOK_TURNS = 2_000
"""The most events that are simulated for one look ahead: some 20 ms."""
LOOK_SHARE = 5
"""A look ahead takes at most a fifth of the events simulated since the one before: if all of it proved wrong, a sixth
of all work would be done again."""


class SpeculationPolicy:
    """Runs a timeline: ``eager`` ahead whenever a rank's next fact is missing, ``on-demand`` only for looks ahead,
    ``never`` not at all.
    """

    def __init__(self, timeline: Timeline, name: str) -> None:
        if name not in POLICIES:
            raise ValueError(f"speculation {name!r}: expected one of {', '.join(POLICIES)}")
        self._timeline = timeline
        self._name = name
        self._looked_at = 0
        self._seen_ns = -1

    def run(self, budget: int) -> Stop:
        """Runs the timeline for up to `budget` events, as ``Timeline.run`` does."""
        return self._timeline.run(budget, ahead=self._name == EAGER)

    def look_ahead(self) -> None:
        """Looks ahead for somebody who wants to see where the run is going. To be called at regular intervals.

        If global virtual time has not moved since the last call, a little of what is known is simulated past the rank
        that holds it.
        """
        moved = self._timeline.now_ns != self._seen_ns
        self._seen_ns = self._timeline.now_ns
        if moved:
            return
        events = self._timeline.events
        budget = min((events - self._looked_at) // LOOK_SHARE, LOOK_TURNS)
        if self._name == ON_DEMAND and budget:
            self._timeline.run(budget, ahead=True)
            self._looked_at = self._timeline.events
