"""Voice input in a real browser, whose microphone beeps, and answers that are read aloud."""

from __future__ import annotations

import asyncio
from io import BytesIO
from pathlib import Path

import pytest
from aiohttp import FormData
from playwright.async_api import Browser, ViewportSize, expect

from nanobot.testing.model import ScriptedModel, says
from tests.channels.web.browser import DESKTOP, PHONE, Scheme, begin_chat, browse, violations, write
from tests.channels.web.support import serving
from tests.voice.support import speaker, text_of_speech

_SCRIPT = 'printf "heard %s" "$(head -c 12 "$1" | tail -c 4)"'
_LISTENER = {"command": ["sh", "-c", _SCRIPT, "sh", "{input}"], "sandbox": False}
"""Transcribes a WAV file as `heard WAVE`."""
_PLAIN = {"name": "m", "base_url": "http://127.0.0.1:9/v1"}
_CONFIG = {"model": {**_PLAIN, "transcription": _LISTENER}}


def _uploads(home: Path) -> list[Path]:
    return list(home.rglob("uploads/*"))


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
async def test_the_words_of_a_recording_are_inserted_in_the_text_field(
    tmp_path: Path, browser: Browser, size: ViewportSize, scheme: Scheme
) -> None:
    async with (
        serving(tmp_path, ScriptedModel(), config=_CONFIG) as web,
        browse(browser, web, size=size, scheme=scheme) as page,
    ):
        await page.context.grant_permissions(["microphone"])
        await page.goto(f"{web.base}/chat/new")
        text = page.get_by_label("Message", exact=True)
        await text.fill("It says")
        await page.get_by_role("button", name="Speak").press("Enter")
        timer = page.get_by_role("timer")
        await expect(timer).to_have_text("0:01")
        assert await violations(page) == []
        await page.get_by_role("button", name="Done").click()
        await expect(text).to_have_value("It says heard WAVE")
        await expect(text).to_be_focused()
        await expect(timer).to_be_hidden()
        assert await asyncio.to_thread(_uploads, tmp_path) == []

        await page.get_by_role("button", name="Speak").click()
        await expect(timer).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(timer).to_be_hidden()
        await expect(text).to_have_value("It says heard WAVE")
        await page.context.clear_permissions()


async def test_without_transcription_the_page_offers_and_allows_no_microphone(
    tmp_path: Path, browser: Browser
) -> None:
    async with (
        serving(tmp_path, ScriptedModel()) as web,
        browse(browser, web) as page,
        web.visit() as visit,
    ):
        await begin_chat(page)
        await expect(page.locator("#send")).to_be_visible()
        await expect(page.locator("#speak")).to_have_count(0)
        async with visit.session.get(f"{web.base}/chat/new") as answer:
            assert "microphone=()" in answer.headers["Permissions-Policy"]


async def test_only_a_chat_may_use_the_microphone(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel(), config=_CONFIG) as web, web.visit() as visit:
        for path, allowed in (("/chat/new", "microphone=(self)"), ("/memory", "microphone=()")):
            async with visit.session.get(f"{web.base}{path}") as answer:
                assert allowed in answer.headers["Permissions-Policy"]


async def test_a_recording_of_any_kind_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel(), config=_CONFIG) as web, web.visit() as visit:
        for files, status in (
            ([("../../evil\u202e.html", b"RIFF....WAVE")], 200),
            ([("a.wav", b"")], 400),
            ([("a.wav", b"x")] * 2, 400),
            ([("a.wav", b"x")] * 11, 413),
            ([("a.wav", b"x" * 20_000_001)], 413),
            ([], 400),
        ):
            form = FormData(default_to_multipart=True)
            for name, data in files:
                form.add_field("files", BytesIO(data), filename=name, content_type="text/html")
            assert (await visit.post("/chat/transcribe", form))[0] == status, files[:1]
            assert await asyncio.to_thread(_uploads, tmp_path) == []
        form = FormData({"files": BytesIO(b"x")}, default_to_multipart=True)
        assert (await visit.post("/chat/transcribe", form, token="0"))[0] == 403
        assert not list(tmp_path.parent.glob("evil*"))


async def test_an_answer_is_read_aloud_and_shows_its_memory(
    tmp_path: Path, browser: Browser
) -> None:
    speech = {"command": await asyncio.to_thread(speaker, tmp_path), "sandbox": False}
    model = ScriptedModel(says("**Good** morning"))
    memory = tmp_path / "home" / "workspace" / "memory" / "MEMORY.md"
    await asyncio.to_thread(memory.parent.mkdir, parents=True)
    await asyncio.to_thread(memory.write_text, "# Memory\n\n- Ana keeps <bees>\n")
    async with (
        serving(tmp_path / "home", model, config={"model": {**_PLAIN, "speech": speech}}) as web,
        browse(browser, web) as page,
    ):
        await begin_chat(page)
        await write(page, "hello")
        answer = page.locator(".item.assistant")
        await expect(answer).to_contain_text("morning")
        await answer.hover()
        async with page.expect_response("**/chat/speech**") as response:
            await page.locator("#acts").get_by_text("Read aloud").click()
        sound = await (await response.value).body()
        assert text_of_speech(sound) == "Good morning"
        await answer.hover()
        await page.locator("#acts").get_by_text("Why").click()
        await expect(page.get_by_role("heading", name="Memory in the prompt")).to_be_in_viewport()
        assert await violations(page) == []
        await page.get_by_role("link", name="Ana keeps <bees>").click()
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert "/memory/fact" in page.url
