"""The load of each expert, from ROUTING records to the report's text."""

from __future__ import annotations

import struct

import pytest

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.ingest.routing_loads import RoutingLoads
from phantora_async.report.routing import routing_document, routing_notes


def record(
    loads: list[int], *, layer: int = 0, calls: int = 1, text: bytes = b"a.py:3\nRouter\ntopk"
) -> records.Routing:
    payload = struct.pack(f"<{len(loads)}Q", *loads) + text
    (decoded,), _ = records.decode_up(records.Routing.encode(0, calls, layer, 2, len(loads), 0, payload=payload))
    assert isinstance(decoded, records.Routing)
    return decoded


def test_totals_replace_those_before_and_ranks_add_up() -> None:
    loads = RoutingLoads()
    loads.take(0, record([1, 1, 1, 1]))
    loads.take(0, record([2, 2, 2, 2], calls=2))
    loads.take(1, record([8, 0, 0, 0], calls=2))
    loads.take(1, record([1, 0, 0, 1], layer=1))
    (place,) = routing_document("zipf:1", loads)["places"]
    assert (place["line"], place["module"], place["operation"]) == ("a.py:3", "Router", "topk")
    assert (place["chosen"], place["candidates"], place["ranks"]) == (2, 4, 2)
    assert place["layers"] == [
        {"layer": 0, "calls": 4, "loads": [10, 2, 2, 2]},
        {"layer": 1, "calls": 1, "loads": [1, 0, 0, 1]},
    ]


def test_the_text_names_policy_place_and_loads() -> None:
    loads = RoutingLoads()
    loads.take(0, record([3, 1, 0, 0]))
    heading, line = routing_notes(routing_document("zipf:1", loads))
    assert "zipf:1 (--moe)" in heading
    assert "Router (a.py:3): topk chooses 2 of 4" in line
    assert "3.00 times the mean load" in line
    assert line.endswith("75.0% 25.0% 0.0% 0.0%")


def test_what_a_script_chooses_itself_is_no_routing() -> None:
    loads = RoutingLoads()
    loads.take(0, record([1, 1, 1, 1], text=b"sample.py:9\n\ntopk"))
    heading, line = routing_notes(routing_document("balanced", loads))
    assert heading.startswith("choices of the script itself, such as a class or the next token: ")
    assert line == "  sample.py:9: topk chooses 2 of 4"


def test_the_text_of_many_experts_is_short() -> None:
    loads = RoutingLoads()
    loads.take(0, record([100] + [10] * 200 + [0] * 54 + [400]))
    document = routing_document("zipf:1", loads)
    _, line = routing_notes(document)
    assert line.endswith(
        "load per expert: 16.0% (expert 255), 4.0% (expert 0), 0.4% (expert 1), 0.4% (expert 2) ... "
        "median 0.40%, least 0.00%, 54 of 256 get nothing"
    )
    assert len(document["places"][0]["layers"][0]["loads"]) == 256


def test_classes_that_a_module_chooses_are_not_called_experts() -> None:
    loads = RoutingLoads()
    loads.take(0, record([3] + [1] * 91, text=b"detr.py:138\nSetCriterion\nargmax"))
    heading, line = routing_notes(routing_document("balanced", loads))
    assert heading.startswith("choices of modules, such as a class or an expert: scores are not computed")
    assert "load per candidate: 3.2% (candidate 0), " in line


def test_counts_of_a_compiled_router() -> None:
    loads = RoutingLoads()
    loads.take(0, record([3, 1], text=b"a.py:3\n\nbincount"))
    _, line = routing_notes(routing_document("zipf:1", loads))
    assert "the script (a.py:3): bincount counts what a compiled kernel chose of 2;" in line


def test_a_run_without_routing_says_nothing() -> None:
    assert routing_notes(routing_document("balanced", RoutingLoads())) == []


@pytest.mark.parametrize("text", [b"", b"a.py:3", b"a\nb\nc\nd"])
def test_a_record_of_another_form_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        RoutingLoads().take(0, record([1, 1], text=text))
