"""Measure the page on a home after years of use, and the size of its first view.

The home has 10,000 conversations, one of 15,000 messages, 5,000 turns and 1,200 versions of memory.
The gateway is a separate process, and a client signs in over HTTP. Times are medians of 20
requests, wall clock, from the first byte sent to the last one read. CPU is the gateway's in them,
which does not depend on other load. Some pages are opened once more after another start, before
anything was read. Bytes count bodies, in gzip as a browser requests them, and headers.

    python -m bench.web [--first] [--json]    with --first only the first view, of an empty home"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import os
import re
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from bench.common import START, median, write_session
from bench.reporting import report
from bench.startup import NANOBOT, cpu_seconds, running_gateway
from nanobot.bus.journal import Completion
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.cli.client import Client
from nanobot.clock import SystemClock
from nanobot.memory.gitstore import GitStore
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from tests.ports import free_port

CHATS, MESSAGES, TURNS, VERSIONS = 10_000, 15_000, 5_000, 1_200
ROUNDS = 20
_LONG, _FACTS, _SETTLED = "web:0123456789ab", 300, 3.0
_WANTED = "<= 150"
PAGES: Mapping[str, str] = {
    "chat": "/chat",
    "chat, the second page of the list": "/chat/list?offset=40",
    "chat, a search for a name": "/chat/list?q=chat-77",
    "chat, a search for words of all messages": "/chat?q=weather+cook",
    "chat, a search for one letter": "/chat/list?q=w",
    "chat, a search without results": "/chat/list?q=zebra",
    "chat, the archive": "/chat?archived=1",
    "chat, a message of the long conversation": f"/chat?c={_LONG}&m=700",
    "chat, the menu of the long conversation": f"/chat/menu?c={_LONG}",
    "chat, deleting it": f"/chat/delete?c={_LONG}",
    "chat, a temporary one": "/chat/temporary",
    "chat, the long conversation": f"/chat?c={_LONG}",
    "chat, an older piece of it": f"/chat/older?c={_LONG}&before=7000",
    "chat, a search in it": f"/chat/find?c={_LONG}&q=message+1234",
    "chat, first bytes of its stream": f"/live?c={_LONG}&after={MESSAGES}",
    "memory": "/memory",
    "memory, a fact": "/memory/fact?id={fact}",
    "memory, versions": "/memory/versions",
    "memory, old versions": "/memory/versions?offset=1000",
    "memory, what an old one changed": "/memory/version?n=600",
    "memory, a search": "/memory/search?q=weather",
    "memory, pending": "/memory/pending",
    "memory, notes": "/memory/notes",
    "memory, history": "/memory/history",
    "activity": "/activity",
    "activity, a turn": f"/activity/turn?id=turn-{TURNS - 10}",
    "activity, tools": "/activity/tools",
    "activity, the log": "/activity/log",
    "figures": "/figures",
    "figures of a year": "/figures?days=365",
    "jobs": "/jobs",
    "approvals": "/approvals",
    "people": "/people",
    "health": "/health",
    "settings": "/settings/model",
    "settings, all": "/settings",
}
"""The measured pages and their paths."""
_FIRST = (
    *("memory, versions", "memory, a fact", "memory, a search", "people", "chat"),
    *("chat, a search for words of all messages", "chat, the archive"),
)
"""Pages that are also opened after another start."""


class _Then(SystemClock):
    """A clock that is set while a home is filled."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


def fill(home: Path) -> None:
    """Write years of use into an empty home."""
    for number in range(CHATS - 1):
        write_session(home, f"telegram:chat-{number}", 4, 0, archived=number % 10 == 9)
    write_session(home, _LONG, MESSAGES, MESSAGES - 100)
    asyncio.run(_write_turns(home))
    _write_versions(home)


async def _write_turns(home: Path) -> None:
    """Write turns over the last 29 days, every tenth in the long conversation."""
    clock = _Then(SystemClock().now() - timedelta(days=29))
    (home / "state").mkdir(exist_ok=True)
    journal = SqliteJournal(home / "state" / "journal.db", clock)
    await journal.open()
    ended = []
    for number in range(TURNS):
        key = _LONG if number % 10 == 0 else f"telegram:chat-{number % 200}"
        clock.at += timedelta(days=28) / TURNS
        used = f'"prompt_tokens":{4000 + number % 900},"cached_tokens":3000,"completion_tokens":90'
        first = MESSAGES - 2 * TURNS // 10 + number // 5 if key == _LONG else 1
        told = f'"model":"bench","milliseconds":{900 + number % 700},"first_seq":{first},{used}'
        journal.claim(f"turn-{number}", key, (), at_once=True)
        done = Completion(f"turn-{number}", key, (), "done", report=f"{{{told}}}")
        ended.append(asyncio.ensure_future(journal.complete(done)))
        await asyncio.sleep(0)
    await asyncio.gather(*ended)
    await journal.close()


def _write_versions(home: Path) -> None:
    """Write learned facts, and then change them one after the other."""
    path = home / "workspace" / "memory" / "MEMORY.md"
    path.parent.mkdir(parents=True)
    facts = [f"- Fact {number} about the weather, work and cooking." for number in range(_FACTS)]
    clock = _Then(START)
    versions = GitStore(home / "state", Root(home / "workspace"), clock)
    before = None
    for number in range(VERSIONS):
        clock.at += timedelta(hours=3)
        facts[number % _FACTS] = f"- Fact {number}, as it was learned on {clock.at:%d %B}."
        after = "\n".join(["# Memory", "", "## Life", "", *facts, ""]).encode()
        change = Change("dream", f"learned fact {number}")
        versions.write("memory/MEMORY.md", before, after, change, partial(_put, path, after))
        before = after


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


