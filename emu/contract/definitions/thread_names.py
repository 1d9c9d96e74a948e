"""Names of threads and processes, as thread_names.def has them."""

from __future__ import annotations

from pathlib import Path

from ...formats.c_lists import read_list

_LIST = read_list(Path(__file__).with_suffix(".def"), "THREAD", "NAME")
_NAMES = {entry.arguments[0]: entry.arguments[1] for entry in _LIST if entry.macro == "NAME"}


def _prefixes(to_the_coordinator: str) -> tuple[str, ...]:
    threads = (entry.arguments for entry in _LIST if entry.macro == "THREAD")
    return tuple(prefix for prefix, _, role, _ in threads if role == to_the_coordinator)


WATCHES = _prefixes("WATCHES")
"""Names of library threads that look at their own rank's work now and then begin so."""
SERVES = _prefixes("SERVES") + WATCHES
"""Names of library threads that watch or serve begin so. They run while their program waits."""
MAIN = _prefixes("MAIN")
"""... of threads that do a main thread's work."""
AWAKE = _NAMES["AWAKE"]
STANDS_FOR = _NAMES["STANDS_FOR"]
RANK = _NAMES["RANK"]
KEEPER = _NAMES["KEEPER"]
PAGES = _NAMES["PAGES"]
STORE = _NAMES["STORE"]
