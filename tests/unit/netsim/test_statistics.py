"""Statistics, traces, the net subcommand and its picture."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import netsim
from netsim import Group, Network, Topology
from netsim.tools import picture, stats, trace_files
from netsim.topology import graph
from phantora_async.commands import net as command
from phantora_async.errors import UsageError

STAR = """
[network.server]
kind = "host"
nics = 1
nic_gbps = 8.0
pcie_gbps = 80.0

[network.fabric]
kind = "switch"
"""


def _two_links() -> Network:
    links = [netsim.Link("wide", 16.0), netsim.Link("narrow", 8.0)]
    return Network(Topology(links, ["a", "b"], graph.GraphRouter((), {})))


def test_segments_and_bottlenecks() -> None:
    net = _two_links()
    net.add(Group(1000, ((0, 1), (1, 1))), 0, "both")
    net.add(Group(1500, ((0, 1),)), 500, "wide")
    net.advance(2000)
    taken = stats.take(net, bins=4)
    flows = {flow.key: flow for flow in taken.flows}
    assert [(s.from_ns, s.to_ns, s.gbps, s.bottleneck) for s in flows["both"].segments] == [(0, 1000, 8, "narrow")]
    assert [(s.from_ns, s.to_ns, s.gbps, s.bottleneck) for s in flows["wide"].segments] == [
        (500, 1000, 8, "wide"),
        (1000, 1500, 16, "wide"),
    ]
    wide, narrow = taken.links
    assert (wide.nbytes, wide.peak_flows, wide.peak_utilisation) == (2500, 2, 1.0)
    assert wide.timeline == (0.5, 1.0, 1.0, 0.0)
    assert wide.busiest == (("wide", 1500.0), ("both", 1000.0))
    assert (narrow.nbytes, narrow.utilisation, narrow.timeline) == (1000, 0.5, (1.0, 1.0, 0.0, 0.0))


def test_bytes_on_links_are_those_of_the_flows_whatever_the_order() -> None:
    answers = []
    for order in ((0, 1, 2), (2, 0, 1)):
        net = _two_links()
        for key in order:
            net.add(Group(1000 * (key + 1), ((key % 2, 2),)), 300 * key, key)
            net.advance(net.now_ns + 400)
        net.advance(20_000)
        answers.append(stats.take(net).json())
    assert answers[0] == answers[1]
    assert [link["nbytes"] for link in answers[0]["links"]] == pytest.approx([8000, 4000])


def _run(tmp_path: Path, flows: str, name: str = "flows.csv", *options: str) -> int:
    (tmp_path / "net.toml").write_text(STAR)
    (tmp_path / name).write_text(flows)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = ["--network", str(tmp_path / "net.toml"), "--flows", str(tmp_path / name), "--servers", "3", *options]
    return command.run(parser.parse_args(given))


def test_csv_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "src,dst,bytes,start_ns,key\n0,1,1000,0,first\nnode002/gpu0,1,1000,0,second\n"
    assert _run(tmp_path, rows) == 0
    assert "2 entries" in capsys.readouterr().out
    assert _run(tmp_path, rows, "flows.csv", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["completion_ns"] == {"first": 2000, "second": 2000}
    assert {link["name"] for link in content["network"]["links"]} >= {"node001/nic0:in"}


def test_json_trace_with_collectives_and_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        "flows": [{"src": 0, "dst": 1, "bytes": 1000, "start_ns": 0, "key": "flow"}],
        "collectives": [
            {"op": "all_gather", "bytes": 30_000_000, "members": [0, 1, 2], "start_ns": 10_000, "key": "ag"}
        ],
        "faults": [{"link": "node000/nic0:out", "at_ns": 500, "gbps": 0}],
    }
    assert _run(tmp_path, json.dumps(data), "flows.json") == 0
    out = capsys.readouterr().out
    assert "2 of them stall" in out
    assert out.count("stalls") == 2


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ("src,dst,bytes,start_ns\n0,9,1,0\n", "flows[0].dst: unknown endpoint 9"),
        ("src,dst,bytes,start_ns\n0,1,-1,0\n", "flows[0].bytes: expected a whole number from 0 to"),
        ("src,dst,bytes,start_ns\n0,1,1\n", "flows.csv:2: expected 4 fields, found 3"),
        (
            "src,dst,bytes,start_ns,key\n0,1,1,0,a\n0,1,1,0,a\n",
            "flows.csv:3: flows[1].key: the key 'a' is that of flows[0], too",
        ),
        ("src,dst,start_ns\n0,1,1\n", "flows.csv:1: bytes is missing"),
    ],
)
def test_bad_traces_say_what_is_wrong(tmp_path: Path, flows: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        _run(tmp_path, flows)
    assert words in caught.value.message
    assert "flows.csv" in caught.value.message


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    target = tmp_path / "heat.png"
    assert _run(tmp_path, "src,dst,bytes,start_ns\n0,1,1000,0\n", "flows.csv", "--plot", str(target)) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(netsim.NetsimError, match="nothing to draw"):
        picture.heat_map(stats.take(_two_links()), target)


def test_trace_entries_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[{"src": 0, "dst": 1, "bytes": 5, "start_ns": 0, "colour": 1}]')
    topology = netsim.build({"server": {"kind": "host", "gpus": 2}})
    with pytest.raises(netsim.SpecError, match=r"flows\[0\]\.colour: unknown key"):
        trace_files.read(tmp_path / "t.json", topology)
