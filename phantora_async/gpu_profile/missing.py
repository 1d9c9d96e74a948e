"""Reads from a run's report which signatures no table covers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from formats.files import MOST_DATA_NBYTES, read_bytes
from phantora_async.errors import UsageError
from profiles import ProfileError
from profiles.signature import parse
from profiles.timings.keys import key_of


@dataclass(frozen=True, slots=True)
class Used:
    """The signatures that a run has used."""

    shares: dict[str, float]
    """The share of the GPU time of each signature."""
    sources: dict[str, str]
    titles: dict[str, str]
    keys: dict[str, str]
    """The key of each signature's work; signatures of the same work have equal keys (keys.key_of)."""

    def missing(self) -> dict[str, float]:
        """The share of each signature that is not measured, the largest first. Signatures of the same work are one."""
        shares: dict[str, float] = {}
        first: dict[str, str] = {}
        for signature, share in self.shares.items():
            if self.sources[signature] != "measured":
                one = first.setdefault(self.keys[signature], signature)
                shares[one] = shares.get(one, 0.0) + share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def read_report(path: Path) -> Used:
    """Reads the report, or the one in a run's directory. Raises UsageError for anything but a report of a run with
    kernels.
    """
    if path.is_dir():
        path /= "report.json"
    try:
        document = json.loads(read_bytes(path, MOST_DATA_NBYTES))
        listed = document["simulated"]["kernels"]["signatures"]
        shares = {one["signature"]: float(one["share"]) for one in listed}
        sources = {one["signature"]: str(one["source"]) for one in listed}
        titles = {one["signature"]: str(one["title"]) for one in listed}
    except OSError as error:
        raise UsageError(f"--missing {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"--missing {path}: expected the report.json of a run") from None
    keys = {}
    for signature in list(shares):
        try:
            keys[signature] = key_of(parse(signature))
        except ProfileError:
            keys[signature] = signature
    return Used(shares, sources, titles, keys)
