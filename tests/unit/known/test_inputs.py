"""A change of whatever a run depended on is found; what it did not depend on may change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phantora_async.known.inputs import Surroundings, Unknown, changed, first_changed, inputs_of
from phantora_async.known.notes import Flag, Notes

LATER_NS = 10**10


def around(folder: Path, began_ns: int | None = None) -> Surroundings:
    began = time.time_ns() + LATER_NS if began_ns is None else began_ns
    return Surroundings(began, str(folder / "runs" / "1"), (str(folder / "cache"),), "/python/bin/python", False)


def of(folder: Path, began_ns: int | None = None, **flags: int) -> dict[str, list[object]]:
    notes = Notes({str(folder / name.replace("__", ".")): flag for name, flag in flags.items()})
    return inputs_of(notes, around(folder, began_ns))


def edit(path: Path) -> None:
    path.write_text("other")


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def replace(path: Path) -> None:
    """Another file of the same content, size and time, as a checkout makes it."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def remove(path: Path) -> None:
    path.unlink()


READ_SOURCE = Flag.READ | Flag.LOOKED


@pytest.mark.parametrize(
    ("name", "flags", "change", "is_changed"),
    [
        ("train.py", READ_SOURCE, edit, True),
        ("train.py", READ_SOURCE, touch, False),
        ("train.py", READ_SOURCE, replace, False),
        ("train.py", READ_SOURCE, remove, True),
        ("data.bin", Flag.READ, edit, True),
        ("data.bin", Flag.READ, touch, False),
        ("data.bin", READ_SOURCE, touch, True),  # it may compare times
        ("data.bin", Flag.LOOKED, edit, True),
        ("data.bin", Flag.LOOKED, replace, False),
    ],
)
def test_a_file_is_known_by_its_content(
    tmp_path: Path, name: str, flags: int, change: Callable[[Path], None], is_changed: bool
) -> None:
    path = tmp_path / name
    path.write_text("as it was")
    inputs = inputs_of(Notes({str(path): flags}), around(tmp_path))
    assert first_changed(inputs) == ""
    change(path)
    assert first_changed(inputs) == (str(path) if is_changed else "")


def test_what_was_missing_must_be_missing(tmp_path: Path) -> None:
    inputs = of(tmp_path, checkpoint=Flag.MISSING)
    assert first_changed(inputs) == ""
    (tmp_path / "checkpoint").touch()
    assert first_changed(inputs) == str(tmp_path / "checkpoint")


def test_a_listing_is_all_names_and_a_search_those_of_modules(tmp_path: Path) -> None:
    for name in ("data", "code"):
        (tmp_path / name).mkdir()
    inputs = of(tmp_path, data=Flag.LISTED, code=Flag.IMPORT_LISTED | Flag.LOOKED)
    (tmp_path / "code" / "notes.txt").touch()
    (tmp_path / "code" / "phantora-runs").mkdir()
    assert first_changed(inputs) == ""
    (tmp_path / "code" / "json.py").touch()
    assert first_changed(inputs) == str(tmp_path / "code")
    (tmp_path / "data" / "2.bin").touch()
    assert first_changed(inputs) == str(tmp_path / "data")


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")
    link = tmp_path / "link"
    link.symlink_to("one")
    inputs = of(tmp_path, link=Flag.READ)
    link.unlink()
    link.symlink_to("two")
    assert first_changed(inputs) == str(link)


def test_a_folder_is_another_one_if_a_link_on_the_way_leads_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("one")
    inputs = of(tmp_path, **{"link/data": Flag.LOOKED})
    assert first_changed(inputs) == ""
    link.unlink()
    link.symlink_to("two")
    assert first_changed(inputs) == str(link / "data")


def test_a_file_of_a_package_is_known_by_its_state(tmp_path: Path) -> None:
    path = tmp_path / "site-packages" / "torch.py"
    path.parent.mkdir()
    path.write_text("version = 1")
    inputs = inputs_of(Notes({str(path): Flag.READ}), around(tmp_path))
    touch(path)
    assert first_changed(inputs) == str(path)


