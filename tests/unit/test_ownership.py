"""Files are executed only if nobody else can write them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from emu.contract.ownership import others_writing, why_others_write

NO_GROUP = 4_000_000_000
"""It has no name, so it may have any members."""


def state(mode: int, owner: int | None = None, group: int = NO_GROUP) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, os.geteuid() if owner is None else owner, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (state(stat.S_IFREG | 0o644), ""),
        (state(stat.S_IFREG | 0o644, owner=0), ""),
        (state(stat.S_IFREG | 0o600, owner=12345), "user 12345 owns"),
        (state(stat.S_IFREG | 0o664), f"group {NO_GROUP} can write"),
        (state(stat.S_IFREG | 0o646), "everybody can write"),
        (state(stat.S_IFLNK | 0o777), ""),
    ],
)
def test_who_can_write_a_file(found: os.stat_result, told: str) -> None:
    assert others_writing(found) == told


def test_the_group_of_this_user_alone_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        pw_gid, pw_name, gr_name = 77, "me", "me"
        gr_mem: tuple[str, ...] = ()

    monkeypatch.setattr("pwd.getpwuid", lambda user: Entry)
    monkeypatch.setattr("grp.getgrgid", lambda group: Entry)
    assert others_writing(state(stat.S_IFDIR | 0o775, group=77)) == ""
    assert others_writing(state(stat.S_IFDIR | 0o775, group=78)) == "group 78 can write"
    Entry.gr_mem = ("me", "you")
    assert others_writing(state(stat.S_IFDIR | 0o775, group=77)) == "group 77 can write"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    (folder / "fxgraph").mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    (folder / "fxgraph" / "entry").write_bytes(b"")
    return folder


def test_a_file_anywhere_in_the_folder_counts(folder: Path) -> None:
    assert why_others_write(folder) == ""
    (folder / "fxgraph" / "entry").chmod(0o646)
    assert why_others_write(folder) == f"everybody can write {folder}/fxgraph/entry"
    folder.chmod(0o700)
    assert why_others_write(folder) == "", "nobody else gets there"


def test_who_can_replace_the_folder_counts(folder: Path) -> None:
    folder.parent.chmod(0o777)
    assert why_others_write(folder) == f"everybody can write {folder.parent}"
    folder.parent.chmod(0o1777)
    assert why_others_write(folder) == "", "as in /tmp"
