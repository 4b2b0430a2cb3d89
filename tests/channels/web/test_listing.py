"""The list of conversations: groups, search, changes, and first screens."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from nanobot.session.records import Metadata, encode, stem_of
from nanobot_web.pages.listing import name_of_day
from tests.channels.web.browser import PHONE, browse, violations
from tests.channels.web.page_kit import furnish
from tests.channels.web.support import serving
from tests.channels.web.test_conversations import CONFIG, GUEST

HOSTILE = "<img src=x onerror=alert(1)> \"'><script>alert(2)</script> zebra"


@pytest.mark.parametrize(
    ("day", "group"),
    [(27, "Today"), (28, "Today"), (26, "Yesterday"), (25, "Last 7 days"), (20, "Last 7 days"),
     (19, "Older")],
)  # fmt: skip
def test_days_are_grouped(day: int, group: str) -> None:
    assert name_of_day(date(2026, 11, day), datetime(2026, 11, 27, 0, 5, tzinfo=UTC)) == group


async def test_groups_use_the_zone_of_the_browser(tmp_path: Path, browser: Browser) -> None:
    now = datetime.now(UTC)
    path = tmp_path / "sessions" / f"{stem_of('cli:one')}.jsonl"
    path.parent.mkdir()
    path.write_text(encode(Metadata("cli:one", now, now - timedelta(minutes=90))))
    midnight = now.hour if now.hour <= 12 else now.hour - 24  # so many hours west it just was
    async with serving(tmp_path) as web, web.visit() as visit:
        for offset, group in ((midnight, "Yesterday"), (now.hour - 12, "Today"), (99, "")):
            visit.session.cookie_jar.update_cookies({"zone": f"Etc/GMT{offset:+d}"})
            assert f'"group">{group}' in (await visit.get("/chat/list"))[1]
        assert (await visit.get("/chat/menu?c=cli:one"))[0] == 200  # it has no messages
        async with browse(browser, web) as page:
            await page.wait_for_function("document.cookie.includes('zone=')")


async def test_a_word_of_an_old_message_opens_it(tmp_path: Path, browser: Browser) -> None:
    furnish(tmp_path)
    async with serving(tmp_path) as web, browse(browser, web, size=PHONE) as page:
        await page.goto(f"{web.base}/chat?list=1")
        await page.get_by_label("Search conversations").fill("sentence 7")
        hit = page.get_by_role("link").filter(has_text=re.compile(r"sentence 7\s"))
        await expect(hit.locator("mark").first).to_have_text("sentence")
        await hit.last.click()
        await expect(page.locator("#m7")).to_be_in_viewport()
        await expect(page.locator("#m70")).to_have_count(0)
        assert await violations(page) == []
        await page.get_by_role("link", name="Newest messages").click()
        await expect(page.locator("#m70")).to_be_in_viewport()


async def test_titles_and_hits_are_no_markup(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        chat = await visit.new_chat()
        await visit.say(chat, HOSTILE)
        await visit.post("/chat/change", {"c": chat, "do": "rename", "title": HOSTILE})
        paths = ("/chat?list=1", "/chat/list?q=zebra", f"/chat/menu?c={chat}")
        for path in (*paths, f"/chat/delete?c={chat}", f"/chat?c={chat}&m=1"):
            text = (await visit.get(path))[1]
            assert "zebra" in text, path
            assert "<img src=x" not in text, path
            assert "<script>alert" not in text, path


async def test_people_change_only_their_own_chats(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, config=CONFIG) as web,
        web.visit() as owner,
        web.visit(GUEST) as guest,
    ):
        theirs, own = await owner.new_chat(), await guest.new_chat()
        await owner.say(theirs, "the vault is blue")
        await guest.say(own, "my bicycle is green")
        for path, data in (
            ("/chat/change", {"c": theirs, "do": "archive"}),
            ("/chat/delete", {"c": theirs}),
            ("/chat/continue", {"c": theirs}),
        ):
            assert (await guest.post(path, data))[0] == 404
        assert (await guest.get(f"/chat/menu?c={theirs}"))[0] == 404
        assert "vault" not in (await guest.get("/chat/list?q=vault"))[1].replace("q=vault", "")
        assert "bicycle" in (await guest.get("/chat/list?q=bicycle"))[1]
        assert (await owner.post("/chat/continue", {"c": own}))[0] == 403
        assert (await guest.post("/chat/change", {"c": own, "do": "explode"}))[0] == 400
        assert (await guest.post("/chat/delete", {"c": own}))[0] == 303
        assert (await guest.get(f"/chat?c={theirs}&m=1"))[0] == 404
        left = (await web.ask("conversations.list"))["conversations"]
        assert [one["key"] for one in left] == [theirs]


async def test_a_first_screen_fits_the_offline_model(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, browse(browser, web, size=PHONE) as page:
        await expect(page.get_by_role("link", name="Connect a model")).to_be_visible()
        await page.get_by_role("button", name="My sister is called Ana").click()
        await expect(page.locator(".item.assistant").last).to_contain_text("Ana")
        assert "Connect" not in await page.locator("main").inner_text()
        async with web.visit("telegram:7") as guest:
            assert "Connect a model" not in (await guest.get("/chat/new"))[1]


async def test_an_answer_between_the_page_and_its_stream_is_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        chat = await visit.new_chat()
        await visit.say(chat, "/help")
        async with visit.open(f"/live?c={chat}&after=0") as live:
            async for line in live.content:
                if b'"kind": "extra"' in line:
                    assert b"/undo" in line
                    break