class Visit:
    """A signed-in client of the gateway `pid`, with one connection."""

    def __init__(self, home: Path, pid: int) -> None:
        with contextlib.closing(Client(home)) as client:
            data = client.ask("web.link", {})
        assert isinstance(data, dict)
        link = urlsplit(str(data["url"]))
        self._pid, self._cookie = pid, ""
        self._connection = http.client.HTTPConnection(str(link.hostname), link.port, timeout=60)
        answer = self._request(f"{link.path}?{link.query}")
        answer.read()
        self._cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]

    def get(self, path: str) -> tuple[str, int]:
        """Return a page and its bytes on the wire. Of a stream only the beginning is read."""
        answer = self._request(path)
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status} {answer.read()[:200]!r}")
        head = sum(len(name) + len(value) + 4 for name, value in answer.headers.items())
        if "event-stream" not in answer.headers.get("Content-Type", ""):
            body = answer.read()
            packed = answer.headers.get("Content-Encoding") == "gzip"
            text = gzip.decompress(body) if packed else body
            return text.decode(errors="replace"), head + len(body)  # or a picture
        lines, first = list[bytes](), b"data: " if "?" in path else b"retry: "
        while not lines or not lines[-1].startswith(first):
            lines.append(answer.readline())
        self._connection.close()
        return "", head + sum(map(len, lines))

    def measure(self, path: str) -> tuple[float, float, int]:
        """Return the median milliseconds, the gateway's CPU in them, and the size of a page."""
        _, size = self.get(path)
        took, before = list[float](), cpu_seconds(self._pid)
        for _ in range(ROUNDS):
            started = time.perf_counter()
            self.get(path)
            took.append((time.perf_counter() - started) * 1000)
        used = (cpu_seconds(self._pid) - before) / ROUNDS * 1000
        return median(took), used, size

    def once(self, path: str) -> float:
        """Return the milliseconds of the gateway's CPU for a page that is opened once."""
        before = cpu_seconds(self._pid)
        self.get(path)
        return (cpu_seconds(self._pid) - before) * 1000

    def new_chat(self) -> tuple[str, str]:
        """Return the key of a new chat, and the form token."""
        answer = self._request("/chat/new")
        answer.read()
        key = parse_qs(urlsplit(answer.headers["Location"]).query)["c"][0]
        token = re.search(r'name="form-token" content="([0-9a-f]+)"', self.get("/chat")[0])
        assert token is not None
        return key, token[1]

    def open(self, path: str) -> http.client.HTTPResponse:
        """Return a stream, on a connection of its own."""
        connection = http.client.HTTPConnection(self._connection.host, self._connection.port)
        connection.request("GET", path, headers={"Cookie": self._cookie})
        return connection.getresponse()

    def post(self, path: str, fields: Mapping[str, str], token: str) -> None:
        """Send a form."""
        host = f"{self._connection.host}:{self._connection.port}"
        headers = {"Cookie": self._cookie, "X-Form-Token": token, "Origin": f"http://{host}"}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        self._connection.request("POST", path, urlencode(fields), headers)
        answer = self._connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status} {answer.read()[:200]!r}")
        answer.read()

    def _request(self, path: str) -> http.client.HTTPResponse:
        headers = {
            "Accept": "text/html",
            "Accept-Encoding": "gzip",
            "Cookie": self._cookie,
        }
        self._connection.request("GET", path, headers=headers)
        return self._connection.getresponse()


def _settle(pid: int) -> None:
    """Wait until the gateway has finished the work of a start, such as indexing."""
    before = -1.0
    while (now := cpu_seconds(pid)) != before:
        before = now
        time.sleep(_SETTLED)


def first_view(visit: Visit) -> tuple[int, int]:
    """Return the requests and bytes of the first page, with its resources and its stream."""
    html, size = visit.get("/chat")
    loaded = {*re.findall(r'(?:href|src)="(/static/[^"]+)"', html), "/live"}
    return 1 + len(loaded), size + sum(visit.get(one)[1] for one in loaded)


def measure(home: Path) -> Generator[tuple[str, object]]:
    """Yield all figures of a filled home."""
    port = free_port()
    own = f"http:\n  port: {port}\nchannels:\n  web:\n    enabled: true\n"
    (home / "config.yaml").write_text(own)
    environ = {**os.environ, "NANOBOT_HOME": str(home)}
    with running_gateway(environ, NANOBOT) as (pid, _):
        _settle(pid)
        visit = Visit(home, pid)
        requests, size = first_view(visit)
        yield "first view [requests] (target <= 10)", requests
        yield "first view [kB] (target <= 80)", size / 1000
        facts = re.findall(r"/memory/fact\?[^\"]*id=([^\"&]+)", visit.get("/memory")[0])
        pages = {name: path.replace("{fact}", quote(facts[0])) for name, path in PAGES.items()}
        for name, path in pages.items():
            took, used, size = visit.measure(path)
            yield f"{name} [ms] (target {_WANTED})", took
            yield f"{name}, CPU [ms] (target {_WANTED})", used
            yield f"{name} [kB]", size / 1000
    for name in _FIRST:
        with running_gateway(environ, NANOBOT) as (pid, _):
            _settle(pid)
            visit = Visit(home, pid)
            visit.get("/activity/log")  # load the parts of every page
            used = visit.once(pages[name])
            yield f"{name}, first after a start, CPU [ms] (target {_WANTED})", used


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if "--first" in sys.argv:
            with contextlib.closing(measure(Path(folder))) as figures:
                report("web", dict(islice(figures, 2)))
            return
        fill(Path(folder))
        report("web", dict(measure(Path(folder))))


if __name__ == "__main__":
    main()
