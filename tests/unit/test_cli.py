"""The command line: what is asked for, what is refused, and how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from phantora_async import cli
from phantora_async.errors import ExitCode

PYPROJECT = str(Path(__file__).parents[2] / "pyproject.toml")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom phantora_async import cli\ncli.run(['--help'])\nprint(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for module in ("uvloop", "rich", "numpy", "torch", "asyncio", "profiles"):
        assert f"'{module}'" not in done.stderr
    assert "exit codes:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "unknown command 'fly'"),
        (["run"], "no script given"),
        (["compare", "x"], "x: cannot be read: No such file"),
        (["run", "--np", "3", "x.py"], "--np"),
        (["run", "--host", "slow", "x.py"], "slow"),
        (["profiles", "show"], "no name given"),
        (["profiles", "show", "h300"], "h200"),
        (["report", "--rank", "9" * 5000], "[4,"),
    ],
)
def test_errors_are_one_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert message in shown.err
    assert len(shown.err) < 2000
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["rnu", "x.py"], "did you mean run?"),
        (["x.py", "-n", "8"], "to run a script: phantora-async run x.py"),
        (["run", "--clustr", "p5", "x.py"], "did you mean --cluster?"),
        (["run", "--clusters", "p5", "x.py"], "did you mean --cluster?"),
        (["report", "--hmtl=a.html"], "did you mean --html?"),
        (["run", "--gpu", "H2000", __file__], "did you mean h200 or gh200?"),
        (["run", "--cluster", "pcie-l4s", __file__], "did you mean pcie-l40s?"),
        (["profiles", "show", "xeonh201"], "did you mean xeon-h200 or"),
        (["run", __file__.replace("cli", "clli")], f"did you mean {__file__}?"),
        (["run", __file__.replace("/unit/", "/untis/")], f"did you mean {__file__}?"),
        (["run", "--gpu", PYPROJECT.replace("ject", "jet"), __file__], f"{PYPROJECT}?"),
        (["report", __file__.replace("cli", "clli")], f"did you mean {__file__}?"),
        (["run", "--loaders", "modeled", __file__], "did you mean modelled?"),
        (["run", "--moe", "balancd", __file__], "did you mean balanced?"),
        (["run", "--lengths", "lognorml:400,1", __file__], "did you mean lognormal?"),
        (["run", "--data-shapes", "fration:0.5", __file__], "did you mean fraction?"),
    ],
)
def test_what_was_probably_meant(arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == ExitCode.USAGE
    assert meant in capsys.readouterr().err


def test_an_option_like_no_other_is_named_without_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    """The dashes that all options begin with make none alike."""
    assert cli.run(["run", "--force", "--out=x", "x.py"]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines()[0] == "error: unrecognized arguments: --force --out=x"


def test_a_name_like_no_other_lists_eight(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--cluster", "zzz", __file__]) == ExitCode.USAGE
    [error, _] = capsys.readouterr().err.splitlines()
    assert error.startswith("error: unknown cluster 'zzz'; known ones: a3-high, ")
    assert error.count(",") == 7


def test_the_version_has_a_short_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["-V"]) == cli.run(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second == f"phantora-async {version('phantora-async')}"


def test_json_has_one_meaning_in_all_commands() -> None:
    for command in cli.COMMANDS:
        parser = cli.parser_of(command)
        for action in parser.actions:
            if "--json" in action.option_strings:
                assert action.nargs == 0, f"{command.name}: --json prints, and takes no file"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    assert cli.run(["completion", shell]) == 0
    assert "speculation" in capsys.readouterr().out


COMPLETED = [
    (["ru"], "run"),
    (["run", "--clus"], "--cluster"),
    (["run", "--gpu", "l40"], "l40s"),
    (["profile", "--swee"], "--sweep"),
    (["run", "pyproject.t"], "pyproject.toml"),
    (["report", "--html", "tox.i"], "tox.ini"),
]


@pytest.mark.parametrize(("words", "completed"), COMPLETED)
def test_bash_completes(words: list[str], completed: str) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    line = " ".join(["phantora-async", *words])
    script = f"""
        eval "$({sys.executable} -m phantora_async completion bash)"
        COMP_WORDS=({line}); COMP_CWORD={len(words)}
        $(complete -p phantora-async | sed 's/.*-F \\([^ ]*\\) .*/\\1/') 2>/dev/null
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    root = Path(__file__).parents[2]
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=root)
    assert done.stdout.split() == [completed], done.stderr


