"""Set-up on the page: who may do it, where a key goes, and the way to the first answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession, CookieJar, web
from playwright.async_api import Browser, expect
from yarl import URL

from nanobot.testing.clock import FakeClock
from nanobot_web.sessions import SETUP_SECONDS
from tests.channels.web.browser import browse
from tests.channels.web.keyboard import KeyboardUser
from tests.channels.web.support import Served, Visit, Web, serving
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.server import Served as Listener
from tests.doubles.telegram import FakeTelegram
from tests.files import files_with
from tests.ports import free_port

AT = "/settings/model/setup"
KEY = "sk-typed-for-one-address"
OTHER = "Another server with an OpenAI-compatible API"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(2)</script>',
    "' autofocus onfocus=alert(3) x='",
    "{{ 7*7 }}{% include 'base.html' %}",
    "javascript:alert(4)",
    "\u202egnp.exe\x1b[31m\x00",
    "</button><form action=//evil.example><button>",
)
_NUMBER = re.compile(r'name="number" value="(\d+)"')
_TOKEN = re.compile(r'name="form-token" content="([0-9a-f]+)"')


@dataclass
class Asked:
    """A visitor who answers the questions."""

    visit: Visit

    async def begin(self, *topics: str) -> str:
        """Begin with these topics. Return the page of the first question."""
        fields = {f"topic-{one}": "1" for one in topics or ("model",)}
        assert (await self.visit.post(f"{AT}/begin", fields))[0] == 303
        return await self.read()

    async def read(self) -> str:
        """Return the page of the open question, or of the end."""
        async with asyncio.timeout(30):
            while "data-poll" in (text := await self._get(AT)):
                await self._get(f"{AT}/progress")
        return text

    async def say(self, text: str) -> str:
        """Answer, with the beginning of a choice or the text of an answer. Return the next page."""
        page = await self._get(AT)
        found = [
            value
            for value, label in re.findall(r'name="answer" value="(\w+)"[^>]*>([^<]*)', page)
            if unescape(label).startswith(text)
        ]
        return await self.post("answer", answer=found[0] if found else text)

    async def post(self, action: str, **fields: str) -> str:
        """Send a form of the open question. Return the next page."""
        found = _NUMBER.search(await self._get(AT))
        number = {"number": found[1]} if found else {}
        assert (await self.visit.post(f"{AT}/{action}", {**number, **fields}))[0] == 303
        return await self.read()

    async def save(self) -> None:
        """Save the changes, which also restarts the gateway."""
        found = _NUMBER.search(await self._get(AT))
        assert found
        assert (await self.visit.post(f"{AT}/save", {"number": found[1]}))[0] == 303

    async def _get(self, path: str) -> str:
        status, text = await self.visit.get(path)
        assert status == 200
        return text


@contextlib.asynccontextmanager
async def granted(web: Web) -> AsyncIterator[Visit]:
    """Sign in by a link for the set-up."""
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        visit = Visit(web.base, session)
        url = str((await web.ask("web.link", setup=True))["url"])
        status, text = await visit.get(url.removeprefix(web.base))
        assert (status, f"url={AT}" in text) == (200, True)
        found = _TOKEN.search((await visit.get("/chat"))[1])
        assert found
        visit.token = found[1]
        yield visit


def configured(server: FakeOpenAI) -> Mapping[str, Any]:
    """Return a configuration with a model."""
    return {"model": {"provider": "openai", "name": "fake-model", "base_url": server.base_url}}


def write_lines(home: Path) -> None:
    """Write the configuration in lines, as people do, so that it can be edited."""
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump(json.loads(file.read_text())))


def audit(home: Path) -> list[dict[str, str]]:
    """Return the audited steps."""
    lines = (home / "logs" / "audit.jsonl").read_text().splitlines()
    return [one for line in lines if (one := json.loads(line))["tool"].startswith("setup.")]


def places_of(home: Path, text: str) -> list[str]:
    """Return the files of a home that contain a text."""
    return [one.name for one in files_with(home, text)]


@pytest.mark.browser
async def test_from_a_fresh_machine_to_the_first_answer_by_keyboard_alone(
    tmp_path: Path, browser: Browser
) -> None:
    home, port = tmp_path / "new", free_port()
    names = [*(f"vendor/model-{number}" for number in range(20)), *HOSTILE]
    async with (
        FakeOpenAI(api_key=KEY, models=names) as server,
        _command(home, port) as served,
        browse(browser, served) as page,
    ):
        user = KeyboardUser(page)
        await user.follow("Connect a model")
        await expect(page.get_by_role("button", name="Start")).to_be_visible()
        await user.look()
        await user.button("Start")
        await expect(page.get_by_role("button", name="OpenRouter")).to_be_visible()
        await user.look()
        await user.button(OTHER)
        await user.write("The server's URL, up to and including /v1", server.base_url)
        await user.look()
        await user.button("Next")
        await user.write("The API key, if the server requires one", "sk-wrong-key")
        await user.look()
        await user.button("Next")
        await user.write("Filter", "model-17")
        await expect(page.locator(".options button:visible")).to_have_count(1)
        await user.look()
        await user.button("vendor/model-17")
        await expect(page.get_by_text("Incorrect API key provided")).to_be_visible()
        await user.write("The API key (leave empty to cancel)", KEY)
        await user.button("Next")
        await user.write("The server's context window, in tokens", "many")
        await user.button("Next")
        await expect(page.get_by_text("must be a number")).to_be_visible()
        await user.write("The server's context window, in tokens", "32768")
        await user.look()
        await user.button("Next")
        await expect(page.get_by_text(f"vendor/model-17 at {server.base_url}")).to_be_visible()
        await user.press(page.get_by_text("Changed lines", exact=True))
        await expect(page.get_by_label("Changed lines")).to_contain_text("+MODEL_API_KEY=…")
        await user.look()
        assert not (home / "config.yaml").exists()
        assert KEY not in await page.content()
        await user.button("Save")
        await page.wait_for_url("**/chat?c=**")
        await expect(page.get_by_role("link", name="vendor/model-17")).to_be_visible()
        await user.write("Message", "Is anyone there?")
        await user.button("Send")
        await expect(page.locator(".item.assistant .words").first).to_contain_text("anyone")
    assert places_of(home, KEY) == ["secrets.env"]
    assert places_of(home, "sk-wrong-key") == []
    steps = audit(home)
    assert {one["by"] for one in steps} == {"web:owner"}
    assert [one["tool"] for one in steps] == ["setup.begin", *["setup.answer"] * 7, "setup.save"]
    assert "model.base_url" in steps[-1]["changed"]
    assert {one.headers.get("authorization") for one in server.requests} == {
        f"Bearer {KEY}", "Bearer sk-wrong-key",
    }  # fmt: skip


@contextlib.asynccontextmanager
async def _command(home: Path, port: int) -> AsyncIterator[Served]:
    """Run `nanobot web` on a machine without a configuration."""
    environ = {**os.environ, "NANOBOT_HTTP__PORT": str(port)}
    environ["NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS"] = "0"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot", "--home", str(home), "web", "--no-open"),
        stdout=PIPE,
        stderr=DEVNULL,
        env=environ,
    )
    assert process.stdout is not None
    try:
        assert b"/login?link=" in await process.stdout.readline()
        yield Served(f"http://127.0.0.1:{port}", home)
    finally:
        process.terminate()
        await process.wait()


async def test_names_of_models_run_nothing(tmp_path: Path, browser: Browser) -> None:
    async with (
        FakeOpenAI(models=HOSTILE) as server,
        serving(tmp_path) as web,
        browse(browser, web) as page,
    ):
        write_lines(tmp_path)
        ran = list[str]()
        page.on("dialog", lambda dialog: ran.append(dialog.message))
        await page.goto(f"{web.base}{AT}")
        await page.get_by_role("button", name="Start").click()
        await page.get_by_role("button", name=OTHER).click()
        for text in (server.base_url, ""):
            await page.get_by_role("textbox").fill(text)
            await page.get_by_role("button", name="Next").click()
        shown = page.locator(".options button")
        await expect(shown).to_have_count(len(HOSTILE) + 1)
        await expect(shown.nth(0)).to_have_text(HOSTILE[0])
        texts = "".join(await shown.all_inner_texts())
        assert not any(one in texts for one in "\u202e\x1b\x00")
        await page.get_by_role("button", name=HOSTILE[1]).click()
        await page.get_by_role("button", name="Next").click()
        await expect(page.get_by_text("Save these changes?")).to_be_visible()
        await expect(page.locator("dd")).to_contain_text(HOSTILE[1])
        assert ran == []
        assert await page.locator("main script, main img").count() == 0


@pytest.mark.parametrize(
    "models",
    [
        pytest.param(["x" * 2_000_000], id="long"),
        pytest.param([f"{number}{'y' * 100_000}" for number in range(20)], id="all long"),
        pytest.param([f"m{number}" for number in range(100_000)], id="many"),
    ],
)
async def test_a_list_of_any_size_is_a_page_of_a_usual_size(
    tmp_path: Path, models: list[str]
) -> None:
    async with FakeOpenAI(models=models) as server, serving(tmp_path) as web, web.visit() as visit:
        asked = Asked(visit)
        await asked.begin()
        await asked.say(OTHER)
        await asked.say(server.base_url)
        assert len(await asked.say("")) < 200_000
        await asked.post("cancel")
        await asked.begin()
        await asked.say(OTHER)
        assert "at most 4,000 characters" in await asked.post("answer", answer="z" * 4_001)


async def test_a_server_cannot_show_the_key_as_the_name_of_a_model(tmp_path: Path) -> None:
    for models in ([KEY], [KEY, "other"]):
        async with (
            FakeOpenAI(models=models) as server,
            serving(tmp_path) as web,
            web.visit() as visit,
        ):
            write_lines(tmp_path)
            asked = Asked(visit)
            pages = [await asked.begin(), await asked.say(OTHER)]
            pages += [await asked.say(server.base_url), await asked.say(KEY)]
            if len(models) > 1:
                pages.append(await asked.post("answer", answer="0"))
            pages.append(await asked.say("8000"))
            assert "Save these changes?" in pages[-1]
            assert KEY not in "".join(pages)


async def test_the_time_zone_of_the_browser_is_proposed(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for zone, shown in (("America/New_York", "America/New_York"), ("../../etc/passwd", "")):
            visit.session.cookie_jar.update_cookies({"zone": zone}, URL(web.base))
            asked = Asked(visit)
            await asked.begin("you")
            page = await asked.say("Ada")
            assert f'value="{shown}' in page
            assert "passwd" not in page


async def test_two_tabs_that_begin_at_once_leave_one_set_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit, web.visit() as other:
        await Asked(visit).begin()
        before = len(asyncio.all_tasks())
        for _ in range(5):
            fields = {"topic-model": "1"}
            both = (one.post(f"{AT}/begin", fields) for one in (visit, other))
            assert [status for status, _ in await asyncio.gather(*both)] == [303, 303]
        asking = ["number" in await Asked(one).read() for one in (visit, other)]
        assert sorted(asking) == [False, True]
        assert len(asyncio.all_tasks()) <= before


async def test_a_key_stays_with_the_address_that_it_was_typed_for(tmp_path: Path) -> None:
    async with (
        FakeOpenAI(api_key=KEY) as first,
        FakeOpenAI() as second,
        serving(tmp_path) as web,
        web.visit() as visit,
    ):
        write_lines(tmp_path)
        asked = Asked(visit)
        await asked.begin()
        await asked.say(OTHER)
        await asked.say(first.base_url)
        assert "context window" in await asked.say(KEY)
        assert "Which model do you want" in await asked.post("answer", do="back")
        await asked.say(OTHER)
        page = await asked.say(second.base_url)
        assert "keep the current value" not in page
        await asked.say("")
        page = await asked.say("8000")
        assert "Save these changes?" in page
        assert "API_KEY" not in page
        await asked.save()
        assert any("chat" in one.path for one in second.requests)
        assert not any(KEY in str(one.headers) for one in second.requests)
    assert places_of(tmp_path, KEY) == []


async def test_a_configured_key_is_neither_shown_nor_sent_elsewhere(tmp_path: Path) -> None:
    async with FakeOpenAI(api_key=KEY) as first, FakeOpenAI() as second:
        config = configured(first)
        config["model"]["api_key"] = KEY
        async with serving(tmp_path, config=config) as web, granted(web) as visit:
            asked = Asked(visit)
            pages = [await asked.begin(), await asked.say(OTHER)]
            pages += [await asked.say(second.base_url), await asked.say("")]
            assert "context window" in pages[-1]
            await asked.post("answer", do="back")
            pages += [await asked.say(OTHER), await asked.say(first.base_url)]
            assert "keep the current value" in pages[-1]
            pages += [await asked.say("")]
            assert "context window" in pages[-1]
            assert KEY not in "".join(pages)
        assert any(KEY in str(one.headers) for one in first.requests)
        assert not any(KEY in str(one.headers) for one in second.requests)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("lists", [False, True], ids=["list", "trial"])
async def test_a_redirect_does_not_take_a_key_along(
    tmp_path: Path, status: int, lists: bool
) -> None:
    seen = list[str]()

    async def redirect(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        if lists and request.path == "/v1/models":
            return web.json_response({"data": [{"id": "tiny"}]})
        target = f"{second.base_url}{request.path.removeprefix('/v1')}"
        return web.Response(status=status, headers={"Location": target})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", redirect)
    async with FakeOpenAI() as second, serving(tmp_path) as site, site.visit() as visit:
        first, asked = await Listener.start(app, 0), Asked(visit)
        await asked.begin()
        await asked.say(OTHER)
        await asked.say(f"http://127.0.0.1:{first.port}/v1")
        page = await asked.say(KEY)
        assert "That did not work" in page
        assert KEY not in page
        await first.stop()
        assert set(seen) == {f"Bearer {KEY}"}
        assert second.requests == []


async def test_a_new_key_for_the_same_address_replaces_the_old_one(tmp_path: Path) -> None:
    async with FakeOpenAI(api_key=KEY) as server:
        config = configured(server)
        config["model"]["api_key"] = "${MINE}"
        (tmp_path / "secrets.env").write_text("MINE=sk-old-and-revoked\n")
        async with serving(tmp_path, config=config) as site, granted(site) as visit:
            write_lines(tmp_path)
            asked = Asked(visit)
            assert "Keep the current model" in await asked.begin()
            assert "Nothing was changed." in await asked.say("Keep the current model")
            await asked.post("cancel")
            await asked.begin()
            await asked.say(OTHER)
            await asked.say(server.base_url)
            page = await asked.say("")
            assert "Incorrect API key" in page
            assert "sk-old-and-revoked" not in page
            await asked.say(KEY)
            assert "Save these changes?" in await asked.say("128000")
            await asked.save()
        assert (tmp_path / "secrets.env").read_text() == f"MINE={KEY}\n"
        assert audit(tmp_path)[-1]["changed"] == "changed MINE"


@pytest.mark.parametrize(
    "url",
    [
        "http://llm.example.com/v1",
        "http://169.254.169.254/v1",
        "https://[fe80::1]/v1",
        "https://user:word@llm.example.com/v1",
        "ftp://127.0.0.1/v1",
        "http://0.0.0.0/v1",
        # Names that lead there: of another form, or of IPv4 in IPv6.
        "http://2852039166/v1",
        "http://0xa9fea9fe/v1",
        "https://169.254.43518/v1",
        "http://[::ffff:169.254.169.254]/v1",
        "http://0/v1",
        "http://134744072/v1",
    ],
)
async def test_an_address_that_would_expose_a_key_is_refused(tmp_path: Path, url: str) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        asked = Asked(visit)
        await asked.begin()
        await asked.say(OTHER)
        page = await asked.say(url)
        assert "The server&#39;s URL" in page
        assert "API key" not in page


async def test_a_variable_cannot_lead_a_key_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        FakeOpenAI(api_key=KEY) as server,
        serving(tmp_path) as web,
        granted(web) as visit,
    ):
        write_lines(tmp_path)
        monkeypatch.setenv("NANOBOT_MODEL__BASE_URL", "https://elsewhere.example/v1")
        asked = Asked(visit)
        await asked.begin()
        await asked.say(OTHER)
        await asked.say(server.base_url)
        await asked.say(KEY)
        page = await asked.say("8000")
        assert "would go elsewhere" in page
    assert places_of(tmp_path, KEY) == []


async def test_a_link_sets_up_once_and_only_for_half_an_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    async with (
        FakeOpenAI() as server,
        serving(tmp_path, config=configured(server), clock=clock) as web,
    ):
        used = str((await web.ask("web.link", setup=True))["url"]).removeprefix(web.base)
        old = str((await web.ask("web.link", setup=True))["url"]).removeprefix(web.base)
        async with granted(web) as visit, web.visit() as usual:
            asked = Asked(visit)
            assert 'name="topic-model"' in await asked.read()
            assert "Which model do you want" in await asked.begin()
            assert "nanobot web --setup" in (await usual.get(AT))[1]
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
                first = Visit(web.base, session)
                assert (await first.get(used))[0] == 200
            assert (await usual.get(used))[0] == 401
            await clock.advance(SETUP_SECONDS)
            assert (await usual.get(old))[0] == 401
            assert "nanobot web --setup" in (await usual.get(AT))[1]
            assert (await visit.post(f"{AT}/answer", {"number": "1", "answer": "0"}))[0] == 403
            assert (await visit.post(f"{AT}/begin", {"topic-model": "1"}))[0] == 403
    assert [one["tool"] for one in audit(tmp_path)] == ["setup.begin"]


async def test_after_the_restart_the_way_leads_to_the_chat_or_to_the_code_to_scan(
    tmp_path: Path,
) -> None:
    async with FakeOpenAI() as server:
        for config, then, following in (
            ({}, "", AT),
            ({}, "people", "/people"),
            (configured(server), "", "/chat/new"),
            (configured(server), "people", "/people"),
            (configured(server), "//evil.example", "/chat/new"),
        ):
            async with serving(tmp_path, config=config) as web, web.visit() as visit:
                _, text = await visit.get(f"{AT}/progress?then={then}")
                assert re.findall('href="([^"]*)" data-go', text) == [following]


async def test_with_a_model_the_page_alone_sets_nothing_up(tmp_path: Path) -> None:
    async with (
        FakeOpenAI() as server,
        serving(tmp_path, config=configured(server)) as web,
        web.visit() as visit,
    ):
        assert "nanobot web --setup" in (await visit.get("/settings/model"))[1]
        for action in ("begin", "answer", "save", "cancel"):
            fields = {"topic-model": "1", "number": "1", "answer": "0"}
            assert (await visit.post(f"{AT}/{action}", fields))[0] == 403, action
    assert audit(tmp_path) == []


async def test_a_model_that_was_configured_meanwhile_ends_it(tmp_path: Path) -> None:
    async with FakeOpenAI() as server, serving(tmp_path) as web, web.visit() as visit:
        asked = Asked(visit)
        await asked.begin()
        await asked.say(OTHER)
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), **configured(server)}))
        assert (await visit.post(f"{AT}/answer", {"number": "2", "answer": "x"}))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Form-Token": "0" * 64},
    ],
)
async def test_another_site_cannot_begin_or_answer(tmp_path: Path, headers: dict[str, str]) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for action in ("begin", "answer", "save", "cancel"):
            fields = {"topic-model": "1", "number": "1", "answer": "0"}
            status, _ = await visit.post(f"{AT}/{action}", fields, **headers)
            assert status == 403, action
        assert 'name="topic-model"' in (await visit.get(AT))[1]
        assert (await visit.get(f"{AT}/begin"))[0] == 404
    assert audit(tmp_path) == []


async def test_each_browser_sees_only_its_own_questions(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as mine, web.visit() as other:
        await Asked(mine).begin()
        assert 'name="topic-model"' in (await other.get(AT))[1]
        await other.post(f"{AT}/answer", {"number": "1", "answer": "0"})
        assert "this set-up has ended" in (await other.get(AT))[1]
        assert "Which model do you want" in await Asked(other).begin()
        assert 'name="topic-model"' in (await mine.get(AT))[1]


@pytest.mark.parametrize("answer", ["", "-1", "99", "9" * 5000, "x", "\u0661\u0661\u0661"])
async def test_an_answer_that_was_not_offered_changes_nothing(tmp_path: Path, answer: str) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        asked = Asked(visit)
        await asked.begin()
        page = await asked.post("answer", answer=answer)
        assert "not one of the answers" in page
        assert "Which model do you want" in page
        assert "nothing to save" in await asked.post("save")


async def test_a_set_up_ends_after_half_an_hour_with_its_answers(tmp_path: Path) -> None:
    clock = FakeClock()
    async with serving(tmp_path, clock=clock) as web, web.visit() as visit:
        asked = Asked(visit)
        await asked.begin()
        await clock.advance(SETUP_SECONDS)
        assert "more than half an hour" in await asked.read()
        assert 'name="topic-model"' in await asked.post("cancel")


async def test_a_telegram_token_is_checked_and_its_bot_is_named(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, FakeOpenAI() as server:
        known = {"enabled": True, "token": f"1:{'x' * 35}", "base_url": telegram.base_url}
        config = {
            **configured(server),
            "owner": {"telegram": ["7"]},
            "channels": {"web": {"enabled": True}, "telegram": known},
        }
        async with serving(tmp_path, config=config) as web, granted(web) as visit:
            write_lines(tmp_path)
            asked = Asked(visit)
            page = await asked.begin("telegram")
            assert "The bot&#39;s token" in page
            assert str(known["token"]) not in page
            await asked.say(f"{telegram.bot_id}:{'y' * 35}")
            page = await asked.say(telegram.token)
            assert f"@{telegram.username}" in page
            assert "Your Telegram id is 7" in page
            assert telegram.token not in await asked.say("Yes")
            await asked.save()
        assert places_of(tmp_path, telegram.token) == ["secrets.env"]
