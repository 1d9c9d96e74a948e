"""The page: one file that loads nothing, and in which no text of the script is HTML."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.figures import MFU, RESERVED, STEP_TIME
from phantora_async.pages import page, view
from phantora_async.report import read, terminal_report
from phantora_async.report.serving import serving_document

from ..report.test_report import document, train
from ..report.test_serving import SERVED
from ..virtual_time.scripted import scripts

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \u2028 \ud800"
VOID = {"meta", "link"}


class Parsed(HTMLParser):
    """Fails if elements do not nest; keeps those that there are, and the text of the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def element(self, name: str) -> dict[str, str | None]:
        (found,) = (attributes for tag, attributes in self.elements if tag == name)
        return found


def report() -> dict[str, Any]:
    made = document(*(train(script, 5, marked=True) for script in scripts(2)))
    made["run"] = {"script": "train.py", "arguments": ["--lr", "1"], "options": {}, "versions": {"torch": "2"}}
    return made


def embedded(text: str) -> Any:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


def test_it_holds_the_same_figures_as_the_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report()))
    known = read(path)
    shown = embedded(page(view(known)))["report"]
    del known["simulated"]["kernels"]["signatures"], known["simulated"]["kernels"]["ranks"]
    assert shown == known


def test_it_loads_nothing() -> None:
    text = page(view(report()))
    parsed = Parsed(text)
    for tag, attributes in parsed.elements:
        assert tag not in ("iframe", "img", "object", "embed", "form", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#")[0] == "#" or attributes["href"] == "data:,"
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|importScripts", text)
    policy = next(a["content"] for tag, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'none'" in policy
    code = text.rpartition("<script>")[2].partition("</script>")[0]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" in policy


def test_texts_of_the_script_stay_text() -> None:
    made = report()
    made["run"]["script"] = HOSTILE
    made["run"]["options"] = {"note": HOSTILE}
    made["failure"] = {"text": HOSTILE}
    made["simulated"]["gpu"] = HOSTILE
    made["simulated"]["warnings"] = [{"text": HOSTILE, "ranks": [0], "count": 1}]
    made["simulated"]["logged"] = [{"rank": 0, "text": HOSTILE}]
    made["simulated"]["kernels"]["signatures"] = [
        {"title": HOSTILE, "launches": 1, "mean_ns": 1, "source": HOSTILE, "bound": HOSTILE}
    ]
    made["simulated"]["kernels"]["gpu_ns"] = 1
    text = page(view(made))
    parsed = Parsed(text)
    text.encode()  # half of a surrogate pair cannot be written
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert "img" not in {tag for tag, _ in parsed.elements}
    assert "alert(1)" in "".join(parsed.texts["title"])
    assert [one["title"] for one in embedded(text)["work"]["kernels"]] == [HOSTILE]
    del made["simulated"]["kernels"]["signatures"], made["simulated"]["kernels"]["ranks"]
    assert embedded(text)["report"] == made


def test_a_report_of_an_older_version_is_shown() -> None:
    made = report()
    older = copy.deepcopy(made)
    del older["run"], older["simulated"]["step"]["each_ns"], older["simulated"]["step"]["from_ns"]
    del older["simulated"]["memory"]
    assert embedded(page(view(older)))["title"] == "2 x h200"


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report()))
    file = tmp_path / "page.html"
    assert cli.run(["report", str(tmp_path), "--html", str(file)]) == 0
    assert capsys.readouterr().out == f"page: {file}\n"
    assert embedded(file.read_text())["title"] == "train.py --lr 1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "report.json"]


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report()))
    assert cli.run(["report", str(tmp_path), "--html", str(tmp_path / "no" / "page.html")]) == 74
    assert "cannot write the page" in capsys.readouterr().err
    assert cli.run(["report", str(tmp_path), "--html", str(tmp_path)]) == 74


def test_without_a_name_the_latest_run_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["report"]) == 2
    assert "no run in phantora-runs/ here has a report" in capsys.readouterr().err
    (tmp_path / "phantora-runs" / "one").mkdir(parents=True)
    (tmp_path / "phantora-runs" / "one" / "report.json").write_text(json.dumps(report()))
    assert cli.run(["report"]) == 0
    assert "a step takes 1.6 µs" in capsys.readouterr().out


