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
from tests.channels.web.hand import buttons_of_templates
from tests.channels.web.stage import LONG, NOTIFYING, Stage, build_stage


async def test_every_page_and_every_button(tmp_path: Path, browser: Browser) -> None:
    pressed, asked = set[str](), set[tuple[str, str]]()
    for number, walk in enumerate(_WALKS):
        async with build_stage(tmp_path / str(number), browser) as stage:
            for step in walk:
                await step(stage)
            pressed |= stage.hand.pressed
            asked |= stage.hand.asked
    linking = "/people/sign-in"  # needs a WhatsApp that is not linked: test_linking.py
    assert buttons_of_templates() - pressed == {linking}
    assert {*routes()} - asked == {("GET", linking), ("POST", linking)}


async def _conversations(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    await stage.open("/")
    await hand.look()
    shown = page.locator("#list li")
    await expect(shown).to_have_count(41)
    await hand.press(page.locator("[data-more]"))
    await expect(shown).to_have_count(46)
    await hand.write("Search conversations", "cli:44")
    await expect(shown).to_have_count(1)
    await stage.open("/chat?c=cli:long")
    await expect(page.get_by_text("You can read this conversation here")).to_be_visible()
    await hand.look()
    sentences = page.locator(".item.mine")
    await expect(sentences).to_have_count(60)
    await hand.button("Older messages")
    await expect(sentences).to_have_count(LONG)
    await page.reload()
    await hand.press(page.get_by_label("More"))
    await hand.write("Find in this conversation", "sentence 7")
    await hand.press(page.locator("#found").get_by_role("link", name=re.compile("sentence 7$")))
    await expect(page.locator("#m7")).to_contain_text("sentence 7")


async def _a_chat(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    note = stage.web.home / "note.txt"
    note.write_text("milk and bread")
    await stage.open("/chat?list=1")
    await hand.follow("New chat")
    await page.wait_for_url("**/chat?c=**")
    await page.wait_for_load_state("load")
    chat = page.url.rpartition("c=")[2].replace("%3A", ":")
    await hand.attach(str(note))
    await hand.button("Do not send note.txt")
    await expect(page.locator("#attached li")).to_have_count(0)
    await hand.attach(str(note))
    await stage.say("a probe, please")
    said = page.locator(".item.assistant")
    await expect(said.last).to_contain_text("It is done.")
    async with page.expect_download() as download:
        await hand.press(page.locator(".item.mine a.file"))
    path = await (await download.value).path()
    assert await asyncio.to_thread(path.read_text, "utf-8") == "milk and bread"
    await hand.press(page.locator(".item .step summary"))
    await expect(page.get_by_label("What was asked")).to_have_text("text: one")
    await hand.look()

    await stage.say("hello")
    await expect(page.locator(".item.mine")).to_have_count(2)
    await expect(said.last).to_contain_text("Hello there.")
    await hand.press(page.get_by_label("Actions"))
    await hand.button("Retry the last turn")
    await expect(page.locator("#now > *")).to_have_count(0)
    await expect(page.locator(".item.mine")).to_have_count(2)
    await expect(said.last).to_contain_text("Hello there.")
    await hand.press(page.get_by_label("Actions"))
    await hand.button("Undo the last turn")
    await expect(page.locator(".item.extra").last).to_contain_text("Undid the last turn")
    await expect(page.locator(".item.mine")).to_have_count(1)
    await stage.say("think")
    await stage.gates["think"].reached.wait()
    await hand.button("Stop")
    await expect(page.locator("#now > *")).to_have_count(0)
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()

    await stage.say("remind me")
    await expect(page.locator(".item.extra").last).to_contain_text("Reminder set")
    (job,) = (await stage.web.ask("cron.list"))["jobs"]
    assert job["reminder"]
    await hand.button("Remove", page.locator("#messages"))
    await expect(page.locator(".item.extra").last).to_contain_text(job["id"])
    assert (await stage.web.ask("cron.list"))["jobs"] == []

    await hand.press(page.get_by_label("More"))
    await hand.write("Title", "About lists")
    await hand.button("Rename")
    await expect(page.get_by_role("heading", level=1)).to_have_text("About lists")
    await hand.press(page.get_by_label("More"))
    async with page.expect_download() as download:
        await hand.follow("Export as Markdown")
    path = await (await download.value).path()
    exported = await asyncio.to_thread(path.read_text, "utf-8")
    assert exported.startswith("# About lists\n")
    assert "It is **done**." in exported
    shown = await stage.web.ask("conversations.show", key=chat)
    assert shown["title"] == "About lists"
    await _notifications(stage)


async def _notifications(stage: Stage) -> None:
    """They report a new message without its content."""
    page, hand = stage.page, stage.hand
    await hand.button("Notify me of replies")
    await stage.expect_text("The browser does not allow notifications.")
    await page.evaluate(NOTIFYING)
    await hand.button("Notify me of replies")
    await stage.expect_text("get notifications")
    await page.keyboard.press("Escape")
    await stage.say("hello again")
    await expect(page.locator(".item.assistant").last).to_contain_text("Hello there.")
    told = await page.evaluate("window.told")
    assert {(title, given["body"]) for title, given in told} == {
        ("nanobot", "There is a new message.")
    }


async def _questions(stage: Stage) -> None:
    """Give all four answers, and revoke an approval."""
    page, hand, called = stage.page, stage.hand, stage.switch.called
    card, said = page.locator(".approval"), page.locator(".item.assistant")

    async def answer_all(answer: str, times: int) -> None:
        before = await page.locator(".item.mine").count()
        await stage.say("the light")
        if answer:
            await expect(card.get_by_label("What would be done")).to_have_text("on, exactly")
            await hand.button(answer, card)
        await expect(page.locator(".item.mine")).to_have_count(before + 1)
        await expect(said.last).to_contain_text("It is done.")
        await expect(card).to_have_count(0)
        assert len(called) == times

    await stage.open("/chat/new")
    chat = page.url
    await answer_all("Deny", 0)
    await answer_all("Approve", 1)
    for number, (answer, lasts) in enumerate(
        [("For this chat today", "in web:"), ("Always", "always")]
    ):
        await answer_all(answer, 2 + 2 * number)
        await answer_all("", 3 + 2 * number)
        await stage.open("/activity")
        await hand.follow("Approvals")
        await stage.expect_text("each call of light")
        if number == 0:
            await hand.look()
        (given,) = (await stage.web.ask("approvals.list"))["approvals"]
        assert lasts in given["lasts"]
        await hand.button("Revoke")
        await stage.expect_text("None. You are asked each time.")
        assert (await stage.web.ask("approvals.list"))["approvals"] == []
        await page.goto(chat)
    done = [(one["outcome"], one["by"]) for one in stage.audited("switch") if "by" in one]
    assert {by.partition(",")[0] for _, by in done} == {"web:owner"}  # or of theirs, in advance


async def _facts(stage: Stage) -> None:
    page, hand, file = stage.page, stage.hand, stage.memory / "MEMORY.md"

    async def open_fact(words: str) -> None:
        await hand.follow("Memory")
        await hand.press(page.get_by_role("link", name=words))

    await hand.follow("Memory")
    await hand.look()
    await hand.choose("Whose", "people/telegram_9 (1)")
    await hand.button("Show")
    await stage.expect_text("Speaks Finnish")
    await open_fact("Ana was born")
    await stage.expect_text("Version 1")
    await hand.look()
    await hand.write("Fact text", "Ana was born on 4 May")
    await hand.button("Save")
    await stage.expect_text("The fact is changed: version 2.")
    assert "- Ana was born on 4 May\n" in file.read_text()
    version = await stage.web.ask("memory.log", version=2)
    assert (version["author"], version["summary"][:11]) == ("you", "by the page")
    (done,) = stage.audited("memory.edit")
    assert (done["outcome"], done["scope"]) == ("done", "owner")
    await open_fact("Ana was born on 4 May")
    why = page.locator("section", has=page.get_by_role("heading", name="Why"))
    await expect(why).to_contain_text("Ana was born on 3 May")
    await hand.choose("Importance", "5")
    await hand.button("Set")
    await expect(page.get_by_text("importance 5", exact=True)).to_be_visible()
    await open_fact("Tom works")
    await hand.follow("Forget …")
    await expect(page.get_by_label("To be deleted")).to_contain_text("1 line")
    await hand.look()
    await hand.follow("Cancel")
    await hand.follow("Forget …")
    await hand.button("Forget")
    await stage.expect_text("Forgotten: 1 lines")
    assert "Tom" not in file.read_text()
    assert "Tom" not in json.dumps(stage.audited("memory.forget"))
    await open_fact("Old Birnbaum")
    await hand.follow("Forget …")
    await hand.follow("Erase everywhere instead …")
    await stage.expect_text("This can't be undone")
    await hand.button("Erase")
    await expect(page.locator(".told")).to_be_visible()
    left = [one for one in stage.web.home.rglob("*") if one.is_file()]
    assert [one for one in left if b"Birnbaum" in one.read_bytes()] == []
    await hand.follow("Waiting (2)")
    await hand.look()
    museum = page.get_by_role("region").filter(has_text="museum")
    await hand.button("Remember", museum)
    await stage.expect_text("It is remembered now.")
    await hand.button("Drop")
    await stage.expect_text("No pending facts.")
    assert "museum" in file.read_text()
    assert "baker" not in file.read_text()
    for name in ("edit", "importance", "forget", "accept", "drop"):
        assert {one["by"] for one in stage.audited(f"memory.{name}")} == {"web:owner"}, name


async def _versions(stage: Stage) -> None:
    page, hand, file = stage.page, stage.hand, stage.memory / "MEMORY.md"
    await hand.follow("Facts")
    await hand.write("Fact text", "The cat is called Miso")
    await hand.write("Section (may be empty)", "Animals")
    await hand.button("Remember")
    await stage.expect_text("The fact is changed")
    number = (await stage.web.ask("memory.log"))["version"]
    await hand.follow("Versions")
    await hand.press(page.get_by_text(f"What changed in version {number}"))
    await expect(page.locator("ins").last).to_have_text("+- The cat is called Miso")
    await hand.look()
    await hand.button(f"Undo version {number}")
    await stage.expect_text(f"change {number} undone")
    assert "Miso" not in file.read_text()
    await hand.button(f"Back to version {number}")
    await stage.expect_text(f"back to version {number}")
    assert "Miso" in file.read_text()
    await hand.press(page.locator(f'a[href*="/memory/version?"][href$="n={number}"]'))
    await hand.look()
    await hand.button("Undo")
    await stage.expect_text(f"change {number} undone")
    assert "Miso" not in file.read_text()
    await hand.press(page.locator(f'a[href*="/memory/version?"][href$="n={number}"]'))
    await hand.button("Back to here")
    await stage.expect_text(f"back to version {number}")
    assert "Miso" in file.read_text()
    assert [one["by"] for one in stage.audited("memory.restore")] == ["web:owner"] * 4


async def _search(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    await hand.follow("Memory")
    await hand.follow("Notes")
    await stage.expect_text("the key is under the mat")
    await hand.look()
    await hand.follow("History")
    await stage.expect_text("The trip is in June")
    await hand.look()
    await hand.follow("Search")
    await hand.write("Search for", "remind")
    await hand.choose("Said by", "user")
    await hand.button("Search")
    await expect(page.locator(".hit").first).to_contain_text("remind me")
    await hand.look()
    await hand.write("To", "2020-01-01")
    await hand.button("Search")
    await stage.expect_text("No results")


async def _jobs(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    await hand.follow("Jobs")
    await hand.press(page.get_by_text("HEARTBEAT.md", exact=True))
    await expect(page.get_by_label("HEARTBEAT.md")).to_contain_text("look after the plants")
    await hand.write("When", "every day at 8")
    await hand.choose("What", "Send this text")
    await hand.write("Text", "Water the plants")
    await hand.button("Schedule")
    job = page.get_by_role("listitem").filter(has_text="Water the plants")
    await expect(job).to_contain_text("Next 20")
    await hand.button("Pause Water the plants")
    await expect(job).to_contain_text("paused")
    (stored,) = (await stage.web.ask("cron.list"))["jobs"]
    assert (stored["enabled"], stored["reminder"]) == (False, True)
    await hand.button("Resume Water the plants")
    await expect(job).not_to_contain_text("paused")
    await hand.button("Run Water the plants now")
    await stage.expect_text("runs now")
    await hand.button("Remove Water the plants")
    await stage.expect_text("Nothing is scheduled.")
    assert (await stage.web.ask("cron.list"))["jobs"] == []
    for word in ("add", "pause", "resume", "run", "remove"):
        done = stage.audited(f"cron.{word}")[-1]
        assert done["by"] == "web:owner", word
        assert done["changed"].startswith(f"id {stored['id']}"), word
    await hand.write("When", "every 2h")
    await hand.choose("What", "Give the agent this task")
    await hand.write("Text", "Look at the news")
    await hand.button("Schedule")
    await stage.expect_text("every 2h")
    assert not (await stage.web.ask("cron.list"))["jobs"][0]["reminder"]
    await _helpers(stage)


async def _helpers(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    await stage.open("/chat/new")
    chat = page.url
    await stage.say("ask a helper")
    await stage.gates["look around"].reached.wait()
    await hand.follow("Jobs")
    helper = page.get_by_role("listitem").filter(has_text="Scout")
    await expect(helper).to_contain_text("look around")
    await hand.look()
    stage.gates["look around"].opened.set()
    await hand.press(helper.get_by_role("link"))
    await page.wait_for_url(chat)
    await expect(page.locator(".item.user")).to_contain_text(["ask a helper", "Scout"])
    await hand.follow("Jobs")
    await stage.expect_text("No subagents are running.")


async def _people(stage: Stage) -> None:
    page, hand, telegram = stage.page, stage.hand, stage.telegram
    for number, name in enumerate(("Eve", "Max"), 100):
        telegram.person(number, first_name=name)
        telegram.say("hello", user=number)
        await telegram.receive(1, number)
    codes = {one["name"]: one["code"] for one in (await stage.web.ask("pair.list"))["requests"]}
    await hand.follow("People")
    await expect(page.get_by_role("row").filter(has_text="telegram").first).to_contain_text(
        "running"
    )
    await hand.look()
    await hand.button("Let Eve in")
    await stage.expect_text("has access now")
    await hand.write("Code that you received", codes["Max"])
    await hand.button("Let in")
    await expect(page.get_by_role("button", name="Shut Max out")).to_be_visible()
    inside = (await stage.web.ask("pair.list"))["approved"]
    assert {one["address"] for one in inside} == {"telegram:100", "telegram:101"}
    await hand.look()
    async with stage.web.visit("telegram:100") as eve, stage.web.visit("telegram:101") as max:
        await hand.button("Shut Eve out")
        await expect(page.get_by_role("button", name="Shut Eve out")).to_have_count(0)
        assert (await eve.get("/memory"))[0] == 401
        assert (await max.get("/memory"))[0] == 200
        await page.reload()
        await hand.press(page.get_by_role("button", name=re.compile("^Sign out telegram:101")))
        await stage.expect_text("is signed out.")
        assert (await max.get("/memory"))[0] == 401
    for operation in ("pair.approve", "pair.revoke", "web.revoke"):
        assert {one["by"] for one in stage.audited(operation)} == {"web:owner"}, operation


async def _activity(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    await stage.open("/chat/new")
    await stage.say("a probe, please")
    await expect(page.locator(".item.assistant").last).to_contain_text("It is done.")
    chat = page.url.rpartition("c=")[2].replace("%3A", ":")
    await hand.follow("Activity")
    await hand.look()
    await hand.choose("Outcome", "done")
    await hand.write("Chat", "web:none")
    await hand.button("Show")
    await stage.expect_text("No turns like these")
    await hand.write("Chat", chat)
    await hand.button("Show")
    await hand.press(page.locator("tbody th a"))
    await expect(page.locator(".waterfall tbody th")).to_contain_text(["model", "tool probe"])
    await hand.press(page.locator(".step summary"))
    await expect(page.get_by_label("What was asked")).to_contain_text("one")
    await hand.look()
    await hand.follow("Log")
    await expect(page.get_by_label("Turn")).not_to_have_value("")
    await hand.follow("Tool calls")
    await hand.write("Tool", "cron.add")
    await hand.button("Show")
    await expect(page.locator("tbody tr").first).to_contain_text("web:owner")
    await hand.look()
    await hand.follow("Log")
    await hand.choose("From level", "warning")
    await hand.button("Show")
    await expect(page.get_by_label("From level")).to_have_value("warning")
    await hand.look()
    async with page.expect_response("**/activity/log/new**"):
        pass
    await hand.tick("Follow")
    await expect(page.get_by_label("Follow")).not_to_be_checked()


async def _figures(stage: Stage) -> None:
    page, hand = stage.page, stage.hand
    await hand.follow("Figures")
    await hand.press(page.get_by_text("Tokens, cache hits and cost as a table"))
    await expect(page.locator("details tbody tr").first).to_be_visible()
    await hand.follow("365 days")
    await expect(page.get_by_role("heading", name="Tokens by week")).to_be_visible()
    await hand.look()


async def _health(stage: Stage) -> None:
    page, hand, web = stage.page, stage.hand, stage.web
    await stage.open("/chat/new")
    await stage.say("break")
    await expect(page.locator(".item.extra, .item.assistant").last).to_be_visible()
    await hand.follow("Health")
    await hand.look()
    row = page.locator("tr").filter(has_text="break")
    name = await row.locator("th").inner_text()
    await hand.button(f"Try {name} again")
    await stage.expect_text(f"{name} is being retried.")
    while not (await web.ask("queue.list"))["inbox"]:
        pass
    await hand.follow("Health")
    await hand.button(f"Drop {name}")
    await stage.expect_text(f"{name} is dropped.")
    await stage.expect_text("Nothing is pending or failed.")
    for do in ("retry", "drop"):
        (done,) = stage.audited(f"queue.{do}")
        assert (done["by"], done["changed"]) == ("web:owner", f"id {name}")
    await hand.button("Make one now")
    await stage.expect_text("A backup is being made.")
    while (await web.ask("backup.list"))["making"]:
        pass
    (made,) = (await web.ask("backup.list"))["backups"]
    assert (web.home / "backups" / made["name"]).stat().st_size == made["bytes"]
    await hand.follow("Health")
    await stage.expect_text(made["name"])
    await hand.follow("Run all checks")
    await expect(page.locator("tr", has_text="journal").first).to_contain_text("whole")
    await hand.look()


async def _sign_out(stage: Stage) -> None:
    page, web = stage.page, stage.web
    await web.ask("web.revoke", id="all")
    await expect(page.locator("#connection")).to_have_text("You are signed out.")
    await page.reload()
    await stage.expect_text("You are not signed in.")
    await page.goto(await web.link())
    await page.wait_for_url("**/chat**")


async def _settings(stage: Stage) -> None:
    page, hand, file = stage.page, stage.hand, stage.web.home / "config.yaml"
    file.write_text(yaml.safe_dump(json.loads(file.read_text())))  # in lines, as people write it
    await hand.follow("Settings")
    await hand.look()
    await hand.press(page.get_by_role("link", name=re.compile("^tools ")))
    await hand.look()
    await hand.follow("All settings")
    await hand.write("Search settings", "agent.max_iterations")
    await hand.button("Search")
    await hand.follow("agent.max_iterations")
    await hand.look()
    await hand.write("New value", "7")
    await hand.button("Show the change")
    await expect(page.get_by_label("Difference")).to_contain_text("max_iterations: 7")
    assert "max_iterations" not in file.read_text()
    await hand.look()
    await hand.button("Apply")
    await stage.expect_text("agent.max_iterations is changed.")
    await stage.expect_text("It takes effect after a restart.")
    assert "max_iterations: 7" in file.read_text()
    (done,) = stage.audited("config.apply")
    assert done["changed"] == "changed agent.max_iterations"
    await stage.open("/settings")
    await hand.tick("Only changed settings")
    await hand.button("Search")
    await hand.follow("agent.max_iterations")
    await hand.button("Back to the default …")
    await hand.button("Apply")
    await stage.expect_text("agent.max_iterations is changed.")
    assert "max_iterations" not in file.read_text()
    assert {one["by"] for one in stage.audited("config.apply")} == {"web:owner"}
    await hand.follow("Restart …")
    await hand.look()
    await hand.follow("Leave it running")
    await hand.follow("Restart …")
    await hand.button("Restart now")
    await stage.expect_text("nanobot is restarting.")
    assert stage.web.gateway.restart_requested


_WALKS = (
    (_conversations, _questions, _facts, _versions),
    (_a_chat, _search),
    (_jobs, _people, _activity),
    (_figures, _health, _sign_out, _settings),
)
"""Each begins with a new home, so that none takes long on a slow machine."""
