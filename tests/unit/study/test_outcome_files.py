"""Tables, the picture and the page of a sweep."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.errors import ExitCode, UsageError
from phantora_async.options import RunOptions
from phantora_async.study.outcome.columns import columns
from phantora_async.study.outcome.page import front_in, round_steps, sweep_page
from phantora_async.study.sweeping import Swept, sweep

from .conftest import Runs

STUDY: dict[str, Any] = {
    "tokens_per_step": 10000,
    "objectives": ["time", "money", "mfu"],
    "run": {"script": "train.py", "world_size": 2},
    "grid": {"--fast": [False, True], "gpu": ["h100", "a100-80g"], "--note": ["<b>&'\""]},
}


@pytest.fixture
def swept(runs: Runs) -> Swept:
    return sweep(STUDY)


def test_tables_have_a_row_for_each_trial(swept: Swept) -> None:
    swept.write_table("table.csv")
    swept.write_table("table.json")
    with open("table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    told = json.loads(Path("table.json").read_text())
    assert [row["gpu"] for row in rows] == ["h100", "a100-80g", "h100", "a100-80g"]
    assert [one["--fast"] for one in told] == [False, False, True, True]
    assert float(rows[2]["time_value"]) == told[2]["time_value"] == pytest.approx(0.2 * 1e6 / 10000)
    assert [one["mfu_value"] for one in told] == [0.4] * 4


def test_markdown_and_csv_have_the_columns_of_the_terminal(runs: Runs) -> None:
    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        simulated["step"]["interval"] = {"low_ns": 300_000_000, "high_ns": 500_000_000}

    runs.change = change
    swept = sweep(STUDY)
    swept.write_table("table.md")
    swept.write_table("table.csv")
    head, _, first, *_ = Path("table.md").read_text().splitlines()
    titles = [cell.strip() for cell in head.strip("|").split("|")]
    in_terminal = ["step", "90% interval", "tokens/s", "memory reserved", "MFU", "costs of a million tokens"]
    assert titles == ["trial", *in_terminal, "how", "remark"]
    line = str(swept).splitlines()[0]
    assert [title for title in in_terminal if title in line] == in_terminal
    assert "300.0 ms to 500.0 ms" in first
    with open("table.csv", newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["step"], row["step_low"], row["step_high"]) == ("0.4", "0.3", "0.5")
    assert float(row["tokens_per_second"]) == 25000.0
    assert "4 trials are equally fast" in str(swept)
    assert len(swept.document()["tied"]) == 4


def test_parquet_is_the_same_table(swept: Swept) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    swept.write_table("table.parquet")
    swept.write_table("table.json")
    assert parquet.read_table("table.parquet").to_pylist() == json.loads(Path("table.json").read_text())


def test_columns_of_different_kinds_are_texts(runs: Runs) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    swept = sweep({"run": STUDY["run"], "grid": {"--n": [1, "two", True]}})
    swept.write_table("table.parquet")
    assert parquet.read_table("table.parquet")["--n"].to_pylist() == ["1", "two", "True"]


@pytest.mark.parametrize(
    ("name", "begins"), [("front.png", b"\x89PNG"), ("front.svg", b"<?xml"), ("front.pdf", b"%PDF")]
)
def test_the_picture(swept: Swept, name: str, begins: bytes) -> None:
    figure = swept.plot(name)
    assert Path(name).read_bytes().startswith(begins)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "time of a million tokens [s]"
    assert [text.get_text()[:21] for text in axes.texts] == [one.trial.name[:21] for one in swept.front]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_page_has_all_without_scripts_and_loads_nothing(swept: Swept) -> None:
    swept.write_page("page.html")
    text = Path("page.html").read_text()
    page = Page(text)
    rows = [one for one in page.all("tr") if one.get("id")]
    assert [one["id"] for one in rows] == ["trial3", "trial2", "trial1", "trial0"], "the best one first"
    assert [one["class"] for one in rows] == ["front", "", "", ""]
    assert len(page.all("circle")) == 2 * 4, "a picture for wide screens, and one for phones"
    titles = [one["data-title"] for one in page.all("td")][: len(page.all("th"))]
    assert titles == ["--fast", "gpu", "--note", *(one.title for one in columns(swept.outcome)), "how", "remark"]
    assert all(one.removeprefix("* ") in " ".join(page.texts) for one in swept.document()["remarks"])
    assert "b" not in {tag for tag, _ in page.elements}, "texts of the study are texts"
    assert [one["data-key"] for one in page.all("select")] == ["--fast", "gpu", "--note"]
    assert [one.get("src") or one.get("href") for one in page.all("link") + page.all("script")] == ["data:,", None]
    assert "default-src 'none'" in str(page.all("meta")[1]["content"])
    assert any("phantora-async run -n 2" in one for one in page.texts)


def test_a_page_without_anything_to_compare(runs: Runs) -> None:
    study = STUDY | {"run": STUDY["run"] | {"max_memory": "1GiB"}}
    swept = sweep(study)
    swept.write_page("page.html")
    assert "no trial can be compared" in Path("page.html").read_text()
    with pytest.raises(UsageError, match="a picture needs two objectives"):
        swept.plot()


def test_files_are_named_by_what_they_hold(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    Path("study.toml").write_text('[run]\nscript = "train.py"\n[grid]\n"--fast" = [true]\n')
    assert cli.run(["sweep", "study.toml", "--table", "table.xls"]) == ExitCode.USAGE
    assert "expected a name that ends with .csv, .json, .parquet" in capsys.readouterr().err
    assert cli.run(["sweep", "study.toml", "--picture", "front.gif"]) == ExitCode.USAGE
    for option, name in (("--table", "no/table.csv"), ("--html", "."), ("--picture", "no/front.png")):
        assert cli.run(["sweep", "study.toml", option, name]) == ExitCode.NOT_WRITTEN
        assert f"cannot write {name}: " in capsys.readouterr().err
    assert runs.asked == []
    assert sorted(path.name for path in Path().iterdir()) == ["study.toml", "train.py"], "nothing is left behind"
    written = ["--table", "table.csv", "--html", "page.html", "--picture", "front.png"]
    assert cli.run(["sweep", "study.toml", *written]) == 0
    assert sorted(path.name for path in Path().iterdir()) == [
        "front.png",
        "page.html",
        "study.sweep",
        "study.toml",
        "table.csv",
        "train.py",
    ]


def test_what_cannot_be_written(swept: Swept) -> None:
    from phantora_async.errors import NotWritten

    with pytest.raises(NotWritten, match=r"cannot write no/page.html: No such file"):
        swept.write_page("no/page.html")


def test_the_front_of_the_page_is_that_of_the_two_objectives_that_it_draws() -> None:
    def one(name: str, time: float, memory: float, mfu: float) -> dict[str, Any]:
        return {"trial": name, "values": {"time": time, "memory": memory, "mfu": mfu}}

    fit = [one("a", 3, 1, 0.1), one("b", 1, 3, 0.1), one("c", 3, 3, 0.9), one("d", 2, 2, 0.1)]
    assert [each["trial"] for each in front_in(("time", "memory"), fit)] == ["b", "d", "a"]
    assert [each["trial"] for each in front_in(("time", "mfu"), fit)] == ["b", "c"], "more is better"


def test_axes_have_round_steps() -> None:
    assert round_steps(0.7668, 5.614) == pytest.approx([2, 4])
    assert round_steps(1.1, 3.0) == pytest.approx([1.5, 2.0, 2.5, 3.0])
    assert round_steps(10 * 2**30, 30 * 2**30, unit=2**30) == [
        10 * 2**30,
        15 * 2**30,
        20 * 2**30,
        25 * 2**30,
        30 * 2**30,
    ]
    assert round_steps(2.0, 2.0) == [2.0]


def test_points_have_numbers_figures_and_intervals() -> None:
    trial = {"chosen": {}, "how": "run", "state": "done", "compared": True, "reason": "", "front": True}
    figures = {"step": 1.0, "step_low": 0.9, "step_high": 1.5}
    trial |= {"shown": [{"title": "memory reserved", "text": "", "value": None}]}
    lacking = trial | {"trial": "z", "state": "out of memory", "compared": False, "front": False, "values": {}}
    lacking |= {"reason": "what it lacks"}
    document = {
        "objectives": ["time", "memory"],
        "by": "million_tokens",
        "currency": "$",
        "includes": "",
        "remarks": [],
        "best": {},
        "trials": [
            trial | {"trial": "a", "values": {"time": 20.0, "memory": 2.0**30}, "figures": figures},
            trial | {"trial": "b", "values": {"time": 10.0, "memory": 2.0**31}, "figures": {}},
            lacking | {"values": {"time": None, "memory": None}},
        ],
    }
    page = Page(sweep_page(document, "study"))
    text = " ".join(page.texts)
    # The interval of the time is 0.9 to 1.5 times its value, as that of a step is; memory has none.
    assert "a : time 20.000 s (18.000 s to 30.000 s), memory 1.00 GiB" in text
    assert "b : time 10.000 s, memory 2.00 GiB" in text
    assert [one["class"] for one in page.all("g")] == ["point front", "point front"] * 2
    assert {"15 s", "1 GiB"} <= set(page.texts), "round ticks"
    assert [one["id"] for one in page.all("tr") if one.get("id")] == ["trial1", "trial0", "trial2"]
    assert [one["class"] for one in page.all("tr") if one.get("id")] == ["front", "front", "unfit lacks"]
    # A trial without figures says why in their place.
    (last,) = [one for one in page.all("td") if one.get("colspan")]
    assert (last["colspan"], last["data-value"]) == ("3", "run; what it lacks")
    # On a narrow screen the title stands in front of each figure; memory says which memory it is.
    titles = [one.get("data-title") for one in page.all("td")][:3]
    assert titles == ["memory reserved", "how", "remark"]


def test_trials_at_one_point_share_a_label() -> None:
    trial = {"chosen": {}, "how": "run", "state": "done", "compared": True, "reason": "", "front": True, "figures": {}}
    trial["shown"] = []
    values = [(10.0, 2.0**31), (20.0, 2.0**30), (20.0, 2.0**30)]
    trials = [
        trial | {"trial": name, "values": {"time": time, "memory": memory}}
        for name, (time, memory) in zip("abc", values, strict=True)
    ]
    document = {
        "objectives": ["time", "memory"],
        "by": "job",
        "currency": "$",
        "includes": "",
        "best": {},
        "remarks": [],
    }
    page = Page(sweep_page(document | {"trials": trials}, "study"))
    assert [text for text in page.texts if text in ("1", "2", "3", "2, 3")] == ["1", "2, 3"] * 2
