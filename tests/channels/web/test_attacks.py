"""Attacks on the page by visitors and by others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import FormData
from yarl import URL

from nanobot.testing import FakeClock
from nanobot_web.markdown import to_html
from tests.channels.web.support import Visit, Web, serving

_TELEGRAM = {"enabled": False, "token": "1:" + "x" * 35}
PROXIES = (
    *(b"Via", b"X-Forwarded-Proto", b"X-Forwarded-Port", b"X-Forwarded-Server", b"X-Forwarded"),
    *(
        b"CF-Connecting-IP",
        b"CF-Ray",
        b"CF-Visitor",
        b"CDN-Loop",
        b"True-Client-IP",
        b"X-Client-IP",
    ),
    *(b"X-Cluster-Client-Ip", b"Fastly-Client-IP", b"Fly-Client-IP", b"X-Original-Host", b"X-Host"),
    *(b"X-Original-URL", b"X-Rewrite-URL", b"X-ARR-SSL", b"X-Envoy-External-Address", b"X-Varnish"),
    *(b"Tailscale-User-Login", b"X-Amzn-Trace-Id", b"X-Cloud-Trace-Context", b"X-Azure-ClientIP"),
    *(b"X-Appengine-User-IP", b"X-ProxyUser-Ip", b"WL-Proxy-Client-IP", b"Front-End-Https"),
    *(b"X-Scheme", b"X-Remote-Addr", b"Client-IP", b"X-Real-Port", b"Proxy-Connection"),
)
"""Headers of proxies, by their documentation: nginx, Apache, Caddy, Traefik, HAProxy, Envoy,
Varnish, IIS, WebLogic, Cloudflare, Akamai, Fastly, Fly, AWS, Google, Azure, Tailscale."""
_MISSING = "web:" + "b" * 32


async def _ask(base: str, *lines: bytes) -> bytes:
    """Return the head of the answer to a request that no client would send."""
    host, _, port = base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\r\n".join((*lines, b"Connection: close", b"", b"")))
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0]


REFUSED = {
    b"Host: localhost:abc": b"400",
    b"Host: localhost:99999999": b"400",
    b"Cookie: nanobot-PORT=\xff\xfe": b"401",
    b"X-Forwarded-For: 203.0.113.9": b"403",
    b"Forwarded: for=203.0.113.9": b"403",
    b"X-Real-IP: 203.0.113.9": b"403",
    b"X-Forwarded-Host: bot.example.org": b"403",
    **{name + b": x": b"403" for name in PROXIES},
}


async def test_headers_that_no_browser_here_sends_are_refused(tmp_path: Path) -> None:
    """This includes headers of an undeclared proxy, whose client may be anywhere."""
    found = {}
    async with serving(tmp_path) as web:
        place = web.base.removeprefix("http://").encode()
        for header in REFUSED:
            sent = header.replace(b"PORT", place.partition(b":")[2])
            host = () if header.startswith(b"Host") else (b"Host: " + place,)
            answer = await _ask(web.base, b"GET /chat HTTP/1.1", *host, sent)
            found[header] = answer.split()[1]
    assert found == REFUSED


async def test_a_proxy_that_adds_nothing_is_known_by_its_old_protocol(tmp_path: Path) -> None:
    """The default of nginx. The host name is that of the page."""
    async with serving(tmp_path) as web:
        host = b"Host: " + web.base.removeprefix("http://").encode()
        for version, status in ((b"1.0", b"403"), (b"1.1", b"401")):
            answer = await _ask(web.base, b"GET /chat HTTP/" + version, host)
            assert answer.split()[1] == status


async def test_headers_that_browsers_send_are_no_proxys(tmp_path: Path) -> None:
    names = (
        *(b"Accept", b"Accept-Language", b"DNT", b"Origin", b"Priority", b"Referer", b"Sec-GPC"),
        *(b"Sec-CH-UA-Platform", b"Sec-Fetch-User", b"TE", b"X-Requested-With", b"X-Form-Token"),
        *(b"X-Client-Data", b"Upgrade-Insecure-Requests", b"Save-Data", b"Cache-Control"),
    )
    async with serving(tmp_path) as web:
        host = b"Host: " + web.base.removeprefix("http://").encode()
        for name in names:
            answer = await _ask(web.base, b"GET /chat HTTP/1.1", host, name + b": x")
            assert answer.split()[1] == b"401", name


@pytest.mark.parametrize(
    "sent",
    [
        {"Content-Type": "application/x-www-form-urlencoded; charset=none-such"},
        {"Content-Type": "application/x-www-form-urlencoded; charset=ascii"},
    ],
)
async def test_a_form_in_no_encoding_is_refused(tmp_path: Path, sent: Mapping[str, str]) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        assert (await visit.post("/chat/press", b"c=\xff", **sent))[0] == 400


async def test_a_form_that_is_refused_is_answered_with_a_page(tmp_path: Path) -> None:
    """A script gets data."""
    async with serving(tmp_path) as web, web.visit() as visit:
        for accept, shown in (("text/html", "<html"), ("application/json", '{"error": "A job')):
            status, text = await visit.post("/jobs/change", {"do": "eat"}, Accept=accept)
            assert status == 400
            assert shown in text


async def _reads(visit: Visit) -> list[int]:
    return [(await visit.get(path))[0] for path in ("/chat", "/memory", "/session", "/live")]


async def test_who_is_shut_out_has_no_page_either(tmp_path: Path) -> None:
    """Signed in or not: a session outlasts a restart, but access may end."""
    config = {"channels": {"web": {"enabled": True}, "telegram": _TELEGRAM}}
    async with serving(tmp_path, config=config) as web, web.visit("telegram:7") as visit:
        assert await _reads(visit) == [403] * 4
        assert (await visit.get("/static/app.js"))[0] == 200
    allowed = {**config["channels"], "telegram": {**_TELEGRAM, "allow_from": ["7"]}}
    again = {"channels": allowed}
    async with serving(tmp_path, config=again) as web, web.visit("telegram:7") as visit:
        assert (await visit.get("/memory"))[0] == 200


async def test_an_export_of_nothing_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for chat in (_MISSING, await visit.new_chat()):
            assert (await visit.get(f"/chat/export?c={chat}"))[0] == 404


async def test_one_browser_opens_so_many_pages_and_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit, AsyncExitStack() as stack:
        statuses = []
        for _ in range(25):
            answer = await stack.enter_async_context(visit.open("/live"))
            statuses.append(answer.status)
        assert statuses == [200] * 20 + [429] * 5
        async with web.visit() as another, another.open("/live") as answer:
            assert answer.status == 200


async def test_pages_that_were_closed_do_not_count(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for _ in range(50):
            async with visit.open("/live") as answer:
                assert answer.status == 200


def _form(chat: str, event: str, files: int = 1) -> FormData:
    form = FormData({"c": chat, "event": event, "text": "look"})
    for number in range(files):
        form.add_field("files", b"x" * 1000, filename=f"{number}.txt")
    return form


def _uploads(web: Web) -> list[Path]:
    return list((web.home / "state" / "channels" / "web" / "uploads").glob("*"))


@pytest.mark.parametrize(
    ("chat", "event", "files", "status"),
    [("", "no id", 3, 400), (_MISSING, "a" * 12, 3, 404), ("", "a" * 12, 11, 413)],
)
async def test_files_of_a_message_that_is_refused_do_not_stay(
    tmp_path: Path, chat: str, event: str, files: int, status: int
) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        form = _form(chat or await visit.new_chat(), event, files)
        assert (await visit.post("/chat/send", form))[0] == status
        assert _uploads(web) == []


async def test_uploads_of_yesterday_go_when_others_come(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        chat = await visit.new_chat()
        assert (await visit.post("/chat/send", _form(chat, "a" * 12)))[0] == 200
        (old,) = _uploads(web)
        os.utime(old, (1, 1))
        assert (await visit.post("/chat/send", _form(chat, "b" * 12)))[0] == 200
        assert old not in _uploads(web)


async def test_a_form_has_so_many_fields_and_no_more(tmp_path: Path) -> None:
    form = FormData(
        {"c": _MISSING, "event": "a" * 12, **{f"f{number}": "x" for number in range(30)}}
    )
    form.add_field("files", b"x", filename="x.txt")
    async with serving(tmp_path) as web, web.visit() as visit:
        assert (await visit.post("/chat/send", form))[0] == 413


@pytest.mark.parametrize("columns", [100, 900])
def test_a_table_that_explodes_is_shown_as_text(columns: int) -> None:
    table = f"|{'a|' * columns}\n|{'-|' * columns}\n{'|' * 2}\n" + "|\n" * 8000
    assert to_html(table).startswith('<pre class="plain">')


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_form_that_never_arrives_whole_is_given_up(tmp_path: Path, kind: str) -> None:
    clock = FakeClock()
    async with serving(tmp_path, clock=clock) as web, web.visit() as ada:
        cookies = ada.session.cookie_jar.filter_cookies(URL(ada.base))
        cookie = "; ".join(f"{name}={one.value}" for name, one in cookies.items())
        lines = (
            "POST /chat/send HTTP/1.1",
            f"Host: {ada.base.removeprefix('http://')}",
            f"Cookie: {cookie}",
            f"Origin: {ada.base}",
            f"X-Form-Token: {ada.token}",
            f"Content-Type: {kind}; boundary=b",
            "Content-Length: 1000",
            "Connection: close",
            "",
            "--b\r\n" if "multipart" in kind else "text=a",
        )
        host, _, port = ada.base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write("\r\n".join(lines).encode())
        answer = asyncio.ensure_future(reader.readline())
        while not answer.done():
            await clock.advance(100)
            await asyncio.wait([answer], timeout=0.05)
        assert b" 408 " in answer.result()
        writer.close()
