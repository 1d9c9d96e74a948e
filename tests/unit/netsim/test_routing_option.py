"""The routing that a network description may name, and the routes that the command shows."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import netsim
from netsim import SpecError
from netsim.topology import ecmp
from phantora_async.commands import net as command
from phantora_async.errors import UsageError

TOML = """
[network]
routing = "ecmp"

[network.graph]
hosts = ["a", "b"]
switches = ["x", "y"]
link = [
  {from = "a", to = "x", gbps = 8}, {from = "x", to = "b", gbps = 8},
  {from = "a", to = "y", gbps = 8}, {from = "y", to = "b", gbps = 8},
]
"""
HASHED = f"a->{'xy'[ecmp(0, 1, 2)]}"
"""The first link of the route that the hash of both ends gives."""


def test_a_word_that_names_no_routing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text(TOML.replace('"ecmp"', '"random"'))
    with pytest.raises(SpecError, match=r"net\.toml:3: network\.routing: 'random' is not one of ecmp"):
        netsim.load(path)


def test_the_command_shows_each_flows_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both flows take the same route, and share its 1 byte/ns."""
    (tmp_path / "net.toml").write_text(TOML)
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ns,key\na,b,1000,0,first\na,b,1000,0,second\n")
    _command(tmp_path, "--json")
    content = json.loads(capsys.readouterr().out)
    assert [flow["choices"][0]["links"][0] for flow in content["statistics"]["flows"]] == [HASHED, HASHED]
    assert content["completion_ns"] == {"first": 2000, "second": 2000}


def _command(tmp_path: Path, *options: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--network", str(tmp_path / "net.toml"), "--flows", str(tmp_path / "flows.csv"), *options]
    assert command.run(parser.parse_args(words)) == 0


def test_the_command_refuses_a_wrong_word_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(TOML.replace('"ecmp"', "5"))
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ns\na,b,1000,0\n")
    with pytest.raises(UsageError) as caught:
        _command(tmp_path)
    assert "net.toml:3: network.routing: expected a non-empty string, found 5" in caught.value.message
