"""The book of clusters: what a row runs, how predictions are held beside what was published, and the page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from phantora_async import cli
from phantora_async.errors import JobsFailed, UsageError
from phantora_async.validation import cluster_book, cluster_predictions, clusters
from phantora_async.validation.cluster_predictions import Prediction
from phantora_async.validation.clusters import Published

SHIPPED = Path(__file__).parents[3] / "laboratory" / "programs" / "clusters.toml"
PAGE = "".join(f"<!-- validate: {name} -->\n<!-- end -->\n" for name in ("clusters", "cluster rows"))
BOOK = """\
predictions = "predictions.jsonl"
published = "published.jsonl"
page = "page.md"

[[table]]
name = "a model"
program = "equivalent"
source = "somebody, a page"
options = "--cluster mine.toml --fold dp={gpus}"
command = "job.py --folder {data}"
python = "torch"
cause = "Their network is older."

[[table.row]]
name = "small"
curve = "a model"
gpus = 8
tokens = 1000

[[table.row]]
name = "large"
curve = "a model"
gpus = 64
tokens = 1000
options = "--replicas each"
arguments = "--batch 2"
"""
SMALL = Prediction("small", 0.5, 0.4, 0.6, 10.0, 2000.0, 0.0, 0.1, 1.0, 60.0, 30.0, "", "abc", "2026-11-29")
LARGE = replace(SMALL, row="large", step_s=0.625, low_s=0.5, high_s=0.7, tokens_per_s_gpu=1600.0)


def made(folder: Path, text: str = BOOK) -> Path:
    (folder / "page.md").write_text(PAGE)
    (folder / "job.py").write_text("")
    (folder / "mine.toml").write_text("")
    path = folder / "book.toml"
    path.write_text(text)
    return path


def test_a_row_s_command_names_its_files_its_gpus_and_the_given_folders(tmp_path: Path) -> None:
    found = [row for _, row in cluster_book.read(made(tmp_path)).rows()]
    assert cluster_book.filled(found[1], {"data": "/data"}) == [
        *("--cluster", str(tmp_path / "mine.toml"), "--fold", "dp=64", "--replicas", "each"),
        *(str(tmp_path / "job.py"), "--folder", "/data", "--batch", "2"),
    ]
    with pytest.raises(KeyError, match="data"):
        cluster_book.filled(found[0], {})


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two rows are called small"):
        cluster_book.read(made(tmp_path, BOOK.replace('"large"', '"small"')))


@pytest.mark.parametrize(
    ("was", "wrong", "said"),
    [
        ("--batch 2", "--name 'a", "No closing quotation"),
        ("--batch 2", "--sizes {0}", "names no folder"),
        ("--batch 2", "--sizes {gpus.real}", "names no folder"),
        ("--batch 2", "--sizes {", "--sizes {"),
    ],
)
def test_a_malformed_command_is_refused(tmp_path: Path, was: str, wrong: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cluster_book.read(made(tmp_path, BOOK.replace(was, wrong)))


def test_braces_that_are_written_twice_are_the_word_s(tmp_path: Path) -> None:
    book = cluster_book.read(made(tmp_path, BOOK.replace("--batch 2", "--sizes {{2}}")))
    assert cluster_book.filled(book.tables[0].rows[1], {"data": "/data", "gpus": "/no"})[-1] == "{2}"


@pytest.mark.parametrize(
    "line",
    [
        '{"row": "small", "tokens_per_s_gpu": "fast", "known": false}',
        '{"row": ["small"], "tokens_per_s_gpu": 1.0, "known": false}',
        '{"row": "small", "tokens_per_s_gpu": NaN, "known": false}',
        '{"row": "small", "tokens_per_s_gpu": 0, "known": false}',
        '{"row": "small", "tokens_per_s_gpu": 1.0, "known": "no"}',
        "[]",
    ],
)
def test_a_malformed_published_run_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "published.jsonl").write_text(line + "\n")
    with pytest.raises(UsageError, match=r"published\.jsonl:1: not a published run"):
        clusters.read_published(tmp_path / "published.jsonl")


@pytest.mark.parametrize("wrong", [{"row": ["small"]}, {"step_s": "0.5"}, {"cpu_s": None}])
def test_a_malformed_prediction_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    (tmp_path / "predictions.jsonl").write_text(json.dumps(asdict(SMALL) | wrong) + "\n")
    with pytest.raises(UsageError, match=r"predictions\.jsonl:1: not a prediction"):
        cluster_predictions.read(tmp_path / "predictions.jsonl")


def test_every_shipped_row_has_its_files_and_a_curve_s_rows_differ() -> None:
    rows = [row for _, row in cluster_book.read(SHIPPED).rows()]
    checkouts = dict.fromkeys(("kempnerforge", "megatron", "torchtitan_2412", "torchtitan_2506"), "/forge")
    for row in rows:
        words = cluster_book.filled(row, checkouts)
        assert all(Path(word).is_file() for word in words if word.endswith((".py", ".toml")) and "/forge" not in word)
    assert len({(row.gpus, row.words) for row in rows}) == len(rows)


def test_errors_and_ratios_are_of_speeds_by_hand(tmp_path: Path) -> None:
    """Published 2,500 and 1,500 tokens/s, predicted 2,000 and 1,600: steps of 0.4 and 0.667 s against 0.5 and 0.625."""
    book = cluster_book.read(made(tmp_path))
    published = {name: Published(name, speed, False) for name, speed in (("small", 2500.0), ("large", 1500.0))}
    small, large = clusters.compare(book, {"small": SMALL, "large": LARGE}, published)
    assert small.error == pytest.approx(0.25)
    assert large.error == pytest.approx(-0.0625)
    assert small.ratio is None
    assert large.ratio == pytest.approx(0.6)
    assert large.predicted_ratio == pytest.approx(0.8)
    assert large.ratio_error == pytest.approx(1 / 3)
    assert small.holds
    assert large.holds
    assert not replace(small, published=Published("small", 3000.0, False)).holds


def test_the_summary_has_errors_with_their_sign_and_by_the_network_s_share(tmp_path: Path) -> None:
    """Errors of +25 and -6.25 %: 15.6 % in the mean, +9.4 % with their sign."""
    book = cluster_book.read(made(tmp_path))
    published = {name: Published(name, speed, False) for name, speed in (("small", 2500.0), ("large", 1500.0))}
    predictions = {"small": replace(SMALL, exposed=0.02), "large": replace(LARGE, exposed=0.1)}
    text = clusters.summary(clusters.compare(book, predictions, published))
    assert "| 2 | 15.6% | +9.4% | 25.0% |" in text
    assert "| less than 5% | 1 | 25.0% | +25.0% | 25.0% |\n| 10% or more | 1 | 6.2% | -6.2% | 6.2% |" in text


def test_a_curve_begins_at_its_first_row_that_has_both_values(tmp_path: Path) -> None:
    book = cluster_book.read(made(tmp_path))
    (one,) = clusters.compare(book, {"small": SMALL, "large": LARGE}, {"large": Published("large", 1500.0, False)})
    assert one.row.name == "large"
    assert one.ratio is None


def test_the_page_has_rows_causes_failures_and_rows_that_were_not_run(tmp_path: Path) -> None:
    path = made(tmp_path)
    failed = replace(SMALL, step_s=None, tokens_per_s_gpu=None, failure="error: out of memory")
    (tmp_path / "published.jsonl").write_text(json.dumps(asdict(Published("large", 1500.0, True))) + "\n")
    (tmp_path / "predictions.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in (failed, LARGE)))
    assert cli.run(["validate", "--clusters", str(path), "--pages"]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "| large (known) | 64 | 0.667 s | 0.625 s | -6.2% |" in page
    assert "small failed: error: out of memory" in page
    assert "Their network is older." in page
    assert "| somebody | equivalent | 1 | 6.2% | -6.2% | 6.2% | 1/1 |  |" in page
    assert "Published values of 1 rows had been seen" in page


def test_rows_that_were_not_run_are_one_line(tmp_path: Path) -> None:
    path = made(tmp_path)
    (tmp_path / "published.jsonl").write_text("")
    assert cli.run(["validate", "--clusters", str(path), "--pages"]) == 0
    assert "Not run yet: small, large." in (tmp_path / "page.md").read_text()


def test_a_run_keeps_its_prediction_and_rows_without_an_interpreter_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path)
    asked = []

    def predict(row: cluster_book.ClusterRow, words: list[str], python: str, commit: str) -> Prediction:
        asked.append((row.name, python, words[-1]))
        return replace(LARGE, failure="error: no", step_s=None) if row.name == "large" else SMALL

    monkeypatch.setattr(cluster_predictions, "predict", predict)
    clusters.clusters(path, set(), {}, {}, run=True)
    assert not asked
    assert "small (needs torch), large (needs torch)" in capsys.readouterr().out
    with pytest.raises(JobsFailed, match="large"):
        clusters.clusters(path, set(), {"torch": "/python"}, {"data": "/data"}, run=True)
    assert asked == [("small", "/python", "/data"), ("large", "/python", "2")]
    assert list(cluster_predictions.read(tmp_path / "predictions.jsonl")) == ["small", "large"]
    assert (tmp_path / "page.md").read_text() == PAGE  # nothing was published yet


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "huge"], "no such row"),
        (["--python", "torch"], "expected NAME=PATH"),
        (["--all", "truth.toml"], "--all takes no --clusters"),
        (["truth.jsonl"], "--clusters takes no TRUTH"),
        (["--run-options=--gpu h100"], "--clusters takes no --run-options"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["validate", "--clusters", str(made(tmp_path)), *words]) == 2
    assert said in capsys.readouterr().err
