"""The programs that `profile --host` times, counted and timed in front of the hook library."""

from __future__ import annotations

import profiles
from phantora_async.config import find_python
from phantora_async.host_profile import measure

AGAIN = profiles.AGAIN


def test_programs_differ_in_how_long_ago_their_operators_ran() -> None:
    """Else the cost of an operator that has not run for a while cannot be told from that of any operator."""
    known = profiles.load_host("xeon-h200")
    programs = ("pointwise_8", "all_80", "transformer")
    measured = measure(find_python(None), 0, 2, known, lambda text: None, programs)
    assert measured.failed == {}
    assert {"pointwise_8", "all_80"} < set(measured.no_calls)
    assert "transformer" not in measured.no_calls
    assert set(measured.counts) == {name + which for name in programs for which in ("", AGAIN)}
    assert measured.detached_ns is not None
    assert set(measured.detached_ns) == set(measured.counts)
    aged = {
        name: (units.get("warm_op", 0) + units.get("cold_op", 0)) / units["op"]
        for name, units in measured.counts.items()
    }
    assert aged[f"pointwise_8{AGAIN}"] < 0.1 < aged["pointwise_8"] < 0.3
    assert aged[f"all_80{AGAIN}"] > 0.5
    assert aged["all_80"] > 0.5
    cold = {name: units.get("cold_op", 0) for name, units in measured.counts.items()}
    assert cold[f"transformer{AGAIN}"] < cold["transformer"]
