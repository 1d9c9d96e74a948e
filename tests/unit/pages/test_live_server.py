"""The live page's server: who may look, what viewers are sent, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("aiohttp")
import aiohttp

from phantora_async.pages import live_server
from phantora_async.pages.live_page import LivePage
from phantora_async.pages.live_server import LiveServer
from phantora_async.pages.pace import EVERY_S, Pace

from .test_page import HOSTILE, Parsed, report

TOKEN = "a-token"


@pytest.fixture
def told() -> list[str]:
    """The texts that the user is told."""
    return []


@pytest_asyncio.fixture
async def server(told: list[str]) -> AsyncIterator[LiveServer]:
    it = LiveServer(socket.create_server(("127.0.0.1", 0)), TOKEN, HOSTILE, told.append)
    await it.start()
    yield it
    await it.close({})


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def next_event(stream: aiohttp.StreamReader) -> tuple[str, dict[str, Any]]:
    """Returns the event's name, and its data."""
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


def place_of(server: LiveServer) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.partition("1:")[2].partition("/")[0])


async def answer(server: LiveServer, said: bytes) -> bytes:
    """Returns the answer's first line."""
    reader, writer = await asyncio.open_connection(*place_of(server))
    writer.write(said)
    line = b""
    with contextlib.suppress(ConnectionError):
        line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize(
    "said",
    [
        bytes(2000),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"CONNECT [ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "GET /?token=ü HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        b"GET /?token=a-token HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_malformed_requests_are_answered_without_a_word(
    server: LiveServer,
    told: list[str],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    said: bytes,
) -> None:
    host = "{}:{}".format(*place_of(server)).encode()
    assert b" 400 " in await answer(server, said.replace(b"{host}", host))
    assert (told, caplog.records, capfd.readouterr()) == ([], [], ("", ""))


async def test_what_is_no_event_stream_is_ignored(
    server: LiveServer, told: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """A body that is not what its head says, and frames after an upgrade that nobody granted."""
    heads = (b"Content-Encoding: gzip\r\nContent-Length: 5", b"Connection: Upgrade\r\nUpgrade: websocket")
    for path in (b"/", b"/events"):
        for head in heads:
            host = "{}:{}".format(*place_of(server)).encode()
            request = b"GET %s?token=a-token HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n\xff\xff\xff\xff\xff"
            assert b" 200 " in await answer(server, request % (path, host, head))
    assert (told, capfd.readouterr()) == ([], ("", ""))


async def test_an_error_of_our_own_is_told_in_a_line(
    server: LiveServer, client: aiohttp.ClientSession, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(server, "_check", broken)
    async with client.get(server.url) as response:
        assert response.status == 500
    assert len(told) == 1
    assert told[0].endswith("KeyError('x')")
    assert "\n" not in told[0]


async def test_silent_connections_do_not_keep_a_viewer_out(server: LiveServer, client: aiohttp.ClientSession) -> None:
    server.publish({"a": 1})
    async with client.get(events_of(server)) as first:
        assert await next_event(first.content) == ("message", {"a": 1})
        silent = [await asyncio.open_connection(*place_of(server)) for _ in range(300)]
        async with client.get(events_of(server)) as second:
            assert await next_event(second.content) == ("message", {"a": 1})
            server.publish({"a": 2})
            assert await next_event(first.content) == ("message", {"a": 2}), "viewers keep their places"
        assert len(server._visits) <= live_server.MOST_VISITORS
    for _, end in silent:
        end.close()


async def test_a_connection_that_looks_at_nothing_is_closed(
    server: LiveServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.publish({"a": 1})
    async with client.get(events_of(server)) as viewer:
        assert await next_event(viewer.content) == ("message", {"a": 1})
        monkeypatch.setattr(live_server, "PATIENCE_S", 0.1)
        assert await answer(server, b"GET / HTTP/1.1\r\n") == b""
        server.publish({"a": 2})
        assert await next_event(viewer.content) == ("message", {"a": 2})


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


async def test_a_path_that_is_not_utf_8_is_shown(server: LiveServer, client: aiohttp.ClientSession) -> None:
    server.publish({"script": "a\udcff.py"})
    async with client.get(events_of(server)) as one:
        assert await next_event(one.content) == ("message", {"script": "a\\udcff.py"})


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

    page = LivePage(socket.create_server(("127.0.0.1", 0)), TOKEN, "train.py", ("--lr", "1"), print)
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
