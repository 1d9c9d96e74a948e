"""Each constant of the models says which measurement it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from laboratory.fits.origins import constants, origins

ROOT = Path(__file__).parents[3]


def test_each_constant_has_an_origin_and_each_origin_its_constant() -> None:
    assert sorted(constants() ^ set(origins())) == []


def test_a_new_constant_is_found(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "new.py").write_text('RATE, START = 0.9, 3\nNAME = "x"\nBY_NAME = {"a": 4.5}\n_seen = 3\n')
    found = {"kernels/new.py:RATE", "kernels/new.py:START", "kernels/new.py:BY_NAME"}
    assert constants(tmp_path) == found


def test_sources_within_the_repository_exist() -> None:
    sources = {one.source for one in origins().values()}
    files = {source for source in sources if source.startswith(("laboratory/", "profiles/"))}
    assert "laboratory/notes/power-h200.md" in files
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert [one for one in origins().values() if one.how in ("fitted", "measured") and one.source not in files] == []


@pytest.mark.parametrize("entry", ['how = "guessed"', 'how = "fitted"\nsource = ""'])
def test_an_origin_that_says_nothing_is_refused(tmp_path: Path, entry: str) -> None:
    text = f'[[origin]]\nfile = "a.py"\nnames = ["A"]\nwhat = "b"\n{entry}\n'
    (tmp_path / "list.toml").write_text(text if "source" in text else text + 'source = "c"\n')
    with pytest.raises(ValueError, match="origin 1"):
        origins(tmp_path / "list.toml")


def test_a_constant_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    text = '[[origin]]\nfile = "a.py"\nnames = ["A"]\nhow = "fitted"\nsource = "b"\nwhat = "c"\n'
    (tmp_path / "list.toml").write_text(text * 2)
    with pytest.raises(ValueError, match=r"a\.py:A is listed twice"):
        origins(tmp_path / "list.toml")
