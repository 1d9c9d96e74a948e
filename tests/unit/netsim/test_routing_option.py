"""How the routing is chosen, in a network description or on the command line, and how the choices are shown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import netsim
from netsim import AdaptiveNetwork, Network, RoutedNetwork, SpecError
from phantora_async.commands import net as command
from phantora_async.errors import UsageError
from tests.unit.netsim.adaptive_networks import CLUSTER, HASHED, OTHER

TOML = """
[network]
routing = "adaptive"

[network.graph]
hosts = ["a", "b"]
switches = ["x", "y"]
link = [
  {from = "a", to = "x", gbps = 8}, {from = "x", to = "b", gbps = 8},
  {from = "a", to = "y", gbps = 8}, {from = "y", to = "b", gbps = 8},
]
"""


def test_the_description_says_it_and_a_wrong_word_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text(TOML)
    topology = netsim.load(path)
    assert topology.describe()["routing"] == "adaptive"
    assert isinstance(netsim.routed_network(topology), AdaptiveNetwork)
    assert CLUSTER.routing == "adaptive"
    path.write_text(TOML.replace('"adaptive"', '"random"'))
    with pytest.raises(SpecError, match=r"net\.toml:3: network\.routing: 'random' is not one of ecmp, adaptive"):
        netsim.load(path)
    with pytest.raises(SpecError, match="routing: 'random' is not one of"):
        topology.routing = "random"


def test_networks_that_cannot_follow_it_say_so() -> None:
    for kind in (Network, RoutedNetwork):
        with pytest.raises(SpecError, match=r"network\.routing: \"adaptive\" is for"):
            kind(CLUSTER)


def test_the_command_shows_each_flows_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.toml").write_text(TOML)
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ns,key\na,b,1000,0,first\na,b,1000,0,second\n")
    done = {}
    for routing in ("", "adaptive", "ecmp"):
        _command(tmp_path, routing)
        assert f"{routing or 'adaptive'} routing" in capsys.readouterr().out
        _command(tmp_path, routing, "--json")
        content = json.loads(capsys.readouterr().out)
        shown = content["statistics"]
        assert shown["routing"] == content["network"]["routing"] == (routing or "adaptive")
        done[routing] = content["completion_ns"]
        links = [flow["choices"][0]["links"][0] for flow in shown["flows"]]
        assert links == ([HASHED, HASHED] if routing == "ecmp" else [HASHED, OTHER])
    assert done[""] == done["adaptive"] == {"first": 1000, "second": 1000}
    assert done["ecmp"] == {"first": 2000, "second": 2000}


def _command(tmp_path: Path, routing: str, *options: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--network", str(tmp_path / "net.toml"), "--flows", str(tmp_path / "flows.csv"), *options]
    assert command.run(parser.parse_args([*words, *(["--routing", routing] if routing else [])])) == 0


def test_the_command_refuses_a_wrong_word_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(TOML.replace('"adaptive"', "5"))
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ns\na,b,1000,0\n")
    with pytest.raises(UsageError) as caught:
        _command(tmp_path, "")
    assert "net.toml:3: network.routing: expected a non-empty string, found 5" in caught.value.message
