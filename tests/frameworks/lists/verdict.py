"""What a test's run says about the test: its verdict, and why it failed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PASSES, FAILS, SKIPPED = "passes", "fails", "skipped"
VALUES, PACKAGES, OTHER = "values", "packages", "other"

_NUMBERS = re.compile(
    r"(Tensor-likes|Scalars|Booleans) are not (close|equal)|is not (true|false)\b|not (less|greater) than"
)
_PACKAGES = re.compile(r"\b(ModuleNotFoundError|ImportError|OfflineModeIsEnabled|LocalEntryNotFoundError)\b")
_ERROR = re.compile(r"^((?:[a-zA-Z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failed|Interrupt)\b.*)$")
_OUTER = re.compile(r"Process \d+ exited with|ChildFailedError|Failed test flavor|integration test\(s\) failed")
_LINE = re.compile(r"^(\S+::\S.*?) (PASSED|FAILED|SKIPPED|ERROR)\b", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BAD = {SKIPPED: 0, PASSES: 1, FAILS: 2}
_WORDS = {"PASSED": PASSES, "FAILED": FAILS, "SKIPPED": SKIPPED, "ERROR": FAILS}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`cause` is one of the constants above, empty unless the test fails; `says` is the line that tells why, or why it
    was skipped. `seconds`: real time of the test, or of its run if it has one of its own.
    """

    state: str
    cause: str = ""
    says: str = ""
    seconds: float = 0.0


def failed(text: str, seconds: float, *, unknown_read: bool) -> Verdict:
    """Returns the verdict of a test whose traceback or output is `text`.

    A test needs computed kernels (`values`) if a comparison of numbers failed in it and its run has read values that no
    kernel computed. `packages`: something is not installed, or cannot be downloaded.
    """
    says = last_error(text)
    if _PACKAGES.search(text):
        return Verdict(FAILS, PACKAGES, says, seconds)
    cause = VALUES if unknown_read and _NUMBERS.search(text) else OTHER
    return Verdict(FAILS, cause, says, seconds)


def last_error(text: str) -> str:
    """Returns the first line that names an exception, without folders, and the detail after it if PyTorch gives one. A
    line that only says that a process or a run has failed is taken if there is no other.
    """
    lines = [bare for line in text.splitlines() if (bare := _bare(line))]
    found = [at for at, line in enumerate(lines) if _ERROR.match(line)]
    own = [at for at in found if not _OUTER.search(lines[at])]
    if not found:
        return ""
    at = own[0] if own else found[-1]
    detail = lines[at + 1] if at + 1 < len(lines) and lines[at].endswith("!") else ""
    line = re.sub(r"(?<![\w.])/\S*/(?=[^/\s]+)", "", f"{lines[at]} {detail}")
    return " ".join(line.split())[:300]


def _bare(line: str) -> str:
    """Returns the line without colours and without the marks that torchrun and test runners put before it."""
    line = _COLOUR.sub("", line)
    return re.sub(r"^(?:\s*(?:\[[^\]]*\]:?|\||E(?= |$)))*\s*", "", line)


def parts(name: str) -> tuple[str, str]:
    """Returns the file and class of a test that pytest has named, and the test's own name with its parameters."""
    head, bracket, parameters = name.partition("[")
    place, _, test = head.rpartition("::")
    return place, test + bracket + parameters


def from_junit(paths: Iterable[Path], names: Iterable[str], *, unknown_read: bool) -> dict[str, Verdict]:
    """Returns what pytest's `--junit-xml` says of the tests `names`, by their names. If several files have a test, the
    first that has no better verdict than the others.
    """
    known = {_junit_name(name): name for name in names}
    verdicts: dict[str, Verdict] = {}
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            if (name := known.get((case.get("classname", ""), case.get("name", "")))) is not None:
                found = _of_case(case, unknown_read)
                if name not in verdicts or _BAD[found.state] > _BAD[verdicts[name].state]:
                    verdicts[name] = found
    return verdicts


def _junit_name(name: str) -> tuple[str, str]:
    place, test = parts(name)
    return place.replace(".py", "", 1).replace("/", ".").replace("::", "."), test


def _of_case(case: ElementTree.Element, unknown_read: bool) -> Verdict:
    seconds = float(case.get("time", 0))
    fault = case.find("failure") if case.find("failure") is not None else case.find("error")
    skipped = case.find("skipped")
    if fault is not None:
        return failed(fault.text or fault.get("message", ""), seconds, unknown_read=unknown_read)
    if skipped is not None:
        return Verdict(SKIPPED, "", skipped.get("message", ""), seconds)
    return Verdict(PASSES, "", "", seconds)


def from_lines(output: str) -> dict[str, Verdict]:
    """Returns the verdicts that `pytest -v` has printed before it was ended, by the tests' names."""
    return {match[1]: Verdict(_WORDS[match[2]]) for match in _LINE.finditer(_COLOUR.sub("", output))}


def from_ranks(outputs: Sequence[str]) -> dict[str, Verdict]:
    """Returns the verdicts of the tests that all ranks have ended: the first one that has no better verdict than the
    others. `outputs`: what each rank has printed.
    """
    found = [from_lines(output) for output in outputs]
    return {
        name: max((verdicts[name] for verdicts in found), key=lambda one: _BAD[one.state])
        for name in found[0]
        if all(name in verdicts for verdicts in found)
    }


def ended(output: str) -> str:
    """Returns why phantora-async ended a run, as it says."""
    found = [line for line in output.splitlines() if line.startswith("error: ")]
    return found[-1].removeprefix("error: ")[:300] if found else ""
