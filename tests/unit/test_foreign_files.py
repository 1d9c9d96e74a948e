"""Files that a user names by mistake, or that somebody made to do harm: each command refuses them with a message."""

from __future__ import annotations

import gzip
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phantora_async import cli

MOST_CPU_S = 3.0
JOBS = Path(__file__).parents[2] / "examples" / "budgets.toml"
COMMANDS = {
    "report": ["report", "{}"],
    "compare": ["compare", "{}", "{}"],
    "validate": ["validate", "{}", "--script", __file__],
    "kernel times": ["run", "-n", "1", "--kernel-times", "{}", __file__],
    "gpu": ["run", "-n", "1", "--gpu", "{}", __file__],
    "network": ["net", "--network", "{}", "--flows", "{}"],
    "flows": ["net", "--network", "dgx-h200", "--flows", "{}"],
    "missing": ["profile", "--missing", "{}"],
    "lengths of responses": ["run", "-n", "1", "--lengths", "trace:{}", __file__],
    "loads of experts": ["run", "-n", "1", "--moe", "trace:{}", __file__],
    "merge": ["profiles", "merge", "{}", "{}", "-o", "{}.made.times"],
}


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


def named_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is at most 107 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path.name)
    finally:
        os.chdir(here)


ODD: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": named_socket,
    "a huge file": sparse,
    "no file": lambda path: None,
    "deep brackets": lambda path: path.write_bytes(b"[" * 100_000),
    "a deep table": lambda path: path.write_bytes(b"a=" + b"[" * 100_000),
    "a long key": lambda path: path.write_bytes(b".".join([b"a"] * 100_000) + b"=1"),
    "a long number": lambda path: path.write_bytes(b'{"schema": ' + b"9" * 100_000 + b"}"),
    "a long hexadecimal number": lambda path: path.write_bytes(b"name = 0x" + b"f" * 100_000 + b"\n"),
    "a long word": lambda path: path.write_bytes(b"x" * 1_000_000),
    "other bytes": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "no number": lambda path: path.write_bytes(b"NaN"),
}


def refused(capfd: pytest.CaptureFixture[str], command: list[str], path: Path) -> str:
    """Returns the message."""
    began_s = time.process_time()
    assert cli.run([word.format(path) for word in command]) == 2
    assert time.process_time() - began_s < MOST_CPU_S
    text = capfd.readouterr().err
    assert text.startswith("error: ")
    assert "Traceback" not in text
    assert len(text) < 1000
    return text


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_what_it_should_be(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, command: str, odd: str
) -> None:
    path = tmp_path / (
        "odd.times" if command in ("kernel times", "merge") else "odd.toml" if command == "gpu" else "odd"
    )
    ODD[odd](path)
    assert path.name in refused(capfd, COMMANDS[command], path)


@pytest.mark.parametrize(
    ("command", "odd"),
    [
        (["check", str(JOBS), "--baseline", "{}"], "a pipe"),
        (["check", str(JOBS), "--baseline", "{}"], "a device"),
        (["check", str(JOBS), "--baseline", "{}"], "a huge file"),
        (["run", "-n", "1", "--value", "{}:9=1", __file__], "a huge file"),
        (["run", "-n", "1", "{}"], "a pipe"),
        (["run", "-n", "1", "{}"], "a device"),
        (["run", "-n", "1", "{}"], "a socket"),
    ],
)
def test_a_file_that_may_be_missing_or_of_any_content(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], odd: str
) -> None:
    path = tmp_path / "odd"
    ODD[odd](path)
    assert path.name in refused(capfd, command, path)


@pytest.mark.parametrize("command", ["kernel times", "merge"])
def test_a_small_file_that_holds_gigabytes(capfd: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    path = tmp_path / "bomb.times.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(1 << 7):
            file.write(bytes(1 << 20))
    path.write_bytes(path.read_bytes() * 30)  # 3.75 GiB in 30 parts
    assert f"{path}: cannot be read: holds more than 64 MiB" in refused(capfd, COMMANDS[command], path)


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda content: content + b"garbage",
        lambda content: content[:-4],
        lambda content: content[:30] + b"\x00\xff\x00\xff" + content[34:],
        lambda content: b"no gzip",
    ],
)
def test_a_damaged_gzip_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, spoiled: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "odd.times.gz"
    path.write_bytes(spoiled(gzip.compress(b"phantora-kernel-times 2\norigin {}\n" * 100)))
    assert str(path) in refused(capfd, COMMANDS["merge"], path)


def test_references_of_yaml_make_no_endless_message(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "odd.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path.write_text("\n".join([*lines, "topology: [*a11]", "npus_count: [2]", "bandwidth: [1]", "latency: [1]"]))
    refused(capfd, COMMANDS["network"], path)


def test_a_name_that_no_file_can_have(capfd: pytest.CaptureFixture[str]) -> None:
    assert "File name too long" in refused(capfd, COMMANDS["report"], Path("x" * 300))
