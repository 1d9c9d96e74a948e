"""The page of a sweep in a real browser: filters, sorting, nothing from the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phantora_async.study.outcome.page import sweep_page

from .test_pages import Tab, browser_path


def trial(batch: int, gpu: str, time: float, memory: float, **more: Any) -> dict[str, Any]:
    told = {
        "trial": f"batch={batch} gpu={gpu}",
        "chosen": {"--batch": batch, "gpu": gpu},
        "how": "run",
        "state": "done",
        "compared": True,
        "reason": "",
        "front": False,
        "values": {"time": time, "memory": memory},
        "shown": [{"title": "step", "text": f"{time:.1f} s", "value": time or None}],
    }
    return told | more


DOCUMENT = {
    "objectives": ["time", "memory"],
    "by": "million_tokens",
    "currency": "$",
    "includes": "what costs include",
    "remarks": ["<b>two trials</b> are equally fast", "what costs include"],
    "trials": [
        trial(1, "h100", 3.0, 10e9, front=True),
        trial(2, "h100", 2.0, 20e9, front=True),
        trial(10, "h200", 2.5, 30e9),
        trial(4, "h100", 0, 0, compared=False, reason="out of memory", values={"time": None, "memory": None}),
    ],
    "best": {"time": {"trial": "<script>hacked = 1</script>", "command": "phantora-async run"}},
}


def rows(tab: Tab) -> list[str]:
    """Returns the first cells of those that are shown."""
    return [str(one) for one in tab.page.locator("#table tbody tr:visible td:first-child").all_inner_texts()]


def test_the_page_filters_and_sorts(tmp_path: Path) -> None:
    path = browser_path()
    from playwright.sync_api import expect, sync_playwright

    (tmp_path / "page.html").write_text(sweep_page(DOCUMENT, "a <study>"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = Tab(browser.new_page(viewport={"width": 400, "height": 800}))
        page = tab.page
        page.goto((tmp_path / "page.html").as_uri())
        assert tab.text("#count") == "4 of 4 trials"
        assert tab.text("h1") == "a <study>"
        page.get_by_label("gpu").select_option("h100")
        assert rows(tab) == ["2", "1", "4"], "the best one first"
        assert page.locator("ul.notes li").all_inner_texts() == ["<b>two trials</b> are equally fast"]
        page.get_by_label("only those that are compared").check()
        assert rows(tab) == ["2", "1"]
        assert page.locator("circle:visible").count() == 2
        page.get_by_role("button", name="Show all").click()
        expect(page.locator("#count")).to_have_text("4 of 4 trials")
        page.get_by_role("button", name="--batch").click()
        assert rows(tab) == ["1", "2", "4", "10"], "as numbers"
        page.get_by_role("button", name="step").click()
        assert rows(tab) == ["2", "10", "1", "4"], "what is not known comes last"
        page.get_by_role("button", name="step").press("Enter")
        assert rows(tab) == ["1", "10", "2", "4"]
        assert page.locator("th[aria-sort=descending]").count() == 1
        page.get_by_label("Text").fill("memory")
        assert rows(tab) == ["4"]
        tab.assert_sound()
        assert tab.requests == [(tmp_path / "page.html").as_uri()]
        browser.close()
