"""The report's page and the live page, in a real browser: what they show, that no text of the script is HTML."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli

from .conftest import RANKS_PYTHON, SCRIPTS, Run, needs_torch

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURES = os.environ.get("PHANTORA_DOCS_PICTURES")
"""A folder for the picture in docs/seeing.md, if it is to be made again."""
MOST_MS = 240_000
"""For what a run does in real time: this machine may be busy."""
SECTIONS = ("steps", "ranks", "activity", "memory", "links", "kernels", "configuration", "notes")


def browser_path() -> str:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("needs playwright and Chromium: pip install -e '.[test]', apt-get install chromium")
    return path


class Tab:
    """A page of the browser, with what went wrong in it and what it asked the network for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self.errors.append("a dialog"))

    def assert_sound(self) -> None:
        assert self.errors == []
        assert self.page.evaluate("window.hacked") is None
        assert self.page.locator("img").count() == 0
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the window"

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())


@pytest.fixture
def tab() -> Iterator[Tab]:
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield Tab(browser.new_page(viewport={"width": 1200, "height": 900}))
        browser.close()


@pytest.fixture
def hostile_script(tmp_path: Path) -> Path:
    """A script whose name is HTML, as far as a file name can be."""
    script = tmp_path / "<img src=x onerror=window.hacked=1>.py"
    shutil.copy(SCRIPTS / "hostile_texts.py", script)
    return script


def painted(tab: Tab, section: str) -> int:
    """Returns how many colours the first picture of the section has."""
    return int(
        tab.page.evaluate(
            """section => {
                const canvas = document.querySelector(`#${section} canvas`);
                const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                const seen = new Set();
                for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 4).join());
                return seen.size;
            }""",
            section,
        )
    )


def test_the_report_s_page(run: Run, tab: Tab, hostile_script: Path, tmp_path: Path) -> None:
    finished = run(hostile_script, "5", "0", n=4, options=("--reasons",))
    assert finished.exit_code == 0, finished.output
    file = tmp_path / "report.html"
    assert cli.run(["report", str(tmp_path / "report0.json"), "--html", str(file)]) == 0
    tab.page.goto(file.as_uri())
    tab.assert_sound()
    assert tab.requests == [file.as_uri()]
    assert [tab.page.locator(f"#{section}").count() for section in SECTIONS] == [1] * len(SECTIONS)
    assert "<img src=x onerror=window.hacked=1>.py 5 0" in tab.text("h1")
    for section in ("steps", "ranks", "activity", "memory", "links", "reasons"):
        assert painted(tab, section) > 5, section

    # The figures are the report's.
    simulated = finished.simulated
    ms = f"{simulated['step']['median_ns'] / 1e6:.2f} ms"
    assert ms in tab.text("#key")
    tab.page.locator("#ranks summary").click()
    rows = tab.page.locator("#ranks tbody tr").all_inner_texts()
    spent = [rank["compute_ns"] / rank["window_ns"] for rank in simulated["ranks"]]
    assert [row.split("\t")[1] for row in rows] == [f"{100 * share:.1f}%" for share in spent]
    reasons = simulated["reasons"]
    parts = tab.page.locator("#reasons table").first.locator("tbody tr").all_inner_texts()
    assert [part.split("\t")[0] for part in parts] == [
        f"{100 * part['ns'] / reasons['ns']:.1f}%" for part in reasons["parts"][: len(parts)]
    ]
    titles = tab.page.locator("#rows-work td.long").all_inner_texts()
    assert titles[0] == simulated["kernels"]["signatures"][0]["title"]

    # By keyboard: the cursor moves, and the line below says where it is.
    tab.page.locator("#activity canvas").focus()
    for key in ("ArrowRight", "ArrowDown", "End"):
        tab.page.keyboard.press(key)
    assert re.match(r"rank 1, .* to .*: ", tab.text("#activity output"))
    if PICTURES:
        tab.page.keyboard.press("Escape")
        tab.page.set_viewport_size({"width": 1000, "height": 1180})
        tab.page.screenshot(path=str(Path(PICTURES) / "report.png"))

    # On a phone, and dark.
    before = painted(tab, "activity")
    tab.page.emulate_media(color_scheme="dark")
    tab.page.set_viewport_size({"width": 390, "height": 800})
    tab.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab.assert_sound()
    assert before > 5
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
    name = tab.page.locator("#rows-work td.long").first.bounding_box()
    assert name is not None
    assert 0 <= name["x"] < name["x"] + name["width"] <= 390, "names of kernels are on the screen"