def shown(content: dict[str, Any], folder: Path) -> list[str]:
    """Returns the page's texts, a section a line, as its scripts make them."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    file = folder / "page.html"
    file.write_text(page(view(content)), encoding="utf-8", errors="replace")
    run = ["node", str(Path(__file__).with_name("dom.js")), str(file)]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()


def test_figures_on_the_page_name_their_windows(tmp_path: Path) -> None:
    sections = shown(report(), tmp_path)
    assert "whole run: 12.0 µs simulated" in sections[0]
    assert any("median of steps 4 to 5" in line and "Step 1 begins with the run" in line for line in sections)
    assert any("Mean over ranks, in steps 4 to 5" in line for line in sections)
    content = report()
    for name in ("first_listed", "first_counted", "last_counted"):
        del content["simulated"]["step"][name]
    assert any("median of the steps that count" in line for line in shown(content, tmp_path))


def test_requests_have_a_section_with_their_percentiles(tmp_path: Path) -> None:
    content = report()
    assert not any("Requests" in line for line in shown(content, tmp_path))
    serving = serving_document({0: SERVED}, 100_000_000)
    content["simulated"]["generation"] = {
        "policy": "",
        "programs": [],
        "ranks": 1,
        "generating_ns": 40_000_000,
        "partial_ns": 0,
        "serving": serving,
    }
    (line,) = [line for line in shown(content, tmp_path) if line.startswith("Requests")]
    assert "3 requests with 15 tokens: 75 requests/s and 375 tokens/s while anything is generated." in line
    assert "Batch: 1.5 on average, 2 at most. KV blocks in use: 4.6 on average, 6 at most, of 100." in line
    assert "time to first token 8.33 ms 9.00 ms 10.00 ms 10.00 ms" in line


def test_a_page_of_a_run_without_gpus_shows_no_step_time(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["gpu_use"] = {"unused_ranks": [0, 1], "causes": []}
    sections = shown(content, tmp_path)
    assert "NO EMULATED GPU WAS USED" in sections[0]
    assert not any("A step takes" in line for line in sections)


def test_a_page_of_ranks_that_are_jobs_of_their_own_says_so_first(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["independent"] = True
    assert f"{content['simulated']['world_size']} independent jobs" in shown(content, tmp_path)[0]
    content["simulated"] |= {
        "independent": False,
        "collectives": 0,
        "links": {**content["simulated"]["links"], "kinds": []},
    }
    assert "each rank trains a model of its own" in shown(content, tmp_path)[0]


def test_memory_is_the_first_tile_and_a_bar(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["ranks"][1]["memory"]["reserved_peak_nbytes"] = 3 << 29
    verdict = {"fits": False, "rank": 1, "needed_nbytes": 85 << 30, "missing_nbytes": 5 << 30, "asked_nbytes": 8 << 30}
    verdict["site"] = "train.py:7"
    content["simulated"]["memory"] |= {
        "max_allocated_nbytes": 1 << 30,
        "total_nbytes": 80 << 30,
        "verdict": verdict,
        "fullest": {"rank": 1, "parts": {"parameters": 1 << 30, "gradients": 20 << 20}, "holders": []},
    }
    sections = shown(content, tmp_path)
    (tiles,) = (line for line in sections if STEP_TIME.title in line and "GPUs" in line)
    assert tiles.index("Does not fit") < tiles.index(STEP_TIME.title)
    assert "rank 1 needs at least 85.00 GiB of 80.00 GiB; 5.00 GiB are missing, at train.py:7" in tiles
    # 77 GiB are in use, 8 were asked for, 3 of which have room: 5 lie above the capacity.
    (memory,) = (line for line in sections if "Rank 1 needs at least 85.00 GiB of 80.00 GiB" in line)
    asked = "room for a part of the 8.00 GiB asked for at train.py:7: 3.00 GiB"
    for words in ("capacity 80.00 GiB", "in use 77.00 GiB", asked, "missing 5.00 GiB"):
        assert words in memory
    assert "Rank 1 at its peak: 1.02 GiB" in memory
    assert "parameters 1.00 GiB" in memory
    assert "gradients 20.0 MiB" in memory
    assert not any("at its peak" in note for note in view(content)["notes"])


def test_a_capacity_far_above_the_peaks_is_a_figure_and_no_line(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["ranks"][0]["memory"]["reserved_peak_nbytes"] = 1 << 30
    for capacity, near in ((80 << 30, False), (2 << 30, True)):
        content["simulated"]["memory"]["capacity_nbytes"] = capacity
        (memory,) = (line for line in shown(content, tmp_path) if "Largest peaks of each rank" in line)
        assert f"PyTorch can use {capacity >> 30}.00 GiB of the GPU" in memory
        assert (memory.split()[-1] == "capacity") == near, "in the legend"


def test_memory_over_the_step_that_has_the_peak(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["ranks"][0]["memory"]["reserved_peak_nbytes"] = 3 << 30
    over_step = {
        "allocations": 900,
        "parts": {"parameters": [1 << 30] * 3, "activations": [0, 1 << 30, 0]},
        "most_nbytes": [1 << 30, 3 << 30, 1 << 30],
    }
    fullest = {"rank": 0, "parts": {"parameters": 1 << 30}, "holders": [], "over_step": over_step}
    content["simulated"]["memory"] |= {"max_allocated_nbytes": 3 << 30, "fullest": fullest}
    (memory,) = (line for line in shown(content, tmp_path) if "over the step that has its peak" in line)
    assert "900 allocations, in the order in which the program asked for them" in memory
    assert "more for a moment" in memory


def test_a_card_says_what_binds_a_step_as_the_terminal_does(tmp_path: Path) -> None:
    content = report()
    for rank in content["simulated"]["ranks"]:
        rank |= {"window_ns": 100, "compute_ns": 60, "transfer_ns": 0, "peers_ns": 0, "host_bound_ns": 40, "idle_ns": 0}
        rank["host_work_ns"] = 90
    what, why = "the host", "its work takes 90% of the step, the GPU's 60% of the step"
    assert f"bound by {what}: {why} (compute" in terminal_report(content)
    (tiles,) = (line for line in shown(content, tmp_path) if "Bound by" in line)
    assert f"Bound by {what} {why}" in tiles
    content["simulated"]["step"]["source"] = "the whole run: no steps"
    assert not any("Bound by" in line for line in shown(content, tmp_path))


def test_titles_of_cards_come_from_the_table_of_figures(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["work"] |= {"flops": 1.0}
    content["simulated"]["ranks"][0]["memory"]["reserved_peak_nbytes"] = 1 << 30
    (tiles,) = (line for line in shown(content, tmp_path) if "GPUs 2 x h200" in line)
    for figure in (STEP_TIME, MFU, RESERVED):
        assert f"{figure.title} " in tiles


def scripted(code: str) -> Any:
    """Returns what an expression of the page's scripts is, without a document."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    folder = Path(cli.__file__).parent / "pages"
    text = "\n".join((folder / name).read_text() for name in ("format.js", "rows.js"))
    text += "\nel = () => ({setAttribute() {}, replaceChildren() {}});"
    told = subprocess.run(["node", "-p", f"{text}\nJSON.stringify({code})"], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)


