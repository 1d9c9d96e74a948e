"""``@pytest.mark.gpus``: who runs the test, with which options, and what is shown when it fails."""

from __future__ import annotations

import json

import pytest

from phantora_async.gate import pytest_plugin

pytest_plugins = ["pytester"]
TESTS = """
import pytest

@pytest.fixture
def asked():
    raise AssertionError("fixtures belong to the ranks")

@pytest.mark.gpus(8, memory="40GiB", cluster="dgx-h100")
@pytest.mark.parametrize("width", [4])
def test_emulated(asked, width):
    raise AssertionError("so does the test")

def test_plain():
    pass
"""


CONFTEST = """
import json
from phantora_async.api import running
from phantora_async.errors import OverBudget, RankDied

def run(*given, processes, **options):
    print(json.dumps([given, options], default=str), file=open("asked.json", "w"))
    if {failure!r}:
        raise {failure}

running.run = run
"""


def _outcomes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, failure: str = "") -> pytest.RunResult:
    """Runs the tests in a process of its own, with a stand-in for ``run``."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST.format(failure=failure))
    pytester.makepyfile(test_it=TESTS)
    return pytester.runpytest_subprocess("-p", pytest_plugin.__name__, "-p", "no:cacheprovider")


def test_a_marked_test_runs_on_ranks_only(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    _outcomes(pytester, monkeypatch).assert_outcomes(passed=2)
    (script, arguments), options = json.loads((pytester.path / "asked.json").read_text())
    assert (script, arguments[0]) == ("pytest", "test_it.py::test_emulated[4]")
    del options["run_dir"]
    assert options == {
        "module": True,
        "progress": False,
        "world_size": 8,
        "max_memory": "40GiB",
        "cluster": "dgx-h100",
    }


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("OverBudget('over budget: memory')", "over budget: memory"),
        ("RankDied(3, 'rank 3 ended with exit code 1', 1)", "rank 3 ended with exit code 1"),
    ],
)
def test_failures_show_the_reason_and_where_to_look(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, failure: str, reason: str
) -> None:
    done = _outcomes(pytester, monkeypatch, failure)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([reason, "logs and report: */run"])


ODD = """
import pytest

@pytest.mark.gpus()
def test_none(): pass

@pytest.mark.gpus(2, memry="4GiB")
def test_key(): pass

@pytest.mark.gpus(2, run_dir="here")
def test_own(): pass

@pytest.mark.gpus(2, memory="4GiB", max_memory="4GiB")
def test_both(): pass
"""


def test_marks_that_are_wrong_are_explained_and_leave_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temporary")))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_it=ODD)
    done = pytester.runpytest_subprocess("-p", pytest_plugin.__name__, "-p", "no:cacheprovider")
    done.assert_outcomes(failed=4)
    done.stdout.fnmatch_lines(
        [
            "@pytest.mark.gpus takes one number of GPUs, as in @pytest.mark.gpus(8)",
            "@pytest.mark.gpus: memry: unknown option; did you mean memory?",
            "@pytest.mark.gpus: run_dir: the test itself says it",
            "@pytest.mark.gpus: memory and max_memory are the same limit: one of them",
        ]
    )
    assert not list(pytester.path.glob("temporary/phantora-test-*"))


def test_in_a_rank_the_test_itself_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pytest_plugin.IN_RANK, "test_it.py::test_emulated[4]")
    _outcomes(pytester, monkeypatch).assert_outcomes(passed=1, errors=1)
