"""Files that are damaged are used, or refused with one sentence that names the file; nothing else happens."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import netsim
from phantora_async import cli
from phantora_async.wording import printable
from profiles import ProfileError, load_cluster, load_gpu, load_host

from ..unit.report.test_report import document, train
from ..unit.virtual_time.scripted import scripts
from .damage import damaged_document, damaged_text, fuzz

PROFILES = Path(__file__).parents[2] / "profiles"
NETWORK = """\
[network.server]
kind = "nvswitch"
gpus = 4
gpu_gbps = 3200
nics = 2
nic_gbps = 400
[network.fabric]
kind = "leaf-spine"
servers_per_leaf = 1
oversubscription = 2.0
"""
GRAPH = """\
[network]
routing = "ecmp"
[network.graph]
hosts = ["a", "b"]
switches = ["s"]
[[network.graph.link]]
from = "a"
to = "s"
gbps = 100
latency_ns = 500
[[network.graph.link]]
from = "s"
to = "b"
gbps = 100
"""
ASTRA_SIM = "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50, 25]\nlatency: [500, 500]\n"
CSV = "src,dst,bytes,start_ns,key\n0,1,1000,0,a\n1,2,5000,100,b\nnode000/gpu3,0,1,7,c\n"
FLOWS = {
    "flows": [{"src": 0, "dst": 1, "bytes": 1000, "start_ns": 5, "key": "a"}, {"src": 1, "dst": 2, "bytes": 10}],
    "collectives": [{"op": "all_reduce", "bytes": 4096, "members": [0, 1, 2, 3], "start_ns": 5, "root": 0}],
    "faults": [{"link": "node000/gpu0:out", "at_ns": 1, "gbps": 0}, {"link": "leaf0:up0", "at_ns": 2, "latency_ns": 9}],
}


def report() -> dict[str, Any]:
    """Returns the report of a run that failed, with a warning and a text from the script."""
    made = document(*(train(script, 4, marked=True) for script in scripts(2)))
    made["failure"] = {"kind": "rank_died", "text": "rank 1 ended"}
    layers = [{"layer": 0, "calls": 3, "loads": [3, 5]}]
    place = {"module": "m", "line": "a.py:3", "operation": "topk", "chosen": 1, "candidates": 2, "layers": layers}
    made["simulated"]["routing"]["places"] = [place]
    made["simulated"]["warnings"] = [{"text": "careful", "ranks": [0, 1], "count": 3}]
    made["simulated"]["stated_values"] = [{"text": "a.py:3=0.5**n", "reads": 3, "computed": 1, "ranks": 2}]
    return made


REPORT = report()


def command(*arguments: str) -> tuple[int, str, str]:
    """Runs a command in this process; returns its exit code, stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(list(arguments))
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return str(path)


def check(code: int, out: str, err: str, *files: str) -> None:
    assert code in (0, 2), err
    assert printable(out + err) == out + err, "a terminal would obey this"
    if code == 2:
        assert err.startswith("error: "), err
        assert any(file in err for file in files), err
        assert len([line for line in err.splitlines() if not line.startswith("hint: ")]) == 1, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@fuzz(200)
@given(damaged=damaged_document(REPORT))
def test_reports_with_wrong_values(folder: Path, damaged: Any) -> None:
    path = write(folder, "report.json", json.dumps(damaged))
    check(*command("report", path), path)


@fuzz(80)
@given(text=damaged_text(json.dumps(REPORT, indent=2)))
def test_reports_with_wrong_text(folder: Path, text: str) -> None:
    path = write(folder, "report.json", text)
    check(*command("report", path), path)


@fuzz(120)
@given(text=damaged_text(CSV))
def test_flows_in_csv(folder: Path, text: str) -> None:
    network, flows = write(folder, "net.toml", NETWORK), write(folder, "flows.csv", text)
    check(*command("net", "--network", network, "--servers", "2", "--flows", flows), flows)


@fuzz(120)
@given(damaged=damaged_document(FLOWS))
def test_flows_in_json(folder: Path, damaged: Any) -> None:
    network, flows = write(folder, "net.toml", NETWORK), write(folder, "flows.json", json.dumps(damaged))
    check(*command("net", "--network", network, "--servers", "2", "--flows", flows), flows)


@fuzz(80)
@given(text=damaged_text(json.dumps(FLOWS, indent=1)))
def test_flows_in_damaged_json(folder: Path, text: str) -> None:
    network, flows = write(folder, "net.toml", NETWORK), write(folder, "flows.json", text)
    check(*command("net", "--network", network, "--servers", "2", "--flows", flows), flows)


@fuzz(120)
@given(text=st.one_of(damaged_text(NETWORK), damaged_text(GRAPH)))
def test_networks(folder: Path, text: str) -> None:
    network, flows = write(folder, "net.toml", text), write(folder, "flows.csv", "src,dst,bytes\n0,1,1000\n")
    check(*command("net", "--network", network, "--servers", "2", "--flows", flows), network, flows)


@fuzz(20)
@given(text=damaged_text(ASTRA_SIM))
def test_networks_of_astra_sim(folder: Path, text: str) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    network, flows = write(folder, "net.yaml", text), write(folder, "flows.csv", "src,dst,bytes\n0,1,1000\n")
    check(*command("net", "--network", network, "--flows", flows), network, flows)


@fuzz(80)
@given(data=st.data(), kind=st.sampled_from(["gpus/h200", "clusters/dgx-h200", "hosts/xeon-h200"]))
def test_descriptions(folder: Path, data: st.DataObject, kind: str) -> None:
    text = data.draw(damaged_text((PROFILES / f"{kind}.toml").read_text()))
    path = write(folder, "description.toml", text)
    fault = ""
    try:
        if kind.startswith("gpus"):
            load_gpu(path)
        elif kind.startswith("hosts"):
            load_host(path)
        else:
            netsim.Network(netsim.build(load_cluster(path).network, 2))
    except ProfileError as error:
        fault = str(error)
    except netsim.NetsimError as error:  # `run` puts the cluster's name in front
        fault = f"{path}: {error}"
    assert not fault or path in fault
