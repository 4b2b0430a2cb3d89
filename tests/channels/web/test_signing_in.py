"""Access: one-time links, sessions, and requests from other places."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import ClientSession, CookieJar

from nanobot.testing.model import ScriptedModel
from nanobot_web.channel import routes
from tests.channels.web.support import Visit, Web, serving


async def test_without_a_session_there_is_the_page_to_sign_in_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as web, ClientSession() as session:
        nobody = Visit(web.base, session, "0" * 64)
        for method, path in [*routes(), ("GET", "/nowhere"), ("GET", "/static/app.js")]:
            status, text = await (nobody.get(path) if method == "GET" else nobody.post(path))
            assert status == 401, path
            assert "not signed in" in text
            assert "script" not in text
        for path in ("/static/style.css", "/static/icon.svg"):
            assert (await nobody.get(path))[0] == 200


async def test_a_link_works_once_and_a_stolen_one_after_that_opens_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, ClientSession() as thief:
        link = (await web.link()).removeprefix(web.base)
        jar = CookieJar(unsafe=True)
        async with ClientSession(cookie_jar=jar) as session:
            mine = Visit(web.base, session)
            assert (await mine.get(link))[0] == 200
            assert (await mine.get("/chat"))[0] == 200
            (cookie,) = jar
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"
            for again in (mine, Visit(web.base, thief)):
                status, text = await again.get(link)
                assert status == 401
                assert "was already used" in text
            assert (await Visit(web.base, thief).get("/chat"))[0] == 401
            assert (await mine.get("/chat"))[0] == 200


@pytest.mark.parametrize("which", ["all", "owner"])
async def test_unused_links_are_revoked_too(tmp_path: Path, which: str) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        links = [await web.link(), str((await web.ask("web.link", setup=True))["url"])]
        await web.ask("web.revoke", id=which)
        for link in links:
            assert (await visit.get(link.removeprefix(web.base)))[0] == 401


async def test_a_session_outlasts_a_restart_and_ends_when_it_is_revoked(tmp_path: Path) -> None:
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        async with serving(tmp_path) as web:
            port = int(web.base.rpartition(":")[2])
            visit = Visit(web.base, session)
            await visit.get((await web.link()).removeprefix(web.base))
        kept = (tmp_path / "state" / "channels" / "web" / "sessions.json").read_text()
        secrets = [cookie.value for cookie in session.cookie_jar]
        assert not any(secret in kept for secret in secrets)
        async with serving(tmp_path, port=port) as web:
            assert (await visit.get("/chat"))[0] == 200
            (one,) = (await web.ask("web.list"))["sessions"]
            assert one["account"] == "owner"
            await web.ask("web.revoke", id=one["id"])
            assert (await visit.get("/chat"))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_change_asked_for_by_another_site_is_refused(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    model = ScriptedModel()
    async with serving(tmp_path, model) as web, web.visit() as visit:
        data = {"c": "web:0123456789ab", "event": "0" * 12, "text": "hello"}
        status, _ = await visit.post("/chat/send", data, **headers)
        assert status == 403
    assert model.prompts == []


async def test_a_change_needs_the_token_of_its_session(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with serving(tmp_path, model) as web, web.visit() as visit, web.visit() as other:
        data = {"c": "web:0123456789ab", "event": "0" * 12, "text": "hello"}
        for token in ("", "x", other.token):
            assert (await visit.post("/chat/send", data, token=token))[0] == 403
    assert model.prompts == []


async def test_the_page_is_reached_from_this_machine_alone_or_under_a_declared_address(
    tmp_path: Path,
) -> None:
    channels = {"web": {"enabled": True, "address": "https://bot.example.org"}}
    config = {"channels": channels, "http": {"public_hosts": ["bot.example.org", "other.example"]}}
    async with serving(tmp_path, config=config) as web, ClientSession() as session:
        visit = Visit(web.base, session)
        for host, status in (
            ("evil.example", 421),  # no name of ours: rebinding
            ("192.0.2.7", 403),  # no encryption on the way
            ("other.example", 403),
            ("bot.example.org", 401),
            ("localhost", 401),
        ):
            assert (await visit.get("/chat", Host=host))[0] == status, host
        link = (await web.link()).partition("org")[2]
        async with session.get(f"{web.base}{link}", headers={"Host": "bot.example.org"}) as answer:
            assert answer.status == 200
            assert answer.cookies.popitem()[1]["secure"]


_TELEGRAM = {"enabled": False, "token": "1:" + "x" * 35, "allow_from": ["12"]}


@contextlib.asynccontextmanager
async def _both(web: Web) -> AsyncIterator[tuple[Visit, Visit]]:
    """Sign in the owner and a person."""
    async with web.visit() as owner, web.visit("telegram:12") as ana:
        yield owner, ana


async def test_a_person_sees_what_is_their_own(tmp_path: Path) -> None:
    config = {"channels": {"web": {"enabled": True}, "telegram": _TELEGRAM}}
    async with serving(tmp_path, config=config) as web, _both(web) as (owner, ana):
        owners, anas = await owner.new_chat(), await ana.new_chat()
        for visit, chat in ((owner, owners), (ana, anas)):
            await visit.say(chat, f"a secret of {chat}")
        assert quote(anas, safe="") in (await owner.get("/chat"))[1]
        assert quote(owners, safe="") not in (await ana.get("/chat"))[1]
        for path in (
            f"/chat?c={owners}",
            f"/chat/older?c={owners}",
            f"/chat/find?c={owners}&q=secret",
            f"/chat/export?c={owners}",
            f"/file?c={owners}&seq=1&i=0",
            f"/live?c={owners}",
            "/chat?c=cli:direct",
            "/settings",
        ):
            status, text = await ana.get(path)
            assert status == 404, path
            assert "a secret of" not in text
        data = {"c": owners, "event": "b" * 12, "text": "hello"}
        assert (await ana.post("/chat/send", data))[0] == 404
