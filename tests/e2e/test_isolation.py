"""Emulated servers in namespaces of their own: what a server sees of the others, and what a run leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, Finished, Run, needs_torch

pytestmark = pytest.mark.torch
NOBODY = 65534
ROOT = Path(__file__).parents[2]


@contextmanager
def listening() -> Iterator[int]:
    """A port of this machine on which a program listens."""
    with socket.create_server(("0.0.0.0", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


def skip_if_forbidden(done: Finished) -> None:
    if done.exit_code == 69 and "--isolation full: " in done.output:
        pytest.skip(next(line for line in done.output.splitlines() if "--isolation full: " in line))


def seen_by_ranks(log: str) -> dict[str, Any]:
    line = next(line for line in log.splitlines() if line.startswith("{"))
    return dict(json.loads(line))


def check_isolated(found: dict[str, Any]) -> None:
    """Checks what four ranks on two servers have found."""
    ranks = found["ranks"]
    assert found["sum"] == 4.0
    assert any(name.startswith("pt_nccl_") for name in found["threads"]), "the watchdog has a name in each version"
    assert [rank["host"] for rank in ranks] == ["node000", "node000", "node001", "node001"]
    assert {rank["master"] for rank in ranks} == {"node000"}
    for kind in ("user", "mnt", "uts", "pid", "ipc", "net"):
        first, second, third, fourth = (rank["namespaces"][kind] for rank in ranks)
        assert first == second != third == fourth, kind
        assert os.readlink(f"/proc/self/ns/{kind}") not in (first, third), kind
    for rank in ranks:
        assert rank["traces"] == [f"trace-of-{rank['host']}"] * 2, "/tmp and /dev/shm are private"
        assert rank["shared"] == ["shared-by-node000", "shared-by-node001"], "the working directory is shared"
        assert rank["addresses"] == ["10.77.0.1", "10.77.0.2"]
        assert rank["interfaces"] == ["eth0", "lo"]
        assert rank["system"] == "OSError", "/usr is read-only"
        assert rank["asks another server"] == "nothing"
        assert rank["outside"] == "ConnectionRefusedError", "127.0.0.1 is the server itself"
    assert [rank["ranks seen"] for rank in ranks] == [["rank0", "rank1"]] * 2 + [["rank2", "rank3"]] * 2
    assert ranks[3]["greeting"] == "node000", "the same port is bound on both servers"


def test_servers_see_nothing_of_each_other(run: Run, tmp_path: Path) -> None:
    with listening() as port:
        options = ("--isolation", "full", "--nproc-per-node", "2")
        done = run("servers.py", str(port), str(tmp_path), n=4, options=options)
    skip_if_forbidden(done)
    assert done.exit_code == 0, done.output
    check_isolated(seen_by_ranks(done.log(0)))
    assert not Path("/tmp/trace-of-node000").exists()


@pytest.mark.parametrize("network", ["private", "host"])
def test_a_rank_changes_no_files_of_the_kernel_or_of_other_servers(run: Run, network: str) -> None:
    options = ("--isolation", "full", "--nproc-per-node", "1", "--network", network)
    done = run("intruder.py", n=2, options=options)
    skip_if_forbidden(done)
    assert done.exit_code == 0, done.output
    for rank in range(2):
        assert json.loads(done.log(rank)) == []


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Not in /tmp, of which servers have one of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for made in (".cache/torch", ".config", ".ssh", "bin", "results/first", "given", "models"):
            (folder / made).mkdir(parents=True)
        for made in (".bashrc", ".ssh/authorized_keys", "bin/tool", "given/file", "notes"):
            (folder / made).touch()
        monkeypatch.setenv("HOME", name)
        monkeypatch.setenv("HF_HOME", f"{name}/models")
        yield folder


def test_the_home_folder_is_read_only_but_for_what_the_run_needs(run: Run, home: Path) -> None:
    """The user's own, that of a machine's administrator being another one."""
    options = ("--isolation", "full", "--write", str(home / "given"))
    done = run("homely.py", f"--out={home}/results/second", n=1, options=options)
    skip_if_forbidden(done)
    found = json.loads(next(line for line in done.log(0).splitlines() if line.startswith("{")))
    caches, outputs = [".cache", ".cache/torch", "models"], ["results", "results/first"]
    assert sorted(found["written"]) == sorted([*caches, *outputs, "given", "given/file", "working directory"])
    families = ("AF_UNIX", "AF_INET", "AF_INET6")
    assert found["sockets"] == [f"{family} SOCK_{kind}" for family in families for kind in ("STREAM", "DGRAM")]
    assert found["taken"] == []
    assert (home / "results" / "second").is_dir()
    assert not (home / "left.py").exists()
    assert done.exit_code == 1
    assert "--write PATH, an existing folder, permits more" in done.output


def test_with_this_machine_s_network(run: Run, tmp_path: Path) -> None:
    with listening() as port:
        options = ("--isolation", "full", "--network", "host", "--nproc-per-node", "1")
        done = run("servers.py", str(port), str(tmp_path), n=1, options=options)
    skip_if_forbidden(done)
    assert done.exit_code == 0, done.output
    (rank,) = seen_by_ranks(done.log(0))["ranks"]
    assert rank["outside"] == ""
    assert rank["namespaces"]["net"] == os.readlink("/proc/self/ns/net")
    assert (rank["host"], rank["addresses"]) == ("node000", ["127.0.0.1"])


def test_without_isolation(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import os, socket\nprint('AT', socket.gethostname(), os.environ['MASTER_ADDR'])\n")
    done = run(script, n=1, options=("--isolation", "none"))
    assert done.exit_code == 0, done.output
    assert f"AT {socket.gethostname()} 127.0.0.1" in done.log(0)


def ordinary_users_python(environment: dict[str, str]) -> str:
    """An interpreter that an ordinary user can execute, with what this one has. Skips the test if there is none."""
    if os.getuid() != 0:
        return RANKS_PYTHON
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, *filter(None, [shutil.which(here, path="/usr/local/bin:/usr/bin")])):
        try:
            look = [python, "-c", "import torch, uvloop, numpy, pyroute2"]
            if (
                subprocess.run(
                    look, user=NOBODY, group=NOBODY, extra_groups=[], env=environment, check=False
                ).returncode
                == 0
            ):
                return python
        except PermissionError:
            continue
    pytest.skip("the tests run as root, and no interpreter with torch can be executed by another user")


def test_as_an_ordinary_user(tmp_path: Path) -> None:
    needs_torch()
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path), *packages])}
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    environment["HOME"] = str(folder)
    try:
        python = ordinary_users_python(environment)
        os.chown(folder, NOBODY if os.getuid() == 0 else -1, -1)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        with listening() as port:
            command = [python, "-m", "phantora_async", "run", "-n", "4", "--nproc-per-node", "2", "--isolation", "full"]
            command += ["--run-dir", str(folder / "run"), str(SCRIPTS / "servers.py"), str(port), str(folder)]
            done = subprocess.run(
                command, env=environment, cwd=folder, capture_output=True, text=True, check=False, **user
            )
        finished = Finished(done.stdout + done.stderr, done.returncode, run_dir=folder / "run")
        skip_if_forbidden(finished)
        assert finished.exit_code == 0, finished.output
        check_isolated(seen_by_ranks(finished.log(0)))
    finally:
        shutil.rmtree(folder)


WITHOUT_USER_NAMESPACES = """
import os, sys
from pathlib import Path
from emu.contract import namespaces
namespaces.unshare(namespaces.USER, "a user namespace")
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {sys.argv[1]} 1")
Path("/proc/self/gid_map").write_text(f"0 {sys.argv[2]} 1")
Path("/proc/sys/user/max_user_namespaces").write_text("0")
os.execv(sys.executable, [sys.executable, "-m", "phantora_async", *sys.argv[3:]])
"""


@pytest.mark.parametrize("level", ["auto", "full"])
def test_where_user_namespaces_are_forbidden(tmp_path: Path, level: str) -> None:
    """They are forbidden by the setting of a user namespace around the command: that of this machine stays as it is."""
    needs_torch()
    script = tmp_path / "empty.py"
    script.write_text("print('RAN')\n")
    command = [sys.executable, "-c", WITHOUT_USER_NAMESPACES, str(os.getuid()), str(os.getgid()), "run", "-n", "1"]
    command += ["--python", RANKS_PYTHON, "--isolation", level, "--run-dir", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if "Error" in output and done.returncode == 1:
        pytest.skip(f"no user namespace can be made here: {output.splitlines()[-1]}")
    reason = "cannot make a user namespace: No space left on device (user.max_user_namespaces is 0)"
    assert reason in output
    assert done.returncode == (0 if level == "auto" else 69), output
    assert ("RAN" in output) == (level == "auto")


def test_what_is_simulated_does_not_depend_on_isolation(run: Run, shared_run: Run) -> None:
    full = run("determinism.py", n=4, options=("--isolation", "full", "--nproc-per-node", "2"))
    skip_if_forbidden(full)
    assert full.exit_code == 0, full.output
    none = shared_run("determinism.py", n=4, options=("--nproc-per-node", "2", "--isolation", "none"))
    assert none.exit_code == 0, none.output
    assert json.dumps(full.simulated, sort_keys=True) == json.dumps(none.simulated, sort_keys=True)


@pytest.mark.parametrize("ends", ["well", pytest.param("badly", marks=pytest.mark.thorough)])
def test_nothing_is_left(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """Neither mounts nor interfaces nor files are left; `run` checks processes."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("TMPDIR", str(runtime))

    def state() -> list[object]:
        return [Path("/proc/self/mountinfo").read_text(), sorted(socket.if_nameindex()), os.listdir(runtime)]

    mark = f"left-by-{os.getpid()}"
    script = tmp_path / "leaves.py"
    script.write_text(
        "import sys, subprocess, pathlib\n"
        f"pathlib.Path('/dev/shm/{mark}').touch()\npathlib.Path('/tmp/{mark}').touch()\n"
        f"subprocess.Popen(['sleep', '1000'])\nsys.exit({0 if ends == 'well' else 3})\n"
    )
    before = state()
    done = run(script, n=4, options=("--nproc-per-node", "2", "--isolation", "full"))
    skip_if_forbidden(done)
    assert done.exit_code == (0 if ends == "well" else 3), done.output
    assert state() == before
    assert not Path("/dev/shm", mark).exists()
    assert not Path("/tmp", mark).exists()


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """The list of a control group that permits four processes."""
    groups = Path("/sys/fs/cgroup")
    group = next((groups / name for name in ("pids", "") if (groups / name / "cgroup.procs").is_file()), groups) / "few"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error.strerror}")
    try:
        if not (group / "pids.max").is_file():
            pytest.skip("control groups do not count processes here")
        (group / "pids.max").write_text("4")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def test_where_no_process_can_be_started(tmp_path: Path, few_processes: Path) -> None:
    run = f"{sys.executable} -m phantora_async run -n 4 --python {RANKS_PYTHON} {SCRIPTS / 'servers.py'}"
    command = f"echo $$ > {few_processes} && exec {run} --run-dir {tmp_path / 'run'}"
    # NumPy's BLAS has a thread for each core of the machine, and interrupts its process if it gets none.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 69, done.stderr
    assert "no further process or thread" in done.stderr
    assert "Traceback" not in done.stderr
    assert not few_processes.read_text()