def test_a_thousand_ranks_fit_on_a_page(tab: Tab, tmp_path: Path) -> None:
    from ..unit.pages.test_page import report

    made = report()
    simulated = made["simulated"]
    ranks = [simulated["ranks"][0] | {"rank": rank, "compute_ns": 1000 + rank} for rank in range(1000)]
    row = {"allocated": [[1, 5 << 30]], "reserved": [[1, 6 << 30]], "compute": "/A" * 64}
    row |= dict.fromkeys(("transfer", "peers", "host_bound", "idle"), "A" * 128)
    blocks = [row | {"ranks": list(range(first, min(first + 16, 1000)))} for first in range(0, 1000, 16)]
    simulated |= {
        "world_size": 1000,
        "servers": [8] * 125,
        "ranks": ranks,
        "activity": {"part_ns": 1 << 20, "until_ns": 128 << 20, "ranks": blocks},
    }
    (tmp_path / "report.json").write_text(json.dumps(made))
    assert cli.run(["report", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    tab.page.goto((tmp_path / "page.html").as_uri())
    tab.assert_sound()
    assert "Where the time of 1,000 GPUs goes" in str(tab.page.locator("#ranks canvas").get_attribute("aria-label"))
    assert tab.page.evaluate("document.documentElement.scrollHeight") < 6000
    tab.page.locator("#activity canvas").focus()
    tab.page.keyboard.press("ArrowRight")
    assert tab.text("#activity output").startswith("ranks 0-15, 0.0 µs to 1.05 ms: 100% compute")


@contextlib.contextmanager
def live_run(script: Path, run_dir: Path, *arguments: str) -> Iterator[tuple[Any, str]]:
    """Yields the process and the page's address, of a run that lasts very long without `arguments`."""
    needs_torch()
    command = [sys.executable, "-m", "phantora_async", "run", "--ui", "-n", "4", "--python", RANKS_PYTHON]
    command += ["--run-dir", str(run_dir), str(script), "1000", "0.2", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said = []
        for line in process.stderr or ():
            said.append(line)
            found = re.search(r"live page: (http://127\.0\.0\.1:\d+/\?token=\S+)", line)
            if found:
                yield process, found[1]
                break
        else:
            pytest.fail("".join(said))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        if process.stderr is not None:
            process.stderr.read()
        process.wait()


def test_the_live_page(tab: Tab, hostile_script: Path, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    seen = tmp_path / "everything has been seen"
    with live_run(hostile_script, tmp_path / "run", str(seen)) as (process, url):
        page = tab.page
        page.goto(url)
        page.wait_for_selector("#progress", timeout=MOST_MS)
        page.wait_for_selector("#steps", timeout=MOST_MS)
        told = page.locator("#progress", has_text=re.compile("% done .the script.s log, which counts to 1,?000.*left"))
        told.wait_for(timeout=MOST_MS)
        page.reload()  # everything is there again
        page.wait_for_selector("#steps", timeout=MOST_MS)
        assert "starting" in tab.text("#states .legend")
        other = page.context.browser.new_page()
        other.goto(url)
        other.wait_for_selector("#states", timeout=MOST_MS)
        other.close()  # goes away midway
        elapsed = page.locator("#progress dd").nth(1)
        expect(elapsed).not_to_have_text(elapsed.inner_text(), timeout=MOST_MS)
        assert page.locator(".banner").inner_text() == "The run is under way. This page changes as it goes on."
        seen.touch()
        page.wait_for_selector(".banner.good", timeout=MOST_MS)
        assert tab.text(".banner") == "The run has ended. This page no longer changes."
        assert page.locator("#progress").count() == 0
        assert [page.locator(f"#{section}").count() for section in SECTIONS] == [1] * len(SECTIONS)
        tab.assert_sound()
        base = url.partition("?")[0]
        assert {request.partition("?")[0] for request in tab.requests} == {base, f"{base}events"}
        process.stderr.read()
        assert process.wait() == 0
    step = json.loads((tmp_path / "run" / "report.json").read_text())["simulated"]["step"]
    assert f"{step['median_ns'] / 1e6:.2f} ms" in tab.text("#key")


def test_an_interrupted_run_says_so_on_its_page(tab: Tab, tmp_path: Path) -> None:
    with live_run(SCRIPTS / "hostile_texts.py", tmp_path / "run") as (process, url):
        tab.page.goto(url)
        tab.page.wait_for_selector("#steps", timeout=MOST_MS)
        process.send_signal(signal.SIGINT)
        tab.page.wait_for_selector(".banner.bad", timeout=MOST_MS)
        assert "The run failed with exit code 130:\ninterrupted" in tab.text(".banner")
        assert tab.page.locator("#progress").count() == 0
        process.stderr.read()
        assert process.wait() == 130


def test_two_runs_cannot_have_one_port(tmp_path: Path) -> None:
    needs_torch()
    with live_run(SCRIPTS / "hostile_texts.py", tmp_path / "one") as (_, url):
        port = url.partition("1:")[2].partition("/")[0]
        command = [sys.executable, "-m", "phantora_async", "run", "--ui", port, "--run-dir", str(tmp_path / "two")]
        second = subprocess.run([*command, str(SCRIPTS / "traced.py")], capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr.startswith(f"error: --ui {port}: another program uses this port\nhint: choose another port")
    assert not (tmp_path / "two").exists()
