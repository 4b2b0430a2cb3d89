"""All actions of the pages, by keyboard, in dark mode, and in the size of a phone. The results are
checked in other places. Every page is also checked as on a desktop by day. Tests with a pointer are
in the files of the pages."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import yaml
from playwright.async_api import Browser, expect

from nanobot_web.channel import routes
from tests.channels.web.browser import DESKTOP
from tests.channels.web.keyboard import buttons_of_templates
from tests.channels.web.page_kit import LONG, NOTIFYING, PageKit, build_stage
from tests.files import files_with


async def test_every_page_and_every_button(tmp_path: Path, browser: Browser) -> None:
    pressed, asked = set[str](), set[tuple[str, str]]()
    for number, walk in enumerate(_WALKS):
        async with build_stage(tmp_path / str(number), browser) as kit:
            for step in walk:
                await step(kit)
            pressed |= kit.user.pressed
            asked |= kit.user.asked
    linking = "/people/sign-in"  # needs a WhatsApp that is not linked: test_linking.py
    choice = "/settings/model/setup/answer answer={{ loop.index0 }}"  # pressed as answer=0
    elsewhere = {linking, choice, "data-discard", "data-finish"}
    assert buttons_of_templates() - pressed == elsewhere
    voices = {("POST", "/chat/transcribe"), ("GET", "/chat/speech")}  # test_voices.py
    assert {*routes()} - asked == {("GET", linking), ("POST", linking), *voices}


async def _conversations(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    await kit.open("/")
    await user.look()
    shown = page.locator("#list li")
    await expect(shown).to_have_count(41)
    await user.press(page.locator("[data-more]"))
    await expect(shown).to_have_count(46)
    await user.write("Search conversations", "cli:44")
    await expect(shown).to_have_count(1)
    await kit.open("/chat?c=cli:long")
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    await user.look()
    sentences = page.locator(".item.mine")
    await expect(sentences).to_have_count(60)
    await user.button("Older messages")
    await expect(sentences).to_have_count(LONG)
    await page.reload()
    await user.press(page.get_by_label("More"))
    await user.write("Find in this conversation", "sentence 7")
    await user.press(page.locator("#found").get_by_role("link", name=re.compile("sentence 7$")))
    await expect(page.locator("#m7")).to_contain_text("sentence 7")
    await _menu_of_a_chat(kit)


async def _menu_of_a_chat(kit: PageKit) -> None:
    """Rename, pin, archive, restore, and delete a chat from the list."""
    page, user = kit.page, kit.user
    listed = page.locator("#list")

    async def open_menu(name: str) -> None:
        await user.press(page.get_by_label(f"Menu of {name}", exact=True))

    await kit.open("/chat?list=1&q=sentence")
    await open_menu("sentence 1")
    await expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()
    await user.look()
    await user.write("Title", "Long one")
    await user.button("Rename")
    await page.wait_for_url("**/chat?list=1")
    await kit.open("/chat?list=1&q=long")
    await open_menu("Long one")
    await user.button("Pin")
    await expect(listed.locator(".group").first).to_have_text("Pinned")
    await open_menu("Long one")
    await user.button("Unpin")
    await expect(listed.locator(".group").first).not_to_have_text("Pinned")
    await kit.open("/chat?list=1&q=long")
    await open_menu("Long one")
    await user.button("Archive")
    await expect(listed.locator(".row").first).to_be_visible()
    await expect(listed).not_to_contain_text("Long one")
    await user.follow("Archived chats")
    await open_menu("Long one")
    await user.button("Restore from the archive")
    await kit.expect_text("No archived chats.")
    await kit.open("/chat/menu?c=cli:long")
    await user.look()
    await user.follow("Delete …")
    await user.look()
    await user.button("Delete permanently")
    await kit.expect_text("Deleted 70 messages")
    assert {one["by"] for one in kit.audit_records("conversations.delete")} == {"web:owner"}
    done = kit.audit_records("conversations.change")
    assert [one["by"] for one in done] == ["web:owner"] * 5


async def _continue_and_try(kit: PageKit) -> None:
    """Continue a chat of Telegram here, and use a suggestion."""
    page, user = kit.page, kit.user
    kit.telegram.say("hello from the phone", user=7)
    await kit.telegram.receive(1, 7)
    await kit.open("/chat?c=telegram:7")
    await user.look()
    await user.button("Continue here")
    await expect(page.locator(".item.extra")).to_contain_text("Copied")
    await expect(page.locator(".item.mine").first).to_contain_text("hello from the phone")
    await kit.open("/chat?list=1")
    await user.follow("Temporary chat")
    await user.write("Message", "think")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    await user.button("Send")
    await user.button("Stop")
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await kit.open("/chat")
    await page.set_viewport_size(DESKTOP)
    await user.press(page.locator("[data-try]").first)
    await expect(page.locator(".item.assistant").last).to_contain_text("Hello there.")
    await expect(page.locator(".welcome")).to_have_count(0)
    await page.wait_for_url("**/chat?c=web**")
    await user.look()


async def _a_chat(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    note = kit.web.home / "note.txt"
    note.write_text("milk and bread")
    await kit.open("/chat?list=1")
    await user.follow("New chat")
    await page.wait_for_url("**/chat?c=**")
    await page.wait_for_load_state("load")
    chat = page.url.rpartition("c=")[2].replace("%3A", ":")
    await user.attach(str(note))
    await user.button("Remove note.txt")
    await expect(page.locator("#attached li")).to_have_count(0)
    await user.attach(str(note))
    await kit.say("a probe, please")
    said = page.locator(".item.assistant")
    await expect(said.last).to_contain_text("It is done.")
    async with page.expect_download() as download:
        await user.press(page.locator(".item.mine a.file"))
    path = await (await download.value).path()
    assert await asyncio.to_thread(path.read_text, "utf-8") == "milk and bread"
    await user.press(page.locator(".item .step summary"))
    await expect(page.get_by_label("Arguments")).to_have_text("text: one")
    await user.look()

    await _message_menu(kit)
    await kit.say("hello")
    await expect(page.locator(".item.mine")).to_have_count(2)
    await expect(said.last).to_contain_text("Hello there.")
    await user.press(page.get_by_label("Actions"))
    await user.button("Retry the last turn")
    await expect(page.locator("#now > :not(#status)")).to_have_count(0)
    await expect(page.locator(".item.mine")).to_have_count(2)
    await expect(said.last).to_contain_text("Hello there.")
    await user.press(page.get_by_label("Actions"))
    await user.button("Undo the last turn")
    await expect(page.locator(".item.extra").last).to_contain_text("Undid the last turn")
    await expect(page.locator(".item.mine")).to_have_count(1)
    await kit.say("think")
    await kit.gates["think"].reached.wait()
    await user.button("Stop")
    await expect(page.locator("#now > :not(#status)")).to_have_count(0)
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await user.button("Continue")
    await expect(said.last).to_contain_text("Hello there.")

    await kit.say("remind me")
    await expect(page.locator(".item.extra").last).to_contain_text("Reminder set")
    (job,) = (await kit.web.ask("cron.list"))["jobs"]
    assert job["reminder"]
    await user.button("Remove", page.locator("#messages"))
    await expect(page.locator(".item.extra").last).to_contain_text(job["id"])
    assert (await kit.web.ask("cron.list"))["jobs"] == []

    await user.press(page.get_by_label("More"))
    await user.write("Title", "About lists")
    await user.button("Rename")
    await expect(page.get_by_role("heading", level=1)).to_have_text("About lists")
    await user.press(page.get_by_label("More"))
    async with page.expect_download() as download:
        await user.follow("Export as Markdown")
    path = await (await download.value).path()
    exported = await asyncio.to_thread(path.read_text, "utf-8")
    assert exported.startswith("# About lists\n")
    assert "It is **done**." in exported
    shown = await kit.web.ask("conversations.show", key=chat)
    assert shown["title"] == "About lists"
    await _notifications(kit)


async def _message_menu(kit: PageKit) -> None:
    """Copy, keep and edit a message, look at its earlier version, and choose a model."""
    page, user = kit.page, kit.user
    menu, acts = page.get_by_role("button", name="Message menu"), page.locator("#acts")
    said = page.locator(".item.assistant")
    await user.press(menu.last)
    await user.button("Copy", acts)
    await expect(page.locator("#toast")).to_contain_text(re.compile("Copied|doesn't allow"))
    await user.button("Keep", acts)
    await expect(said.last.locator(".tag")).to_have_text("kept")
    await user.press(menu.first)
    await user.button("Edit", acts)
    await user.button("Cancel")
    await kit.say("/edit a probe again")
    await user.follow("‹ 2 of 2")
    await user.press(page.get_by_label("Current version"))
    await expect(page.locator(".earlier")).to_have_count(0)
    await user.press(page.get_by_label("Actions"))
    await user.button("Keyboard shortcuts")
    await user.look()
    await user.button("Close")
    await user.press(page.locator(".model summary"))
    await user.button("high")
    await expect(page.locator(".item.extra").last).to_contain_text("Thinking effort: high.")
    await user.press(page.locator(".model summary"))
    await user.press(page.locator("[data-model]").first)
    await expect(page.locator(".item.extra").last).to_contain_text("This conversation now uses")


async def _notifications(kit: PageKit) -> None:
    """They report a new message without its content."""
    page, user = kit.page, kit.user
    await user.button("Notify me of replies")
    await kit.expect_text("Your browser doesn't allow notifications.")
    await page.evaluate(NOTIFYING)
    await user.button("Notify me of replies")
    await kit.expect_text("get notifications")
    await page.keyboard.press("Escape")
    await kit.say("hello again")
    await expect(page.locator(".item.assistant").last).to_contain_text("Hello there.")
    await expect(page.locator(".messages > .item.mine").last).to_contain_text("hello again")
    told = await page.evaluate("window.told")
    assert {(title, given["body"]) for title, given in told} == {
        ("nanobot", "You have a new message.")
    }


async def _questions(kit: PageKit) -> None:
    """Give all four answers, and revoke an approval."""
    page, user, called = kit.page, kit.user, kit.switch.called
    card, said = page.locator(".approval"), page.locator(".item.assistant")

    async def answer_all(answer: str, times: int) -> None:
        before = await page.locator(".item.mine").count()
        await kit.say("the light")
        if answer:
            await expect(card.get_by_label("Details")).to_have_text("on, exactly")
            await user.look()
            await user.button(answer, card)
        await expect(page.locator(".item.mine")).to_have_count(before + 1)
        await expect(said.last).to_contain_text("It is done.")
        await expect(card).to_have_count(0)
        assert len(called) == times

    await kit.open("/chat/new")
    chat = page.url
    await answer_all("Deny", 0)
    await answer_all("Approve", 1)
    for number, (answer, lasts) in enumerate(
        [("Today in this chat", "in web:"), ("Always", "always")]
    ):
        await answer_all(answer, 2 + 2 * number)
        await answer_all("", 3 + 2 * number)
        await kit.open("/activity")
        await user.follow("Approvals")
        await kit.expect_text("each call of light")
        if number == 0:
            await user.look()
        (given,) = (await kit.web.ask("approvals.list"))["approvals"]
        assert lasts in given["lasts"]
        await user.button("Revoke")
        await kit.expect_text("None. nanobot asks you each time.")
        assert (await kit.web.ask("approvals.list"))["approvals"] == []
        await page.goto(chat)
    done = [(one["outcome"], one["by"]) for one in kit.audit_records("switch") if "by" in one]
    assert {by.partition(",")[0] for _, by in done} == {"web:owner"}  # or of theirs, in advance


async def _facts(kit: PageKit) -> None:
    page, user, file = kit.page, kit.user, kit.memory / "MEMORY.md"

    async def open_fact(words: str) -> None:
        await user.follow("Memory")
        await user.press(page.get_by_role("link", name=words))

    await user.follow("Memory")
    await user.look()
    await user.choose("Whose memory", "people/telegram_9 (1)")
    await user.button("Show")
    await kit.expect_text("Speaks Finnish")
    await open_fact("Ana was born")
    await kit.expect_text("Version 1")
    await user.look()
    await user.write("Fact text", "Ana was born on 4 May")
    await user.button("Save")
    await kit.expect_text("Saved the fact (now version 2).")
    assert "- Ana was born on 4 May\n" in file.read_text()
    version = await kit.web.ask("memory.log", version=2)
    assert (version["author"], version["summary"][:11]) == ("you", "on the page")
    (done,) = kit.audit_records("memory.edit")
    assert (done["outcome"], done["scope"]) == ("done", "owner")
    await open_fact("Ana was born on 4 May")
    why = page.locator("section", has=page.get_by_role("heading", name="Why"))
    await expect(why).to_contain_text("Ana was born on 3 May")
    await user.choose("Importance", "5")
    await user.button("Set")
    await expect(page.get_by_text("importance 5", exact=True)).to_be_visible()
    await open_fact("Tom works")
    await user.follow("Forget …")
    await expect(page.get_by_label("To be deleted")).to_contain_text("1 line")
    await user.look()
    await user.follow("Cancel")
    await user.follow("Forget …")
    await user.button("Forget")
    await kit.expect_text("Forgotten: 1 line,")
    assert "Tom" not in file.read_text()
    assert "Tom" not in json.dumps(kit.audit_records("memory.forget"))
    await open_fact("Old Birnbaum")
    await user.follow("Forget …")
    await user.follow("Erase everywhere instead …")
    await kit.expect_text("This can't be undone")
    await user.button("Erase")
    await expect(page.locator(".told")).to_be_visible()
    assert files_with(kit.web.home, "Birnbaum") == []
    await user.follow("Pending (2)")
    await user.look()
    museum = page.get_by_role("region").filter(has_text="museum")
    await user.button("Remember", museum)
    await kit.expect_text("Remembered.")
    await user.button("Drop")
    await kit.expect_text("No pending facts.")
    assert "museum" in file.read_text()
    assert "baker" not in file.read_text()
    for name in ("edit", "importance", "forget", "accept", "drop"):
        assert {one["by"] for one in kit.audit_records(f"memory.{name}")} == {"web:owner"}, name


async def _versions(kit: PageKit) -> None:
    page, user, file = kit.page, kit.user, kit.memory / "MEMORY.md"
    await user.follow("Facts")
    await user.write("Fact text", "The cat is called Miso")
    await user.write("Section (may be empty)", "Animals")
    await user.button("Remember")
    await kit.expect_text("Saved the fact")
    number = (await kit.web.ask("memory.log"))["version"]
    await user.follow("Versions")
    await user.press(page.get_by_text(f"What changed in version {number}"))
    await expect(page.locator("ins").last).to_have_text("+- The cat is called Miso")
    await user.look()
    await user.button(f"Undo version {number}")
    await kit.expect_text(f"Undid change {number}")
    assert "Miso" not in file.read_text()
    await user.button(f"Restore version {number}")
    await kit.expect_text(f"Restored version {number}")
    assert "Miso" in file.read_text()
    await user.press(page.locator(f'a[href*="/memory/version?"][href$="n={number}"]'))
    await user.look()
    await user.button("Undo")
    await kit.expect_text(f"Undid change {number}")
    assert "Miso" not in file.read_text()
    await user.press(page.locator(f'a[href*="/memory/version?"][href$="n={number}"]'))
    await user.button("Restore")
    await kit.expect_text(f"Restored version {number}")
    assert "Miso" in file.read_text()
    assert [one["by"] for one in kit.audit_records("memory.restore")] == ["web:owner"] * 4


async def _search(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    await user.follow("Memory")
    await user.follow("Notes")
    await kit.expect_text("the key is under the mat")
    await user.look()
    await user.follow("History")
    await kit.expect_text("The trip is in June")
    await user.look()
    await user.follow("Search")
    await user.write("Search for", "remind")
    await user.choose("Said by", "user")
    await user.button("Search")
    await expect(page.locator(".hit").first).to_contain_text("remind me")
    await user.look()
    await user.write("To", "2020-01-01")
    await user.button("Search")
    await kit.expect_text("No results")


async def _jobs(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    await kit.visit_view("Activity", "Jobs")
    await user.press(page.get_by_text("HEARTBEAT.md", exact=True))
    await expect(page.get_by_label("HEARTBEAT.md")).to_contain_text("look after the plants")
    await user.write("When", "every day at 8")
    await user.choose("What", "Send this text")
    await user.write("Text", "Water the plants")
    await user.button("Schedule")
    job = page.get_by_role("listitem").filter(has_text="Water the plants")
    await expect(job).to_contain_text("every day at 8 · next ")
    menu = page.get_by_label("Menu of Water the plants")
    await user.look()
    await user.press(menu)
    await user.button("Pause Water the plants")
    await expect(job).to_contain_text("paused")
    (stored,) = (await kit.web.ask("cron.list"))["jobs"]
    assert (stored["enabled"], stored["reminder"]) == (False, True)
    await user.press(menu)
    await user.button("Resume Water the plants")
    await expect(job).not_to_contain_text("paused")
    await user.press(menu)
    await user.button("Run Water the plants now")
    await kit.expect_text("is running now")
    await user.press(menu)
    await user.button("Remove Water the plants")
    await kit.expect_text("Nothing is scheduled.")
    assert (await kit.web.ask("cron.list"))["jobs"] == []
    for word in ("add", "pause", "resume", "run", "remove"):
        done = kit.audit_records(f"cron.{word}")[-1]
        assert done["by"] == "web:owner", word
        assert done["changed"].startswith(f"id {stored['id']}"), word
    await user.write("When", "every 2h")
    await user.choose("What", "Give the agent this task")
    await user.write("Text", "Look at the news")
    await user.button("Schedule")
    await kit.expect_text("every 2h")
    assert not (await kit.web.ask("cron.list"))["jobs"][0]["reminder"]
    await _helpers(kit)


async def _helpers(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    await kit.open("/chat/new")
    chat = page.url
    await kit.say("ask a helper")
    await kit.gates["look around"].reached.wait()
    await kit.visit_view("Activity", "Jobs")
    helper = page.get_by_role("listitem").filter(has_text="Scout")
    await expect(helper).to_contain_text("look around")
    await user.look()
    kit.gates["look around"].opened.set()
    await user.press(helper.get_by_role("link"))
    await page.wait_for_url(chat)
    await expect(page.locator(".item.user")).to_contain_text(["ask a helper", "Scout"])
    await kit.visit_view("Activity", "Jobs")
    await kit.expect_text("No subagents are running.")


async def _people(kit: PageKit) -> None:
    page, user, telegram = kit.page, kit.user, kit.telegram
    for number, name in enumerate(("Eve", "Max"), 100):
        telegram.person(number, first_name=name)
        telegram.say("hello", user=number)
        await telegram.receive(1, number)
    codes = {one["name"]: one["code"] for one in (await kit.web.ask("pair.list"))["requests"]}
    await kit.visit_view("Settings", "People and channels")
    await expect(page.get_by_role("row").filter(has_text="telegram").first).to_contain_text(
        "running"
    )
    await user.look()
    await user.button("Approve Eve")
    await kit.expect_text("now has access")
    await user.write("Code that you received", codes["Max"])
    await user.button("Approve")
    await expect(page.get_by_role("button", name="Revoke Max")).to_be_visible()
    inside = (await kit.web.ask("pair.list"))["approved"]
    assert {one["address"] for one in inside} == {"telegram:100", "telegram:101"}
    await user.look()
    async with kit.web.visit("telegram:100") as eve, kit.web.visit("telegram:101") as max:
        await user.button("Revoke Eve")
        await expect(page.get_by_role("button", name="Revoke Eve")).to_have_count(0)
        assert (await eve.get("/memory"))[0] == 401
        assert (await max.get("/memory"))[0] == 200
        await page.reload()
        await user.press(page.get_by_role("button", name=re.compile("^Sign out telegram:101")))
        await kit.expect_text("Signed out")
        assert (await max.get("/memory"))[0] == 401
    for operation in ("pair.approve", "pair.revoke", "web.revoke"):
        assert {one["by"] for one in kit.audit_records(operation)} == {"web:owner"}, operation


async def _activity(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    await kit.open("/chat/new")
    await kit.say("a probe, please")
    await expect(page.locator(".item.assistant").last).to_contain_text("It is done.")
    chat = page.url.rpartition("c=")[2].replace("%3A", ":")
    await user.follow("Activity")
    await user.look()
    await user.choose("Outcome", "done")
    await user.write("Chat", "web:none")
    await user.button("Show")
    await kit.expect_text("No matching turns")
    await user.write("Chat", chat)
    await user.button("Show")
    await user.press(page.locator("tbody th a"))
    await expect(page.locator(".waterfall tbody th")).to_contain_text(["model", "tool probe"])
    await user.press(page.locator(".step summary"))
    await expect(page.get_by_label("Arguments")).to_contain_text("one")
    await user.look()
    await user.follow("Log of this turn")
    await expect(page.get_by_label("Turn")).not_to_have_value("")
    await user.follow("Tool calls")
    await user.write("Tool", "cron.add")
    await user.button("Show")
    await expect(page.locator("tbody tr").first).to_contain_text("web:owner")
    await user.look()
    await user.follow("Log")
    await user.choose("Minimum level", "warning")
    await user.button("Show")
    await expect(page.get_by_label("Minimum level")).to_have_value("warning")
    await user.look()
    async with page.expect_response("**/activity/log/new**"):
        pass
    await user.tick("Follow")
    await expect(page.get_by_label("Follow")).not_to_be_checked()


async def _figures(kit: PageKit) -> None:
    page, user = kit.page, kit.user
    await kit.visit_view("Activity", "Statistics")
    await user.press(page.get_by_text("Tokens, cache hits, and cost as a table"))
    await expect(page.locator("details tbody tr").first).to_be_visible()
    await user.follow("365 days")
    await expect(page.get_by_role("heading", name="Tokens by week")).to_be_visible()
    await user.look()


async def _health(kit: PageKit) -> None:
    page, user, web = kit.page, kit.user, kit.web
    await kit.open("/chat/new")
    await kit.say("break")
    await expect(page.locator(".item.extra, .item.assistant").last).to_be_visible()
    await kit.visit_view("Settings", "Health")
    await user.look()
    row = page.locator("tr").filter(has_text="break")
    name = await row.locator("th").inner_text()
    await user.button(f"Try {name} again")
    await kit.expect_text(f"{name} is being retried.")
    while not (await web.ask("queue.list"))["inbox"]:
        pass
    await kit.visit_view("Settings", "Health")
    await user.button(f"Drop {name}")
    await kit.expect_text(f"{name} was dropped.")
    await kit.expect_text("Nothing is pending or failed.")
    for do in ("retry", "drop"):
        (done,) = kit.audit_records(f"queue.{do}")
        assert (done["by"], done["changed"]) == ("web:owner", f"id {name}")
    await user.button("Back up now")
    await kit.expect_text("A backup is running.")
    while (await web.ask("backup.list"))["making"]:
        pass
    (made,) = (await web.ask("backup.list"))["backups"]
    assert (web.home / "backups" / made["name"]).stat().st_size == made["bytes"]
    await kit.visit_view("Settings", "Health")
    await kit.expect_text(made["name"])
    await user.follow("Run all checks")
    await expect(page.locator("tr", has_text="journal").first).to_contain_text("ok")
    await user.look()


async def _sign_out(kit: PageKit) -> None:
    page, web = kit.page, kit.web
    await web.ask("web.revoke", id="all")
    await expect(page.locator("#connection")).to_have_text("You are signed out.")
    await page.reload()
    await kit.expect_text("You are not signed in.")
    await page.goto(await web.link())
    await page.wait_for_url("**/chat**")


async def _settings(kit: PageKit) -> None:
    page, user, file = kit.page, kit.user, kit.web.home / "config.yaml"
    file.write_text(yaml.safe_dump(json.loads(file.read_text())))  # in lines, as people write it
    await kit.visit_view("Settings", "Model")
    await user.look()
    await user.follow("Answers")
    await user.look()
    await user.choose("If I write while nanobot works", "Answer it afterwards")
    await user.button("Show the changes")
    await user.button("Apply")
    await kit.expect_text("Your changes are saved.")
    assert "on_busy: queue" in file.read_text()
    for task in ("memory", "approvals"):
        await kit.open(f"/settings/{task}")
        await user.look()
        await user.button("Show the changes")
        await kit.expect_text("Nothing is changed.")
    await user.follow("Advanced")
    await user.look()
    await user.press(page.get_by_role("link", name=re.compile("^tools ")))
    await user.look()
    await user.follow("All settings")
    await user.write("Search settings", "agent.max_iterations")
    await user.button("Search")
    await user.follow("agent.max_iterations")
    await user.look()
    await user.write("New value", "7")
    await user.button("Show the change")
    await expect(page.get_by_label("Difference")).to_contain_text("max_iterations: 7")
    assert "max_iterations" not in file.read_text()
    await user.look()
    await user.button("Apply")
    await kit.expect_text("agent.max_iterations has been changed.")
    await kit.expect_text("The change takes effect after a restart.")
    assert "max_iterations: 7" in file.read_text()
    first, second = kit.audit_records("config.apply")
    assert first["changed"] == "changed agent.on_busy"
    assert second["changed"] == "changed agent.max_iterations"
    await kit.open("/settings")
    await user.tick("Only changed settings")
    await user.button("Search")
    await user.follow("agent.max_iterations")
    await user.button("Reset to default …")
    await user.button("Apply")
    await kit.expect_text("agent.max_iterations has been changed.")
    assert "max_iterations" not in file.read_text()
    assert {one["by"] for one in kit.audit_records("config.apply")} == {"web:owner"}
    await user.follow("Restart …")
    await user.look()
    await user.follow("Cancel")
    await user.follow("Restart …")
    await user.button("Restart now")
    await kit.expect_text("nanobot is restarting.")
    await expect(page.locator("#connection")).to_contain_text("Not connected")
    assert kit.web.gateway.restart_requested


async def _set_up(kit: PageKit) -> None:
    page, user, file = kit.page, kit.user, kit.web.home / "config.yaml"
    file.write_text(yaml.safe_dump(json.loads(file.read_text())))
    await kit.visit_view("Settings", "Model")
    await user.follow("Connect a model")
    await user.tick("Your name and time zone")
    await user.button("Start")
    await kit.expect_text("Which model do you want to use?")
    await user.button("Cancel")
    await user.tick("The model")
    await user.tick("WhatsApp")
    await user.tick("Your name and time zone")
    await user.look()
    await user.button("Start")
    await user.button("As a linked device (WhatsApp may ban the number)")
    await user.button("Back")
    await user.button("As a linked device (WhatsApp may ban the number)")
    await user.write("The number that you write from", "15550001111")
    await user.button("Next")
    await kit.expect_text("Do you want to link that same number?")
    await user.look()
    await user.button("No")
    await user.button("Back")
    await user.button("As a linked device (WhatsApp may ban the number)")
    await user.button("Next")
    await user.button("Yes")
    await user.write("Your name (leave empty to skip)", "Ada")
    await user.button("Next")
    await expect(page.get_by_label("Your time zone")).to_be_visible()
    await user.look()
    await user.button("Next")
    await kit.expect_text("Save these changes?")
    await user.look()
    async with page.expect_request("**/setup/progress?then=people"):
        await user.button("Save")
        await kit.expect_text("nanobot is starting with the new settings")
    assert "whatsapp" in file.read_text()
    (done,) = kit.audit_records("setup.save")
    assert done["by"] == "web:owner"
    assert "channels.whatsapp.enabled" in done["changed"]


_WALKS = (
    (_conversations, _questions, _facts, _versions),
    (_a_chat, _search, _continue_and_try),
    (_jobs, _people, _activity),
    (_figures, _health, _sign_out, _settings),
    (_set_up,),
)
"""Each begins with a new home, so no walk takes long on a slow machine."""
