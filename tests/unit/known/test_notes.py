"""The preloaded library notes what a program does with files, and with others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from emu.contract import installed
from phantora_async.known import notes
from phantora_async.known.inputs import RELATIVE_LIBRARY
from phantora_async.known.notes import Flag, Notes

BEGIN = """
import ctypes, os, sys
library = ctypes.CDLL(None)
assert library.phantora_share_notes(os.fsencode(sys.argv[1])) == 0
library.phantora_note_program()
"""


def noted(folder: Path, program: str, **variables: str) -> Notes:
    """What a program in this folder does after the beginning of its notes."""
    file = folder.parent / "notes"
    environment = os.environ | variables | {installed.PRELOAD: str(installed.RECEIVE_LIBRARY)}
    command = [sys.executable, "-c", BEGIN + program, str(file)]
    subprocess.run(command, check=True, cwd=folder, env=environment)
    return notes.read(file, (), None, "")


def flags(found: Notes, path: Path) -> int:
    return found.paths.get(str(path), 0) & ~Flag.IMPORTED


def test_files_are_noted_by_what_is_done_with_them(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("read", "looked", "appended", "changed"):
        (work / name).touch()
    found = noted(
        work,
        "open('read').close()\n"
        "os.stat('looked'), os.path.exists('nothing')\n"
        "open('made', 'w').close(), open('made').close()\n"
        "open('appended', 'a').close()\n"
        "open('changed', 'r+').close()\n"
        "os.mkdir('folder'), os.listdir('folder')\n"
        "os.rename('looked', 'renamed'), os.unlink('read')\n",
    )
    assert found.unnoted == ""
    assert {
        name: flags(found, work / name) for name in ("read", "looked", "nothing", "made", "appended", "changed")
    } == {
        "read": Flag.READ | Flag.REMOVED,
        "looked": Flag.LOOKED | Flag.REMOVED,
        "nothing": Flag.MISSING,
        "made": Flag.FIRST_WRITTEN | Flag.WRITTEN | Flag.READ,
        "appended": Flag.WRITTEN,
        "changed": Flag.WRITTEN | Flag.READ,
    }
    assert flags(found, work / "folder") == Flag.WRITTEN | Flag.MISSING | Flag.LISTED
    assert flags(found, work / "renamed") == Flag.FIRST_WRITTEN | Flag.WRITTEN


def a_library() -> Path:
    """A library that no interpreter has loaded at its start."""
    return next(path for path in sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so")) if path.is_file())


def test_a_folder_that_a_program_changes_into_is_noted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "there").mkdir(parents=True)
    (work / "link").symlink_to("there")
    found = noted(work, "os.chdir('link'); os.path.exists('nothing')")
    assert flags(found, work / "link") == Flag.LOOKED
    assert flags(found, work / "there" / "nothing") == Flag.MISSING


def test_a_library_is_looked_for_in_folders_in_their_order(tmp_path: Path) -> None:
    work, library = tmp_path / "work", a_library()
    for name in ("first", "second", "third"):
        (work / name).mkdir(parents=True)
    for name in ("second", "third"):
        shutil.copy(library, work / name / "own.so")
    folders = ":".join(str(work / name) for name in ("first", "second", "third"))
    found = noted(work, "ctypes.CDLL('own.so'); os._exit(0)", LD_LIBRARY_PATH=folders)
    assert flags(found, work / "first" / "own.so") == Flag.MISSING
    assert flags(found, work / "second" / "own.so") == Flag.READ
    assert flags(found, work / "third" / "own.so") == 0
    assert RELATIVE_LIBRARY not in found.measured


def test_a_library_by_a_relative_path_is_an_obstacle(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(a_library(), work / "own.so")
    found = noted(work, "ctypes.CDLL('./own.so'); os._exit(0)")
    assert RELATIVE_LIBRARY in found.measured


def test_a_program_that_takes_no_notes_is_told_of(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = noted(work, "library.phantora_note_started(b'/usr/bin/python3')")
    assert "/usr/bin/python3" in found.started


def test_children_share_the_notes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = noted(
        work, "child = os.fork()\nif child == 0: os.path.exists('by child'); os._exit(0)\nos.waitpid(child, 0)"
    )
    assert flags(found, work / "by child") == Flag.MISSING


def test_the_search_for_modules_is_told_from_a_listing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("searched", "listed"):
        (work / name).mkdir(parents=True)
    (work / "searched" / "helper.py").touch()
    found = noted(work, "sys.path.insert(0, os.path.abspath('searched')); import helper; os.listdir('listed')")
    assert flags(found, work / "searched") == Flag.LOOKED | Flag.IMPORT_LISTED
    assert flags(found, work / "listed") == Flag.LISTED
    assert flags(found, work / "searched" / "helper.py") == Flag.LOOKED | Flag.READ


def test_programs_connections_and_questions_to_the_kernel_are_noted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = noted(
        work,
        "import socket, subprocess\n"
        "subprocess.run(['/bin/true'])\n"
        "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "open('port', 'w').write(str(port))\n"
        "socket.create_connection(('127.0.0.1', port))\n"
        "os.statvfs('/'), os.urandom(1), open('/proc/uptime').close()\n",
    )
    port = (work / "port").read_text()
    assert "/bin/true" in found.started
    assert found.connected == {f"127.0.0.1 {port}"}
    assert found.ports == {port}
    assert {"/", "random numbers"} <= found.measured
    assert found.paths["/proc/uptime"] == Flag.READ


def test_what_was_imported_before_is_told_apart(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = noted(work, "open('after', 'w').close(); os.path.exists(os.__file__)")
    assert found.paths[os.__file__] & Flag.IMPORTED
    assert not found.paths[str(work / "after")] & Flag.IMPORTED
    assert found.imports_began_ns < (work / "after").stat().st_mtime_ns


def test_notes_that_are_missing_or_of_another_version_are_none(tmp_path: Path) -> None:
    assert notes.read(tmp_path / "nothing", (), None, "").unnoted.startswith("the notes cannot be read")
    other = tmp_path / "other"
    other.write_bytes(bytes(64))
    assert notes.read(other, (), None, "").unnoted == "the notes are of another version"
