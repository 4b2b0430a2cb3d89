"""A nanobot with content on each page, and a keyboard user."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect

from nanobot.providers.port import Prompt, Reply
from nanobot.session.records import Metadata, encode, stem_of
from nanobot.testing.model import ScriptedModel, calls, says
from nanobot.tooling import Arguments, Repeatable, Risk, TurnContext
from tests.channels.web.browser import PHONE, browse
from tests.channels.web.keyboard import KeyboardUser
from tests.channels.web.support import Web, serving
from tests.doubles.telegram import FakeTelegram
from tests.support import Gate, Probe

FACTS = (
    "# Memory\n\n## People\n\n- Ana was born on 3 May\n- Tom works at the harbour\n- Old Birnbaum\n"
)
WAITING = (
    "# Pending facts\n"
    "- [2026-11-20] (from tool:web_fetch) -> MEMORY.md: The museum opens at ten\n"
    "- [2026-11-20] (from tool:web_fetch) -> MEMORY.md: The baker is closed on Mondays\n"
)
ENTRY = {
    "cursor": 1, "timestamp": "2026-03-10T14:23:00+01:00", "type": "consolidation",
    "session": "cli:long", "range": [1, 4], "summary": "[2026-03-10 14:23] We planned it.",
    "key_facts": ["The trip is in June"], "operations": [], "origin": [],
}  # fmt: skip
LONG = 70
"""Messages of the long conversation."""
NOTIFYING = """() => {
    window.told = [];
    window.Notification = class {
        static permission = "granted";
        static requestPermission = async () => "granted";
        constructor(...given) { window.told.push(given); }
    };
    Object.defineProperty(document, "hidden", { get: () => true });
}"""
"""A browser that allows notifications, with its page in the background."""


@dataclass(frozen=True)
class Switch(Probe):
    """A tool that needs approval, which can be given for longer."""

    name: str = "switch"

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return Risk("mcp", "switch the light", "on, exactly")

    async def repeatable(self, arguments: Arguments, caller: TurnContext) -> Repeatable:
        return Repeatable("mcp:home/light", "as it is", "each call of light", f"tool:{self.name}")


def _answer(prompt: Prompt) -> Reply:
    """Return the model's answer to the last message."""
    last = prompt.messages[-1]
    if last.role == "tool":
        return says("It is **done**.")
    for word, reply in {
        "probe": calls("probe", text="one"),
        "light": calls("switch", text="on"),
        "remind": calls("cron", action="remind", schedule="tomorrow 9:00", message="Call Ana"),
        "helper": calls("spawn", task="look around", label="Scout"),
    }.items():
        if word in last.text:
            return reply
    if "break" in last.text:
        raise RuntimeError("the model is upset")
    return says("**Hello** there.")


@dataclass
class PageKit:
    """A nanobot with content on each page, and a keyboard user."""

    web: Web
    user: KeyboardUser
    telegram: FakeTelegram
    gates: dict[str, Gate]
    switch: Switch

    @property
    def page(self) -> Page:
        """The user's page."""
        return self.user.page

    @property
    def memory(self) -> Path:
        """The owner's memory folder."""
        return self.web.home / "workspace" / "memory"

    async def open(self, at: str) -> None:
        """Go to an address."""
        await self.page.goto(f"{self.web.base}{at}")

    async def visit_view(self, place: str, view: str) -> None:
        """Follow the link of a place, and then that of one of its views."""
        await self.user.follow(place)
        if view not in ("Model", "Turns"):  # the first ones
            await self.user.follow(view)

    async def say(self, text: str) -> None:
        """Write a message in the open chat, and send it."""
        await self.user.write("Message", text)
        await self.user.button("Send")
        await expect(self.page.get_by_label("Message", exact=True)).to_have_value("")

    async def expect_text(self, text: str) -> None:
        """Wait for a text on the page."""
        await expect(self.page.get_by_text(text).first).to_be_visible()

    def audit_records(self, operation: str) -> list[dict[str, Any]]:
        """Return the audit records of an operation, oldest first."""
        lines = (self.web.home / "logs" / "audit.jsonl").read_text().splitlines()
        return [one for line in lines if (one := json.loads(line)).get("tool") == operation]


def furnish(home: Path) -> None:
    """Write earlier content of the people."""
    memory, theirs = home / "workspace" / "memory", home / "workspace" / "people" / "telegram_9"
    for folder in (memory, theirs / "memory", home / "sessions"):
        folder.mkdir(parents=True)
    (memory / "MEMORY.md").write_text(FACTS)
    (memory / "pending.md").write_text(WAITING)
    (memory / "2026-11-20.md").write_text("# 2026-11-20\n\n- 10:00 the key is under the mat\n")
    (memory / "history.jsonl").write_text(json.dumps(ENTRY) + "\n")
    (theirs / "memory" / "MEMORY.md").write_text("- Speaks Finnish\n")
    (home / "workspace" / "HEARTBEAT.md").write_text("- look after the plants\n")
    then = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(45):
        key = f"cli:{number}"
        path = home / "sessions" / f"{stem_of(key)}.jsonl"
        path.write_text(encode(Metadata(key, then, then + timedelta(days=number))))
    said = [
        {"role": "user", "seq": seq, "content": f"sentence {seq}", "timestamp": then.isoformat()}
        for seq in range(1, LONG + 1)
    ]
    lines = [encode(Metadata("cli:long", then, then)), *(json.dumps(one) + "\n" for one in said)]
    (home / "sessions" / f"{stem_of('cli:long')}.jsonl").write_text("".join(lines))


@contextlib.asynccontextmanager
async def build_stage(home: Path, browser: Browser) -> AsyncIterator[PageKit]:
    furnish(home)
    gates = {"think": Gate(), "look around": Gate()}

    async def hold_gates() -> None:
        for word, gate in gates.items():
            if word in model.prompts[-1].messages[-1].text:
                await gate()

    model, switch = ScriptedModel(author=_answer, hold=hold_gates), Switch(effects=True)
    async with FakeTelegram() as telegram:
        channel = {"enabled": True, "token": telegram.token, "base_url": telegram.base_url}
        config = {
            "owner": {"telegram": ["7"]},
            "channels": {"telegram": channel, "web": {"enabled": True}},
            "tools": {"approval": {"mcp": "ask"}},
            "heartbeat": {"every": "30m"},
        }
        async with (
            serving(home, model, config=config, tools=[Probe(), switch]) as web,
            browse(browser, web, size=PHONE, scheme="dark") as page,
        ):
            yield PageKit(web, KeyboardUser(page), telegram, gates, switch)
