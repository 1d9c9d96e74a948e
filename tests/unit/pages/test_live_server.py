"""The live page's server: who may look, what viewers are sent, and how it ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("aiohttp")
import aiohttp

from phantora_async.pages.live_page import LivePage
from phantora_async.pages.live_server import LiveServer
from phantora_async.pages.pace import EVERY_S, Pace

from .test_page import HOSTILE, Parsed, report

TOKEN = "a-token"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[LiveServer]:
    it = LiveServer(socket.create_server(("127.0.0.1", 0)), TOKEN, HOSTILE)
    await it.start()
    yield it
    await it.close({})


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def next_event(stream: aiohttp.StreamReader) -> tuple[str, dict[str, Any]]:
    """Its name, and its data."""
    name = "message"
    while True:
        line = (await stream.readline()).decode()
        assert line, "the stream has ended"
        if line.startswith("event: "):
            name = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            await stream.readline()
            return name, json.loads(line.removeprefix("data: "))


def events_of(server: LiveServer) -> str:
    return server.url.replace("/?", "/events?")


async def test_the_page_is_served_with_its_token(server: LiveServer, client: aiohttp.ClientSession) -> None:
    async with client.get(server.url) as response:
        assert response.status == 200
        assert response.headers["Cache-Control"] == "no-store"
        text = await response.text()
    assert [tag for tag, _ in Parsed(text).elements].count("script") == 2
    assert "connect-src 'self'" in text


@pytest.mark.parametrize("path", ["/", "/events"])
@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("", {}),
        ("?token=", {}),
        ("?token=another", {}),
        (f"?token={TOKEN}", {"Host": "evil.example"}),
        (f"?token={TOKEN}", {"Host": "evil.example:{port}"}),
        (f"?token={TOKEN}", {"Origin": "http://evil.example"}),
        (f"?token={TOKEN}", {"Origin": "null"}),
        (f"?token={TOKEN}", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
    ],
)
async def test_others_are_refused(
    server: LiveServer, client: aiohttp.ClientSession, path: str, query: str, headers: dict[str, str]
) -> None:
    port = server.url.partition("1:")[2].partition("/")[0]
    told = {name: value.format(port=port) for name, value in headers.items()}
    async with client.get(f"http://127.0.0.1:{port}{path}{query}", headers=told) as response:
        assert response.status == 403
        assert TOKEN not in await response.text()
    assert server.viewers == 0


async def test_it_listens_on_this_machine_alone(server: LiveServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


async def test_viewers_are_sent_what_changes(server: LiveServer, client: aiohttp.ClientSession) -> None:
    server.publish({"a": 1, "b": [HOSTILE.replace("\ud800", "")]})
    async with client.get(events_of(server)) as one:
        assert one.content_type == "text/event-stream"
        assert await next_event(one.content) == ("message", {"a": 1, "b": [HOSTILE.replace("\ud800", "")]})
        server.publish({"a": 2, "b": [HOSTILE.replace("\ud800", "")]})
        assert await next_event(one.content) == ("message", {"a": 2})
        async with client.get(events_of(server)) as other:  # a reload: everything is sent again
            assert (await next_event(other.content))[1].keys() == {"a", "b"}
            assert server.viewers == 2
            await server.close({"ended": "so it ended"})
            assert await next_event(one.content) == ("message", {"ended": "so it ended"})
            assert await next_event(other.content) == ("message", {"ended": "so it ended"})
            assert (await next_event(one.content))[0] == "over"
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.get(server.url)


async def test_a_browser_that_disconnects_is_forgotten(server: LiveServer, client: aiohttp.ClientSession) -> None:
    looks = asyncio.create_task(server.somebody_looks())
    response = await client.get(events_of(server))
    await looks
    response.close()
    while server.viewers:
        server.publish({"n": 1})
        await asyncio.sleep(0.01)
    looks = asyncio.create_task(server.somebody_looks())
    await asyncio.sleep(0.01)
    assert not looks.done()  # nobody looks: no state is made
    looks.cancel()


async def test_a_run_without_viewers_is_not_asked(client: aiohttp.ClientSession) -> None:
    """The state is made when somebody looks, and the end is told to those that look."""
    asked = []

    class Run:
        def progress(self) -> dict[str, Any]:
            asked.append("progress")
            return {"live": {"progress": {"steps": 3}}, "simulated": {"collectives": 7}}

        def ranks(self) -> dict[str, Any]:
            asked.append("ranks")
            return {"live": {"states": {}}, "simulated": {"ranks": []}}

        def report_so_far(self) -> dict[str, Any]:
            asked.append("report")
            return report()

    page = LivePage(socket.create_server(("127.0.0.1", 0)), TOKEN, "train.py", ("--lr", "1"))
    await page.start()
    shown = asyncio.create_task(page.show(Run()))
    await asyncio.sleep(0.05)
    assert asked == []
    async with client.get(page.url.replace("/?", "/events?")) as response:
        seen: dict[str, Any] = {}
        while not {"report.simulated.step", "live.progress"} <= seen.keys():
            seen |= (await next_event(response.content))[1]
        assert asked == ["report", "ranks", "progress"]
        assert seen["title"] == "train.py --lr 1"
        assert seen["report.simulated.collectives"] == 7
        shown.cancel()
        closing = asyncio.create_task(page.close(report() | {"exit_code": 5}, "it has ended"))
        _, last = await next_event(response.content)
        assert (last["report.exit_code"], last["ended"], last["live"]) == (5, "it has ended", None)
        await closing


def test_a_state_that_takes_long_is_made_seldom() -> None:
    pace = Pace(share=0.01)
    assert pace.due(10.0)
    pace.took(10.0, 0.001)
    assert not pace.due(10.0 + EVERY_S / 2)
    assert pace.due(10.0 + EVERY_S)
    pace.took(20.0, 0.5)
    assert not pace.due(69.0)
    assert pace.due(70.0)