def test_the_runs_own_files_are_no_inputs(tmp_path: Path) -> None:
    (tmp_path / "output").touch()
    written = Flag.FIRST_WRITTEN | Flag.WRITTEN | Flag.READ
    inputs = inputs_of(
        Notes(
            {
                str(tmp_path / "output"): written,
                str(tmp_path / "appended"): Flag.WRITTEN,
                str(tmp_path / "runs" / "1" / "rank0.log"): Flag.READ,
                str(tmp_path / "cache" / "kernel"): Flag.MISSING,
                str(tmp_path / "__pycache__" / "train.pyc"): Flag.MISSING | Flag.WRITTEN,
                "/tmp/private": Flag.MISSING,
                "/tmp/kept/data": Flag.MISSING,
                "/tmp/../none/data": Flag.MISSING,
                "/none/__pycache__/../data": Flag.MISSING,
                f"{tmp_path}/other/../cache/data": Flag.MISSING,
                "/dev/shm/private": Flag.MISSING,
                "/dev/shm/kept/data": Flag.MISSING,
                "/dev/null": Flag.READ,
            },
            visible=("/tmp/kept", "/dev/shm/kept"),
        ),
        around(tmp_path),
    )
    others = ["/tmp/../none/data", "/none/__pycache__/../data"]
    assert list(inputs) == ["/tmp/kept/data", *others, "/dev/shm/kept/data"]


def test_memory_that_is_a_folder_has_files_of_users(tmp_path: Path) -> None:
    """With `--isolation none` all of /dev/shm is visible."""
    assert list(inputs_of(Notes({"/dev/shm/none": Flag.MISSING}), around(tmp_path))) == ["/dev/shm/none"]


def test_a_file_that_the_run_makes_only_if_it_is_missing_must_be_missing(tmp_path: Path) -> None:
    (tmp_path / "index").touch()
    inputs = of(tmp_path, index=Flag.MISSING | Flag.WRITTEN | Flag.LOOKED)
    assert first_changed(inputs) == str(tmp_path / "index")


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        (Notes({}, unnoted="there was no room for all notes"), "there was no room for all notes"),
        (Notes({}, started=frozenset(["/usr/bin/git"])), "it starts /usr/bin/git"),
        (Notes({}, connected=frozenset(["1.2.3.4 443"])), "it talks to 1.2.3.4 at port 443"),
        (Notes({}, connected=frozenset(["127.0.0.1 443"])), "it talks to 127.0.0.1 at port 443"),
        (Notes({}, connected=frozenset(["/run/docker.sock"])), "it talks to /run/docker.sock"),
        (Notes({}, connected=frozenset(["/run/docker.sock"]), visible=()), "it talks to /run/docker.sock"),
        (Notes({}, measured=frozenset(["/data"])), "it asks for the free space of /data of this machine"),
        (Notes({}, measured=frozenset(["random numbers"])), "it asks for random numbers of this machine"),
        (Notes({"/proc/loadavg": Flag.READ}), "it reads /proc/loadavg"),
    ],
)
def test_what_a_later_run_cannot_know_is_not_kept(tmp_path: Path, notes: Notes, reason: str) -> None:
    with pytest.raises(Unknown) as raised:
        inputs_of(notes, around(tmp_path))
    assert str(raised.value) == reason


def test_what_the_run_itself_needs_is_no_obstacle(tmp_path: Path) -> None:
    notes = Notes(
        {"/proc/meminfo": Flag.READ},
        started=frozenset(["/tmp/phantora-1/bin/python", "python3", "/sbin/ldconfig"]),
        connected=frozenset(["127.0.0.1 29500", "::ffff:10.77.0.1 29500", "/tmp/phantora-1/kept/store"]),
        ports=frozenset(["29500"]),
        own=("/tmp/phantora-1",),
    )
    assert inputs_of(notes, around(tmp_path)) == {}


def test_a_change_while_it_runs_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()
    for flags, reason in (
        ({"train__py": Flag.READ}, "train.py changed while it ran or just before"),
        ({"data": Flag.LISTED}, "data changed while it ran or just before"),
        ({"train__py": Flag.READ | Flag.WRITTEN}, "it changes {}/train.py, on which it depends"),
        ({"train__py": Flag.MISSING}, "train.py came or went while it ran"),
        ({"gone": Flag.READ}, "gone came or went while it ran"),
        ({"train__py": Flag.READ | Flag.MISSING}, "train.py was there at one time and not at another"),
    ):
        with pytest.raises(Unknown) as raised:
            of(tmp_path, began_ns=1, **flags)
        assert str(raised.value).endswith(reason.format(tmp_path))


def test_what_a_warm_interpreter_has_imported_must_be_older_than_it(tmp_path: Path) -> None:
    (tmp_path / "table").touch()
    path = str(tmp_path / "table")
    before, after = 1, time.time_ns() + LATER_NS
    with pytest.raises(Unknown):
        inputs_of(Notes({path: Flag.READ | Flag.IMPORTED}, imports_began_ns=before), around(tmp_path))
    assert list(inputs_of(Notes({path: Flag.READ | Flag.IMPORTED}, imports_began_ns=after), around(tmp_path))) == [path]


def test_a_state_that_is_none_counts_as_changed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert changed(str(tmp_path / "file"), ["content"])
    assert changed(str(tmp_path / "file"), [])
