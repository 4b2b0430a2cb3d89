"""A person on the way through a task, on a desktop by day and on a phone at night, by keyboard.

With `NANOBOT_PICTURES=FOLDER` each journey leaves its pictures there. Three more are elsewhere: two
tabs and a phone (test_together.py), a kill in a stream, and a stopped answer (test_stream.py)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, FilePayload, Locator, Page, ViewportSize, expect

from nanobot.providers.port import Provider
from nanobot.session.records import Metadata, encode, stem_of
from nanobot.testing.model import ScriptedModel, calls, says
from nanobot.tooling import Tool
from tests.channels.web.browser import DESKTOP, PHONE, Scheme, browse, look
from tests.channels.web.keyboard import KeyboardUser
from tests.channels.web.page_kit import FACTS, Switch
from tests.channels.web.support import Web, serving
from tests.channels.web.test_continuing import terminal
from tests.channels.web.test_stream import ANSWER
from tests.ports import free_port

VIEWS: Mapping[str, tuple[ViewportSize, Scheme]] = {
    "desktop": (DESKTOP, "light"),
    "phone": (PHONE, "dark"),
}
pytestmark = pytest.mark.parametrize("view", VIEWS)
PNG = (Path(__file__).parents[3] / "docs" / "pictures" / "web-chat.png").read_bytes()


class Journey:
    """A person at a page, who uses the keyboard."""

    def __init__(self, web: Web, page: Page, name: str) -> None:
        self.web, self.page, self.name = web, page, name
        self.user = KeyboardUser(page)
        self.answer = page.locator(".messages > .assistant .words")
        self.mine = page.locator(".messages > .mine .words")
        self._pictures = 0

    async def look(self) -> None:
        """Check the view, and leave a picture."""
        self._pictures += 1
        await look(self.page, f"{self.name}-{self._pictures}")

    async def say(self, text: str) -> None:
        """Write a message, and send it."""
        field = self.page.get_by_label("Message", exact=True)
        await field.focus()
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")

    async def follow(self, name: str, heading: str) -> None:
        """Follow a link to the page with this heading."""
        await self.user.follow(name)
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    async def open(self, at: str) -> None:
        """Go to an address."""
        await self.page.goto(f"{self.web.base}{at}")


Start = Any


@pytest.fixture
def start(tmp_path: Path, browser: Browser, view: str, request: pytest.FixtureRequest) -> Start:
    """Return a function that begins a journey on a new home."""
    name = f"{request.node.originalname.removeprefix('test_')}-{view}"
    size, scheme = VIEWS[view]

    @contextlib.asynccontextmanager
    async def begin(
        model: Provider | None = None,
        *,
        config: Mapping[str, object] | None = None,
        tools: Sequence[Tool] = (),
    ) -> AsyncIterator[Journey]:
        async with (
            serving(tmp_path, model, config=config, tools=tools) as web,
            browse(browser, web, size=size, scheme=scheme) as page,
        ):
            await page.wait_for_load_state("load")
            yield Journey(web, page, name)

    return begin


async def test_a_long_answer_with_code_and_a_table(start: Start) -> None:
    async with start(ScriptedModel(says(ANSWER))) as journey:
        page = journey.page
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await journey.look()
        await journey.say("Plan it")
        await expect(journey.answer).to_contain_text("word299")
        await journey.look()
        await journey.user.press(page.get_by_role("button", name="Copy").first)
        assert "def greet" in await page.evaluate("navigator.clipboard.readText()")
        await page.locator("#messages").press("Home")
        await expect(page.get_by_role("table")).to_be_in_viewport()
        await journey.look()


async def test_edit_and_read_the_earlier_version(start: Start) -> None:
    script = says("Paris has **2.1 million** people."), says("Rome has **2.8 million** people.")
    async with start(ScriptedModel(*script)) as journey:
        page = journey.page
        await journey.say("How many people live in Paris?")
        await expect(journey.answer).to_contain_text("Paris")
        await page.get_by_label("Message", exact=True).press("ArrowUp")
        await journey.look()
        await page.keyboard.press("Control+a")
        await page.keyboard.type("How many people live in Rome?")
        await page.keyboard.press("Enter")
        await expect(journey.answer).to_contain_text("Rome")
        await expect(journey.mine).to_have_text(["How many people live in Rome?"])
        await journey.look()
        await journey.user.press(page.locator(".item.mine > .foot .versions"))
        await expect(page.locator(".earlier")).to_contain_text("Paris has 2.1 million")
        await journey.look()


async def test_find_a_chat_of_last_week_by_a_word(start: Start, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    texts = {1: "Tidy the shed", 6: "The recipe needs saffron and rice", 20: "Call the bank"}
    (tmp_path / "sessions").mkdir()
    for days, text in texts.items():
        at, key = now - timedelta(days=days), f"cli:{days}"
        said = {"role": "user", "content": text, "timestamp": at.isoformat(), "turn_id": "t"}
        answer = {**said, "role": "assistant", "content": f"About **{text.lower()}**: yes."}
        lines = [encode(Metadata(key, at, at, metadata={"opening": text}))]
        lines += [json.dumps({**one, "seq": n}) + "\n" for n, one in enumerate((said, answer), 1)]
        (tmp_path / "sessions" / f"{stem_of(key)}.jsonl").write_text("".join(lines))
    async with start() as journey:
        page = journey.page
        await page.keyboard.press("Control+k")
        search = page.get_by_label("Search conversations")
        await expect(search).to_be_focused()
        await journey.look()
        await page.keyboard.type("saffron")
        hit = page.locator("#list a").filter(has=page.locator("mark"))
        await expect(hit.first).to_contain_text("saffron")
        await journey.look()
        await journey.user.press(hit.last)
        await expect(journey.mine).to_have_text(["The recipe needs saffron and rice"])
        await journey.look()


async def test_send_three_files(start: Start) -> None:
    async with start(ScriptedModel(says("A picture, a list and a table."))) as journey:
        page = journey.page
        files = [
            FilePayload(name="the page.png", mimeType="image/png", buffer=PNG),
            FilePayload(name="list.txt", mimeType="text/plain", buffer=b"milk\n"),
            FilePayload(name="a long name of a table.csv", mimeType="text/csv", buffer=b"a,b\n"),
        ]
        await page.get_by_label("Add files").set_input_files(files)
        await expect(page.locator("#attached li")).to_have_count(3)
        await journey.look()
        await journey.say("What are these?")
        await expect(journey.answer).to_contain_text("A picture")
        await expect(page.locator(".item.mine .picture img")).to_be_visible()
        await expect(page.locator(".item.mine a.chip")).to_have_count(2)
        await journey.look()


async def test_approve_a_command_by_one_key(start: Start) -> None:
    model = ScriptedModel(calls("switch", text="on"), says("The light is **on**."))
    config, tools = {"tools": {"approval": {"mcp": "ask"}}}, [Switch(effects=True)]
    async with start(model, config=config, tools=tools) as journey:
        await journey.say("Switch the light on")
        question = journey.page.locator("#asked [data-approval]")
        await expect(question).to_be_in_viewport()
        await journey.look()
        await journey.page.wait_for_timeout(1_100)  # an earlier key does not count
        await journey.page.keyboard.press("Alt+y")
        await expect(question).to_have_count(0)
        await expect(journey.answer.last).to_contain_text("The light is on.")
        await journey.look()


async def test_correct_a_remembered_fact(start: Start, tmp_path: Path) -> None:
    memory = tmp_path / "workspace" / "memory" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    memory.write_text(FACTS)
    async with start() as journey:
        await journey.follow("Memory", "Memory")
        await expect(journey.page.get_by_text("Tom works at the harbour")).to_be_visible()
        await journey.look()
        await journey.follow("Tom works at the harbour", "A fact")
        await journey.look()
        await journey.user.write("Fact text", "Tom works at the station")
        await journey.user.button("Save")
        await expect(journey.page.locator(".told")).to_be_visible()
        await journey.look()
    assert "Tom works at the station" in memory.read_text()


async def test_a_job_in_words(start: Start) -> None:
    async with start() as journey:
        await journey.say("Remind me every day at 8 to water the plants")
        await expect(journey.answer).to_be_visible()
        await journey.look()
        await journey.follow("Activity", "Activity")
        await journey.look()
        await journey.follow("Jobs", "Jobs")
        row = journey.page.locator(".entries .row")
        await expect(row).to_contain_text("water the plants")
        await expect(row).to_contain_text("every day at 8")
        await journey.user.press(row.locator("summary"))
        await journey.look()


async def test_the_terminals_chat_on_the_page(start: Start, tmp_path: Path) -> None:
    model = ScriptedModel(says("In the **terminal**."), says("On the *page*."))
    async with start(model) as journey, terminal(tmp_path) as here:
        here.send("1", "cli:direct", "Where are you?")
        await here.until("reply")
        here.send("w", "cli:direct", watch=True)
        await journey.open("/chat?list=1")
        await journey.look()
        await journey.user.press(journey.page.locator("#list a").first)
        await expect(journey.mine).to_have_text(["Where are you?"])
        await journey.say("And now?")
        await expect(journey.answer).to_have_text(["In the terminal.", "On the page."])
        assert (await here.until("message"))["text"] == "On the *page*."
        await journey.look()


async def test_the_model_is_down(start: Start) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    config = {"model": {"base_url": url, "name": "m", "context_window": 32_000}}
    async with start(config=config) as journey:
        page = journey.page
        await journey.say("Are you there?")
        await expect(page.locator("#status")).to_contain_text("model unreachable")
        await journey.look()
        await page.reload()
        await expect(page.locator(".mine .words")).to_have_text(["Are you there?"])
        await expect(page.locator("#status")).to_contain_text("model unreachable")
        await journey.user.button("Stop")
        await expect(page.locator("#status")).to_be_hidden()
        await expect(page.locator(".mine .words")).to_have_text(["Are you there?"])
        await journey.look()


ARABIC = "كيف أطبخ الأرز؟"
JAPANESE = "お米の炊き方を教えてください。"
ARABIC_ANSWER = """## الأرز

اغسل **الأرز** جيدًا، ثم:

1. أضف الماء
2. اطبخ 12 دقيقة

> لا تفتح القدر.

```python
minutes = 12
```
"""
JAPANESE_ANSWER = """## ご飯

米を**よく**洗い、次に:

1. 水を入れます
2. 12分炊きます
"""


async def _direction(what: Locator) -> str:
    return str(await what.evaluate("(one) => getComputedStyle(one).direction"))


async def test_arabic_and_japanese(start: Start) -> None:
    async with start(ScriptedModel(says(ARABIC_ANSWER), says(JAPANESE_ANSWER))) as journey:
        page = journey.page
        await journey.say(ARABIC)
        await expect(journey.answer).to_contain_text("الأرز")
        for what in (
            journey.mine,
            journey.answer,
            journey.answer.locator("ol"),
            page.locator("h1"),
        ):
            assert await _direction(what) == "rtl"
        assert await _direction(journey.answer.locator("pre")) == "ltr"
        await journey.look()
        await journey.say(JAPANESE)
        await expect(journey.answer.last).to_contain_text("ご飯")
        assert await _direction(journey.answer.last) == "ltr"
        await journey.look()