def test_ticks_of_axes_are_round() -> None:
    told = scripted("[20e6, 2.5e6, 1.2e9, 800e3, 100e6].map(tick(seconds))")
    assert told == ["20 ms", "2.5 ms", "1.2 s", "800 µs", "100 ms"]


def test_kernels_are_searched_and_sorted() -> None:
    rows = [
        {"title": "gemm (aten::mm)", "family": "gemm", "ns": 3},
        {"title": "cast (aten::copy_)", "family": "element-wise", "ns": 9},
        {"title": "gemm (aten::addmm)", "family": "gemm", "ns": 5},
    ]
    columns = (
        "[['kernel', row => row.title, 'text long', row => row.title], ['time', row => row.ns, '', row => row.ns], "
        "['family', row => row.family, 'text', row => row.family]]"
    )

    def found(*acts: str) -> list[int]:
        told: list[int] = scripted(
            f"(rows => {{ {'; '.join(acts)}; return rows.found().map(row => row.ns); }})"
            f"(new Rows('a', {columns}, {json.dumps(rows)}, 20, 'Search'))"
        )
        return told

    search = "rows.wanted.text = 'GEMM aten'"
    assert found("0") == [3, 9, 5]
    assert found(search) == [3, 5]
    assert found(search, "rows.sort(1)") == [5, 3]
    assert found("rows.sort(1)", "rows.sort(1)") == [3, 5, 9]
    assert found("rows.sort(0)") == [9, 5, 3]


def test_modules_are_a_flame_graph(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["modules"] = {
        "ranks": 1,
        "left_out": 0,
        "memory": [{"path": ["Net", "up"], "class": "Linear", "part": "parameters", "nbytes": 1 << 20, "blocks": 1}],
        "parts": [
            module_part(["Net", "up"], "Linear", "gemm", 3000, 5000),
            module_part(["Net"], "Net", "element-wise", 1000, 0),
            module_part(["(optimizer)"], "", "optimizer", 1000, 0),
        ],
    }
    (section,) = (line for line in shown(content, tmp_path) if line.startswith("Modules"))
    assert "GPU time forward backward memory at the peak" in section
    assert "all (optimizer) optimizer Net: Net up: Linear gemm element-wise" in section
    assert "all modules: 10.0 µs, 100.0% of all" in section


def module_part(path: list[str], kind: str, family: str, forward_ns: int, backward_ns: int) -> dict[str, Any]:
    figures = {"forward_ns": forward_ns, "backward_ns": backward_ns, "launches": 1}
    return {"path": path, "class": kind, "family": family, **figures}
