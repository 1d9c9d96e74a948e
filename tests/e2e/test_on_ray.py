"""Servers as actors of a Ray cluster: some nodes on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, Finished, Run, needs_torch

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
NODES = 2
GPUS = 2
"""The number of GPUs of each node's server."""
NODE_NBYTES = 3 << 30
OBJECTS_NBYTES = 80 << 20
"""Ray takes no less."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    needs_torch()
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": OBJECTS_NBYTES, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "memory": 1 << 29, **small})
    try:
        found.nodes = [
            found.add_node(num_cpus=1, memory=NODE_NBYTES, object_store_memory=OBJECTS_NBYTES) for _ in range(NODES)
        ]
        yield found
    finally:
        found.shutdown()


def start(cluster: Any, folder: Path, script: Path) -> subprocess.Popen[str]:
    given = ["run", "-n", str(NODES * GPUS), "--nproc-per-node", str(GPUS), "--on", "ray"]
    given += ["--run-dir", "run", "--python", RANKS_PYTHON]
    return subprocess.Popen(
        [sys.executable, "-m", "phantora_async", *given, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=os.environ | {"RAY_ADDRESS": cluster.address},
    )


def finish(process: subprocess.Popen[str], folder: Path) -> Finished:
    output, _ = process.communicate()
    report = folder / "run" / "report.json"
    document = json.loads(report.read_text()) if report.exists() else {}
    return Finished(output, process.returncode, document, folder / "run")


def test_several_nodes_give_the_result_of_one_machine(cluster: Any, tmp_path: Path, shared_run: Run) -> None:
    several = finish(start(cluster, tmp_path, SCRIPTS / "determinism.py"), tmp_path)
    assert several.exit_code == 0, several.output
    assert f"Ray runs the servers on {NODES} machines" in several.output
    one = shared_run("determinism.py", n=NODES * GPUS, options=("--nproc-per-node", str(GPUS), "--isolation", "none"))
    assert one.exit_code == 0, one.output
    differing = {part for part, value in one.simulated.items() if several.simulated.get(part) != value}
    assert not differing, {part: (several.simulated[part], one.simulated[part]) for part in differing}


def test_trials_of_a_sweep_are_tasks(cluster: Any, tmp_path: Path) -> None:
    """Two runs and a replay; what does not fit says so, though its task ran elsewhere."""
    study = tmp_path / "study.toml"
    study.write_text(f"""
        [run]
        script = "{SCRIPTS / "sized.py"}"
        python = "{RANKS_PYTHON}"
        cluster = "dgx-h100"
        [grid]
        "--fill-gib" = [0, 90]
        set_network = ["", "server.gpu_gbps=100"]
    """)
    done = subprocess.run(
        [sys.executable, "-m", "phantora_async", "sweep", str(study), "--on", "ray", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RAY_ADDRESS": cluster.address},
    )
    assert done.returncode == 0, done.stderr
    told = {one["trial"]: (one["how"], one["state"]) for one in json.loads(done.stdout)["trials"]}
    assert told["fill-gib=0"] == ("run", "done")
    assert told["fill-gib=0 server.gpu_gbps=100"] == ("replay", "done")
    assert told["fill-gib=90"] == ("run", "out of memory")


def test_a_node_that_dies_ends_the_run(cluster: Any, tmp_path: Path) -> None:
    """The last test of this file: the cluster has one node less then."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = tmp_path / "waits.py"
    script.write_text(
        "import threading, torch\ntorch.zeros(1, device='cuda')\n"
        f"open({str(ready)!r}, 'w').write('rank\\n')\nthreading.Event().wait()\n"
    )
    process = start(cluster, tmp_path, script)
    with ready.open("r+b", buffering=0) as arrived:
        assert [arrived.readline() for _ in range(NODES * GPUS)] == [b"rank\n"] * NODES * GPUS
    cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
    done = finish(process, tmp_path)
    assert done.exit_code == 70, done.output
    assert "(emulated server " in done.output
    assert "Ray: the node has died" in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--on", "slurm"), 2, "expected ray, or ray://HOST:PORT"),
        (("--on", "ray://host"), 2, "expected HOST:PORT"),
        (("--ray-env", "x.json"), 2, "--ray-env needs --on"),
        (("--on", "ray", "--ray-env", "missing.json"), 2, "--ray-env missing.json: No such file"),
        (("--on", "ray", "--ray-env", "x.json"), 2, "--ray-env x.json: expected a JSON object"),
        (("--on", "ray", "--isolation", "full"), 2, "--on: isolated servers of several machines"),
        (("--on", "ray"), 69, "no Ray cluster at 127.0.0.1:1: Connection refused"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    if code == 69:
        pytest.importorskip("ray")
    (tmp_path / "x.py").touch()
    (tmp_path / "x.json").write_text("[]")
    done = subprocess.run(
        [sys.executable, "-m", "phantora_async", "run", *arguments, "x.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"RAY_ADDRESS": "127.0.0.1:1"},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
