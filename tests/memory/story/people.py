"""A nanobot on Telegram, three people and a group, and a model that knows only what it is shown."""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from dulwich.object_format import SHA1
from dulwich.pack import Pack
from msgspec import Struct

from nanobot.providers.port import Prompt, Reply
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from tests.doubles.telegram import FakeTelegram
from tests.files import read_file
from tests.support import Gate, configure, copy_running, start_with_one_model, without_header

ADA, MEI, JONAS, GROUP = 7, 8, 9, -5
SCOPES = {ADA: "", MEI: "people/telegram_8/", JONAS: "people/telegram_9/"}
SCOPES |= {GROUP: "groups/telegram_-5/"}
FILES = ("memory/MEMORY.md", "USER.md", "memory/retired.md")

_STATES = re.compile(r"(?:I|My|Ich|Mein\w*|We|Wir)\b|我")
_ENDS = re.compile(r"no longer|\bnow\b|verkauft|不再|现在|过敏了$")
_LEARNED = re.compile(r"- (?:\d{4}-\d\d-\d\d: )?(.*)")


def answer(prompt: Prompt) -> Reply:
    """Take each statement for a fact, replace the one most like a statement of change, remember
    what is to be remembered, and answer questions with all that is shown."""
    system, asked = prompt.messages[0].text, prompt.messages[1].text
    if "phase 1" in system[:40]:
        return says(json.dumps(_extract(asked)))
    if "phase 2" in system[:40]:
        return says('{"edits": []}')
    if "## Conversation to Process" in asked:
        known = asked.partition("Long-term Memory\n")[2].partition("\n\n## Conv")[0]
        said = re.findall(r"(?m)^\[.{16}\] USER: (?:\[[^]]*\]\s*)*(.*)$", asked)
        return calls("save_memory", history_entry=" ".join(said), memory_update=known)
    newest = prompt.messages[-1]
    text = re.sub(r"\A\[from \w+\]\n", "", without_header(newest.text))
    if newest.role == "tool":
        heard = (without_header(one.text) for one in prompt.messages if one.role == "user")
        seen = "\n".join((*heard, *re.findall(r"(?m)^- .*$", system)))
        return says(f"{newest.text}\n{seen}"[:3_500])
    if text.endswith(("?", "？")):
        return calls("search_memory", query=text)
    if text.startswith(("Remember", "Merk dir", "记住")):
        return calls("update_memory", quote=[text])
    return says("I see.")


def _extract(asked: str) -> dict[str, object]:
    """Find the statements in the entries of a request, and the facts in its files that they end."""
    files, _, entries = asked.partition("## New entries")
    known = re.findall(r"(?m)^- (.*?)(?:  ←.*)?$", files)
    learned, replaced = list[dict[str, object]](), list[dict[str, object]]()
    blocks = re.split(r"(?m)^\[(?=\d+\] )", entries)[1:]
    for number, block in enumerate(blocks):
        for said in re.split(r"(?<=[.。!！?？])\s*|\n", block.partition(": ")[2]):
            text = said.strip("> \n")
            if not _STATES.match(text) or text.endswith(("?", "？")) or text in known:
                continue
            old = _most_like(text, known) if _ENDS.search(text) else ""
            item: dict[str, object] = {"text": text, "entry": number}
            replaced += [{**item, "replaces": old}] if old else []
            learned += [] if old else [item]
    every = {"user_updates": learned, "contradictions": replaced}
    return {**every, "processed_entries": [*range(len(blocks))]}


def _most_like(text: str, known: list[str]) -> str:
    def parts(line: str) -> set[str]:
        return {line[at : at + 2] for at in range(len(line) - 1)}

    return max(known, key=lambda line: len(parts(line) & parts(text)), default="")


class Asked(Struct, frozen=True):
    """A request of a turn: its chat, its day, and how often the chat had begun anew."""

    chat: int
    day: str
    begun: int
    prompt: Prompt


