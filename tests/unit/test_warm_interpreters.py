"""Which runs may share an interpreter that is kept, and who can reach it."""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path

import psutil
import pytest

from emu.contract.messages import ControlSocket
from phantora_async.launch import warm_interpreters
from phantora_async.launch.forker_process import LIBRARIES

PYTHON = Path("/usr/bin/python3")


def name(**more: str) -> str:
    return warm_interpreters._name(PYTHON, {"HOME": "/root", "LD_LIBRARY_PATH": f"{LIBRARIES}:/opt/lib", **more})


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING", "X"])
def test_another_environment_needs_another_interpreter(variable: str) -> None:
    assert len({name(), name(**{variable: "1"}), name(**{variable: "2"})}) == 3


@pytest.mark.parametrize("variable", ["OLDPWD", "PWD", "PYTEST_CURRENT_TEST", "SHLVL", "_"])
def test_what_a_shell_changes_with_each_command_does_not_matter(variable: str) -> None:
    assert name(**{variable: "/somewhere"}) == name()


def test_another_interpreter_has_another_name() -> None:
    assert warm_interpreters._name(Path("/opt/python"), {}) != warm_interpreters._name(PYTHON, {})


@pytest.mark.parametrize(
    ("path", "depends"), [("/a:/b", False), ("/a:b", True), ("/a:", True), (".", True), ("../x", True)]
)
def test_the_working_directory_matters_where_a_path_begins_there(
    path: str, depends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = name(PYTHONPATH=path)
    monkeypatch.chdir(tmp_path)
    assert (name(PYTHONPATH=path) != before) == depends


def test_a_library_without_a_path_is_looked_for_in_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = name(LD_PRELOAD="libphantora_receive.so.1")
    monkeypatch.chdir(tmp_path)
    assert name(LD_PRELOAD="libphantora_receive.so.1") == before


def test_what_processes_inherit_matters() -> None:
    before = warm_interpreters.attributes()
    assert warm_interpreters.attributes() == before, "nothing of it changes by itself"
    mask = os.umask(0o077)
    try:
        assert warm_interpreters.attributes() != before
    finally:
        os.umask(mask)
    handler = signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # as SIGHUP is under nohup
    try:
        assert warm_interpreters.attributes() != before
    finally:
        signal.signal(signal.SIGUSR2, handler)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert warm_interpreters.attributes() != before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    cpus = os.sched_getaffinity(0)
    if len(cpus) > 1:
        os.sched_setaffinity(0, {min(cpus)})
        try:
            assert warm_interpreters.attributes() != before
        finally:
            os.sched_setaffinity(0, cpus)
    process = psutil.Process()
    of_io = process.ionice()
    process.ionice(psutil.IOPRIO_CLASS_BE, 6)
    try:
        assert warm_interpreters.attributes() != before
    finally:
        process.ionice(of_io.ioclass, of_io.value)
    assert warm_interpreters.attributes() == before


def test_nobody_else_can_reach_the_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_interpreters, "PLACE", tmp_path)
    made = warm_interpreters.folder()
    assert made is not None
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o750)
    assert warm_interpreters.folder() is None, "the user's group could connect"
    made.rmdir()
    (tmp_path / "other").mkdir(mode=0o700)
    made.symlink_to(tmp_path / "other")
    assert warm_interpreters.folder() is None, "whoever made the link could change it"


def test_what_a_killed_keeper_has_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
    assert path.exists()
    assert warm_interpreters._connected(path) is None
    assert not path.exists()


def test_a_message_brings_its_descriptors() -> None:
    ours, theirs = map(ControlSocket, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    read, write = os.pipe()
    ours.send_with([read, write], "run", file="x")
    os.close(read)
    os.close(write)
    message, (read, write) = theirs.receive_with()
    assert message == {"event": "run", "file": "x"}
    os.write(write, b"through the pipe")
    assert os.read(read, 100) == b"through the pipe"
    assert not os.get_inheritable(read)
    ours.close()
    assert theirs.receive_with() == (None, [])
    theirs.close()
    os.close(read)
    os.close(write)
