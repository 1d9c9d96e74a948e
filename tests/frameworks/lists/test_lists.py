"""Verdicts of tests are read as the runners print them, and docs/data/test-lists.md is what they make."""

from __future__ import annotations

from pathlib import Path

from . import document, verdict
from .document import Results
from .lists import LISTS, TestList
from .verdict import FAILS, OTHER, PACKAGES, PASSES, SKIPPED, VALUES, Verdict

NOT_CLOSE = """\
Process 0 exited with error code 10 and exception:
Traceback (most recent call last):
  File "/a/b/distributed_test.py", line 2, in test_sums
E   AssertionError: Tensor-likes are not close!
E
E   Mismatched elements: 3 / 4 (75.0%)
RuntimeError: Process 0 exited with error code 10 and exception:
"""
JUNIT = """\
<testsuites><testsuite>
<testcase classname="a.b.T" name="test_sums[x::1]" time="3.5">
<failure message="m">AssertionError: Scalars are not equal!</failure></testcase>
<testcase classname="a.b" name="test_file" time="1">
<error message="m">OSError: [Errno 2] /a/b/c.txt is missing</error></testcase>
<testcase classname="a.b" name="test_rocm" time="0"><skipped message="needs ROCm"/></testcase>
<testcase classname="a.b" name="test_ranks" time="2"/>
</testsuite></testsuites>
"""
NAMES = ("a/b.py::T::test_sums[x::1]", "a/b.py::test_file", "a/b.py::test_rocm", "a/b.py::test_ranks")
TESTS = TestList("some", "Some tests", 2, ("torch",), (), (), (), junit=True)


def test_a_test_needs_values_if_it_compares_numbers_and_read_some_that_nobody_computed() -> None:
    says = "AssertionError: Tensor-likes are not close! Mismatched elements: 3 / 4 (75.0%)"
    assert verdict.failed(NOT_CLOSE, 2.0, unknown_read=True) == Verdict(FAILS, VALUES, says, 2.0)
    assert verdict.failed(NOT_CLOSE, 2.0, unknown_read=False) == Verdict(FAILS, OTHER, says, 2.0)
    raised = "RuntimeError: no such group"
    assert verdict.failed(raised, 2.0, unknown_read=True) == Verdict(FAILS, OTHER, raised, 2.0)


def test_a_missing_package_is_no_fault_of_the_emulator() -> None:
    text = "[default] [rank0]:ModuleNotFoundError: No module named 'deep_ep'\nChildFailedError: x\n"
    expected = Verdict(FAILS, PACKAGES, "ModuleNotFoundError: No module named 'deep_ep'", 1.0)
    assert verdict.failed(text, 1.0, unknown_read=True) == expected


def test_pytest_s_verdicts_are_read(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    assert verdict.from_junit([tmp_path / "junit.xml"], NAMES, unknown_read=True) == {
        "a/b.py::T::test_sums[x::1]": Verdict(FAILS, VALUES, "AssertionError: Scalars are not equal!", 3.5),
        "a/b.py::test_file": Verdict(FAILS, OTHER, "OSError: [Errno 2] c.txt is missing", 1.0),
        "a/b.py::test_rocm": Verdict(SKIPPED, "", "needs ROCm", 0.0),
        "a/b.py::test_ranks": Verdict(PASSES, "", "", 2.0),
    }


def test_a_test_of_several_ranks_passes_if_no_rank_says_otherwise(tmp_path: Path) -> None:
    case = '<testsuite><testcase classname="a.b" name="test_ranks" time="2">{}</testcase></testsuite>'
    said = ("", '<failure message="m">ValueError: x</failure>', '<skipped message="y"/>')
    files = [tmp_path / f"junit.{rank}.xml" for rank in range(3)]
    for file, what in zip(files, said, strict=True):
        file.write_text(case.format(what))
    ranks = ["a/b.py::test_ranks"]
    assert verdict.from_junit(files, ranks, unknown_read=False) == {ranks[0]: Verdict(FAILS, OTHER, "ValueError: x", 2)}
    assert verdict.from_junit(files[::2], ranks, unknown_read=False) == {ranks[0]: Verdict(PASSES, "", "", 2)}


def test_what_a_run_printed_before_its_end_counts() -> None:
    output = (
        "a.py::T::test_one[a b] \x1b[32mPASSED\x1b[0m [ 25%]\na.py::T::test_two FAILED [ 50%]\n"
        "a.py::T::test_three \nerror: deadlock: x\n"
    )
    expected = {"a.py::T::test_one[a b]": Verdict(PASSES), "a.py::T::test_two": Verdict(FAILS)}
    assert verdict.from_lines(output) == expected
    assert verdict.ended(output) == "deadlock: x"


def test_of_a_run_that_was_cut_those_tests_count_that_all_ranks_have_ended() -> None:
    first = "a.py::test_one PASSED [ 33%]\na.py::test_two PASSED [ 66%]\na.py::test_three PASSED [100%]\n"
    second = "a.py::test_one PASSED [ 33%]\na.py::test_two FAILED [ 66%]\na.py::test_three "
    assert verdict.from_ranks([first, second]) == {"a.py::test_one": Verdict(PASSES), "a.py::test_two": Verdict(FAILS)}
    assert verdict.from_ranks([first])["a.py::test_three"] == Verdict(PASSES)


def test_the_document_is_up_to_date() -> None:
    """After a change: `python -m tests.frameworks.lists --write` with a list and a test."""
    results = document.read(document.DATA.read_text())
    assert document.written(results) == document.DATA.read_text()
    assert document.render(LISTS, results) == document.PATH.read_text()
    assert set(results) <= {tests.name for tests in LISTS}


def test_the_document_counts_verdicts() -> None:
    kept = {"a.py::T::test_one": Verdict(PASSES, "", "", 7.2), "test_two": Verdict(FAILS, VALUES, "a | b", 3.0)}
    text = document.render([TESTS], {"some": Results("torch 2.15.0", "2026-11-30", 5, kept, every=2)})
    assert "`python -m tests.frameworks.lists --every 2 some`, torch 2.15.0, 2026-11-30." in text
    assert "2 of 5 tests were run: 1 passes, 1 fails: values." in text
    assert "| `a.py::T::test_one` | passes | no |  | 7 |" in text
    assert "| `test_two` | fails: values | yes | a / b | 3 |" in text