def test_profiles_are_copied_to_be_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.toml"
    assert cli.run(["profiles", "copy", "h200", str(target)]) == 0
    assert f"--gpu {target}" in capsys.readouterr().out
    assert cli.run(["profiles", "copy", "h200", str(target)]) == ExitCode.USAGE
    assert cli.run(["profiles", "list"]) == 0
    assert "h200" in capsys.readouterr().out


def test_an_interrupt_while_a_command_is_imported_takes_effect_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NumPy's import swallows KeyboardInterrupt and raises ImportError."""

    def imports(name: str) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("PyCapsule_Import could not import module") from None

    monkeypatch.setattr("importlib.import_module", imports)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in a background process
    try:
        assert cli.run(["profiles", "list"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "error: interrupted\n"


def ended(
    arguments: str, environment: dict[str, str], pass_fds: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """`phantora-async ARGUMENTS` in a shell. Only without PYTHONUNBUFFERED is much written while Python ends."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = f"{sys.executable} -m phantora_async {arguments}"
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env=others | environment,
        pass_fds=pass_fds,
    )


@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_output_that_cannot_be_written(environment: dict[str, str]) -> None:
    full = ended("profiles list >/dev/full", environment)
    assert (full.returncode, full.stderr) == (ExitCode.NOT_WRITTEN, "error: No space left on device\n")
    assert ended("profiles list >/dev/full 2>&1", environment).returncode == ExitCode.NOT_WRITTEN
    assert ended("fly 2>/dev/full", environment).returncode == ExitCode.USAGE
    read, write = os.pipe()
    os.close(read)
    unread = ended(f"profiles list >&{write}", environment, pass_fds=[write])
    os.close(write)
    assert (unread.returncode, unread.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--table", "x.csv"], "--table is for many machines: it needs --variants FILE"),
        (["--results", "x"], "--results is for many machines: it needs --variants FILE"),
        (["--jobs", "2"], "--jobs is for many machines: it needs --variants FILE"),
        (["--variants", "y", "--report", "x.json"], "--report: a replay with --variants writes no report"),
        (["--variants", "y", "--run-dir", "x"], "--run-dir: a replay with --variants writes no report"),
        (["--variants", "y", "--table", "x.xlsx"], "--table x.xlsx: expected a name that ends in .csv or .json"),
        (["--variants", "y", "--table", "none/x.csv"], "--table none/x.csv: there is no folder none"),
        (["--variants", "y", "--table", "folder.csv"], "--table folder.csv: this is a folder"),
    ],
)
def test_a_replay_refuses_options_that_it_would_not_follow(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    assert cli.run(["replay", "recording", *arguments]) == ExitCode.USAGE
    assert f"error: {expected}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["replay", "x", "--variants", "y", "--jobs", "99999"], "--jobs 99999: expected 1 to 1,024"),
        (["replay", "x", "--variants", "y", "--jobs", "-1"], "--jobs -1: expected 1 to 1,024"),
        (["check", "{}", "--parallel", "99999"], "--parallel 99999: expected 1 to 1,024"),
    ],
)
def test_counts_of_processes_are_bounded(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[job.a]\nscript = "train.py"\n')
    assert cli.run([argument.format(jobs) for argument in arguments]) == ExitCode.USAGE
    assert expected in capsys.readouterr().err