class Story:
    """The home, the people's messenger, the clock, and all requests of the model."""

    def __init__(self, home: Path, telegram: FakeTelegram, clock: FakeClock) -> None:
        self.home, self.telegram, self.clock = home, telegram, clock
        self.gate: Gate | None = None
        self.prompts, self.turns = list[Prompt](), list[Asked]()
        self._begun: dict[int, int] = defaultdict(int)
        self._life = AsyncExitStack()
        for person, name in ((ADA, "Ada"), (MEI, "Mei"), (JONAS, "Jonas")):
            telegram.person(person, first_name=name)
        telegram.group(GROUP)

    async def start(self) -> None:
        everyone = [str(one) for one in (ADA, MEI, JONAS)]
        groups = {"groups": "mention", "allow_groups": {str(GROUP): everyone}}
        configure(self.home, self.telegram, {"allow_from": everyone, **groups})
        model = ScriptedModel(author=self._note, hold=self._hold)
        self._life = AsyncExitStack()
        gateway = start_with_one_model(self.home, model, self.clock)
        await self._life.enter_async_context(gateway)

    async def stop(self) -> None:
        await self._life.aclose()

    async def kill_during(self, person: int, text: str) -> str:
        """Lose everything but the files at the moment at which the model is asked, start again, and
        return the answer."""
        self.gate = Gate()
        question = self.telegram.say(text, user=person)
        await self.gate.reached.wait()
        left = self.home.with_name(f"{self.home.name} after the kill")
        copy_running(self.home, left)
        await self.stop()
        self.gate, self.home = None, left
        await self.start()
        return (await self.telegram.answer_to(question, person)).text

    async def hear(self, person: int, *texts: str, chat: int = 0) -> str:
        """Let a person write, in a group with a mention, and return the last answer."""
        answer = ""
        for text in texts:
            self.clock.jump(60)
            name = f"@{self.telegram.username}" if chat else ""
            self._begun[chat or person] += text == "/new"
            said = f"{text}{name}" if text[0] == "/" else f"{name} {text}".strip()
            question = self.telegram.say(said, user=person, chat=chat or None)
            answer = (await self.telegram.answer_to(question, chat or person)).text
        return answer

    async def day(self, name: str) -> None:
        """Pass the nights until this weekday."""
        await self._pass_night()
        while f"{self.clock.now():%A}" != name:
            await self._pass_night()

    async def _pass_night(self) -> None:
        """End the day's conversations, and dream of them at three o'clock."""
        for chat in (ADA, MEI, JONAS):
            await self.hear(chat, "/new")
        await self.hear(ADA, "/new", chat=GROUP)
        now = self.clock.now()
        three = (now + timedelta(days=1)).replace(hour=3, minute=0, second=0)
        self.clock.jump((three - now).total_seconds())
        for chat in (ADA, MEI, JONAS):
            await self.hear(chat, "/dream")
        await self.hear(ADA, "/dream", chat=GROUP)
        self.clock.jump(5 * 3_600)

    async def forward(self, person: int, text: str) -> str:
        """Let a person forward a stranger's words, and return the answer."""
        question = self.telegram.forward(text, user=person)
        return (await self.telegram.answer_to(question, person)).text

    async def undo(self, person: int, fact: str) -> None:
        """Undo the version that learned a fact."""
        why = await self.hear(person, f"/memory why {fact}")
        number = re.search(r"version (\d+)", why)
        assert number
        await self.hear(person, f"/dream-restore --version {number[1]}")

    def facts(self, chat: int, path: str) -> list[str]:
        """Return the learned lines of a file, without those of the template."""
        file = self.home / "workspace" / SCOPES[chat] / path
        text = file.read_text() if file.exists() else ""
        return [match[1] for line in text.splitlines() if (match := _LEARNED.fullmatch(line))]

    def read_memory(self, chat: int) -> str:
        """Return all text in a memory's files, also notes and history."""
        folder = self.home / "workspace" / SCOPES[chat]
        files = [folder / "USER.md", *(folder / "memory").rglob("*")]
        return "\n".join(path.read_text() for path in files if path.is_file())

    def _note(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        heads = (re.match(r"\[today.*:(-?\d+)\]", one.text) for one in prompt.messages)
        if chats := [int(head[1]) for head in heads if head]:
            day = self.clock.now().date().isoformat()
            self.turns.append(Asked(chats[0], day, self._begun[chats[0]], prompt))
        return answer(prompt)

    async def _hold(self) -> None:
        if self.gate:
            await self.gate()


def find_bytes(home: Path, *words: str) -> list[str]:
    """Return the files of a home that have one of these words, also in compressed versions."""
    forms = [form for word in words for form in (word.encode(), json.dumps(word)[1:-1].encode())]

    def contents(path: Path) -> Iterator[bytes]:
        data = read_file(path)
        yield data
        if path.parent.parent.name == "objects" and data.startswith(b"x"):
            yield zlib.decompress(data)
        if path.suffix == ".pack":
            with Pack(str(path.with_suffix("")), object_format=SHA1) as pack:
                yield from (item.as_raw_string() for item in pack.iterobjects())

    return [
        path.relative_to(home).as_posix()
        for path in home.rglob("*")
        if path.is_file() and any(form in data for data in contents(path) for form in forms)
    ]
