"""Finds the file of a description: a shipped one by name, a user's by path."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Literal

from formats.nearest import meant_file, meant_or_known
from profiles.descriptions.fields import Fields, read_fields
from profiles.descriptions.spelling import spelt_otherwise, variants_of
from profiles.errors import ProfileError, UnknownProfile

Kind = Literal["gpu", "cluster", "host", "price"]

ROOT = Path(__file__).resolve().parents[1]
FOLDERS: dict[Kind, Path] = {
    "gpu": ROOT / "gpus",
    "cluster": ROOT / "clusters",
    "host": ROOT / "hosts",
    "price": ROOT / "prices",
}


def names(kind: Kind) -> list[str]:
    """The shipped profiles of one kind, sorted."""
    return sorted(path.stem for path in FOLDERS[kind].glob("*.toml"))


def gpu_names() -> list[str]:
    return names("gpu")


def cluster_names() -> list[str]:
    return names("cluster")


def host_names() -> list[str]:
    return names("host")


def price_names() -> list[str]:
    return names("price")


def path_of(name: str) -> Path:
    """The file of a shipped profile of any kind, to show or to copy. Raises UnknownProfile."""
    for folder in FOLDERS.values():
        path = folder / f"{name}.toml"
        if path.is_file():
            return path
    for kind in FOLDERS:
        if len(found := spelt_otherwise(name, {one: _also(kind, one) for one in names(kind)})) == 1:
            return FOLDERS[kind] / f"{found[0]}.toml"
    known = [one for kind in FOLDERS for one in names(kind)]
    raise UnknownProfile(f"no profile is called {name!r}; {meant_or_known(name, known)}")


def find(kind: Kind, name_or_path: str | os.PathLike[str]) -> Path:
    """The file that `name_or_path` means: a shipped name, or a path (it has a separator or ends in .toml)."""
    text = os.fspath(name_or_path)
    if text.endswith(".toml") or os.sep in text:
        path = Path(text)
        if not path.exists():
            likely = meant_file(text) or f"a {kind} description is a TOML file"
            raise ProfileError(f"{path}: no such file ({likely})")
        return path
    path = FOLDERS[kind] / f"{text}.toml"
    if text and path.is_file():
        return path
    known = {name: _also(kind, name) for name in names(kind)}
    if len(found := spelt_otherwise(text, known)) == 1:
        return FOLDERS[kind] / f"{found[0]}.toml"
    variants = found or variants_of(text, known)
    likely = f"its variants: {', '.join(variants)}" if variants else meant_or_known(text, list(known))
    raise UnknownProfile(f"unknown {kind} {text!r}; {likely} (a file's path ends in .toml)")


def _also(kind: Kind, name: str) -> list[str]:
    """Further words that people add to the name of a GPU."""
    return read_fields(FOLDERS[kind] / f"{name}.toml").texts("also", []) if kind == "gpu" else []


def read(kind: Kind, name_or_path: str | os.PathLike[str]) -> Fields:
    """The file that `name_or_path` means, upon its base if it names one. Raises UnknownProfile or ProfileError."""
    return read_fields(find(kind, name_or_path), partial(find, kind))


def base_of(path: Path) -> str | None:
    """The name of the description on which the file is based, as it says; None if it stands alone. Raises
    ProfileError.
    """
    table = read_fields(path)
    return table.text("base") if "base" in table else None
