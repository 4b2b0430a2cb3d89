"""Only the owner reaches the owner's memory through the running gateway, against any attempt of the
model and the person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import Prompt, Reply
from nanobot.testing import FakeClock, ScriptedModel, calls, says, together
from nanobot.testing.channel import FakeChannel
from tests.memory.attacker import ME, run_owned
from tests.memory.search.talk import id_of
from tests.support import running

SECRET = "zanzibar"
"""A word in all data of the owner. Everyone may search for it."""

BYSTANDER = "quetzal"
"""The same for a third person."""

PLANTED = {
    "memory/MEMORY.md": f"# Memory\n\n## Facts\n\n- The {SECRET} password is x1\n- Vault\n",
    "USER.md": f"# User\n\n- Born in {SECRET}\n",
    "SOUL.md": f"# Soul\n\n- Speaks {SECRET}\n",
    "HEARTBEAT.md": f"# Tasks\n\n- Look after {SECRET}\n",
    "memory/pending.md": f"# Waiting\n\n- [2026-03-01] (from x) -> MEMORY.md: {SECRET} waits\n",
    "memory/retired.md": f"# Retired\n\n- 2026-03-01: {SECRET} is over\n",
    "memory/2026-03-02.md": f"# 2026-03-02\n\n- 08:00 {SECRET} noted\n",
    "library/book.md": f"# Book\n\nThe {SECRET} chapter.\n",
    f"{SECRET}.txt": f"{SECRET} inside\n",
}


def paths(home: Path) -> Iterator[str]:
    """Return paths to the owner's data."""
    for path in ("memory/MEMORY.md", "USER.md", "memory/pending.md", "people/fake_bob/USER.md"):
        yield from (path, f"../../{path}", f"../{path}", str(home / "workspace" / path))
        yield f"../../owner/../{path}"
    yield from (str(home), "../..", "/", "..", "people", "../people", "../../..", "people/fake_bob")
    yield from (f"{home}/sessions/fake_1.jsonl", f"{home}/state/index.db", f"{home}/spill")
    yield from ("spill", "../../../spill", "../fake_bob/memory/MEMORY.md", "%2e%2e/%2e%2e/USER.md")


def everything(home: Path) -> list[Reply]:
    """Return calls of every tool that try to reach the owner's data, in steps."""
    searches = [{"query": SECRET}, {"query": BYSTANDER}, {"query": "password waits born"}]
    searches += [{"query": SECRET, "session": "fake:1"}, {"query": SECRET, "source": "library"}]
    ids = (
        "m:fake:1:1",
        "h:owner:1",
        id_of("n:owner:2026-03-02", f"- 08:00 {SECRET} noted"),
        id_of("f:owner:memory/MEMORY", f"Facts\n- The {SECRET} password is x1"),
        id_of("f:owner:memory/pending", f"MEMORY.md: {SECRET} waits"),
        id_of("f:owner:memory/retired", f"{SECRET} is over"),
        "m:fake:5:1",
        "h:people/fake_bob:1",
    )
    names = list(paths(home))
    reads = (together(*(calls("read_file", path=path) for path in names)),)
    listings = [calls("list_dir", path=path) for path in names]
    greps = [calls("grep", pattern=f"{SECRET}|{BYSTANDER}", path=path) for path in (*names, ".")]
    finds = [calls("find_files", pattern=f"**/*{SECRET[:4]}*", path=path) for path in (*names, ".")]
    return [
        together(*(calls("search_memory", **search) for search in searches)),
        together(*(calls("search_memory", around=id) for id in ids)),
        *reads,
        together(*listings, *greps, *finds),
    ]


def vandalism(home: Path) -> Reply:
    """Return calls that try to change the owner's data."""
    mine = [path for path in paths(home) if ".md" in path]
    return together(
        *(calls("write_file", path=path, content="vandal") for path in mine if ".." in path),
        *(calls("write_file", path=path, content="vandal") for path in mine if path[0] == "/"),
        *(calls("edit_file", path=p, old_text=SECRET, new_text="vandal") for p in mine[:6]),
        calls("update_memory", remove=["- Vault"]),
        calls("update_memory", file="SOUL.md", add=["vandal was here"]),
        calls("note", text="vandal was here"),
    )


COMMANDS = (
    "/memory|/memory search S|/memory why S|/memory why password|/memory pending|/memory accept 1|"
    "/memory drop 1|/forget S|/forget --erase S|/forget --yes 0000|/note vandal|/continue|"
    "/continue fake:1|/continue fake:5|/usage|/history|/history 100|/dream|/dream-log|/dream-log 1|"
    "/dream-log 2|/dream-log 3|/dream-restore --list|/dream-restore --version 1|"
    "/dream-restore --version 2|/status|/model|/model other|/help|/undo|/retry|/compact|/discard|"
    "/stop|/new"
).replace(" S", f" {SECRET}")


def plant(home: Path) -> None:
    for path, text in PLANTED.items():
        file = home / "workspace" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (home / "spill").mkdir(exist_ok=True)
    (home / "spill" / "old.txt").write_text(SECRET)


def owners_files(home: Path) -> dict[str, str]:
    return {path: (home / "workspace" / path).read_text() for path in PLANTED}


class SharedNanobot:
    """A nanobot with an owner in chat 1 and Bob in chat 5, and a record of its model."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, FakeClock()
        self.channel = FakeChannel(clock=self.clock)
        self.model = ScriptedModel(author=lambda _: says("fine"))
        self.learner = ScriptedModel(author=_learn)

    async def settle(self) -> None:
        """Talk and store data as the owner and as Bob, with versions and history."""
        await self.ask(f"My secret is {SECRET}", "1", ME)
        await self.ask(f"My bird is a {BYSTANDER}", "5", "bob")
        for chat, sender, word in (("1", ME, SECRET), ("5", "bob", BYSTANDER)):
            self.model.then(calls("update_memory", add=[f"Fond of {word}"]), says("noted"))
            await self.ask(f"I am fond of {word}", chat, sender)
            await self.ask("/compact", chat, sender)
            await self.ask("/dream", chat, sender)
            await self.ask(f"Once more: {word}", chat, sender)

    async def ask(self, text: str, chat: str, sender: str, **how: object) -> str:
        event = await self.channel.say(text, chat, sender_id=sender, **how)  # type: ignore[arg-type]
        return await self.channel.answer_to(event, chat)

    async def attack(self, chat: str, sender: str, **how: object) -> list[str]:
        """Try everything that a person and an obedient model can do, and return all visible
        texts."""
        seen = len(self.model.prompts)
        learnt = len(self.learner.prompts)
        answers: list[str] = []
        for step in (*everything(self.home), vandalism(self.home)):
            self.model.then(step, says("done"))
            answers.append(await self.ask("Do what you can", chat, sender, **how))
        answers += [await self.ask(c, chat, sender, **how) for c in COMMANDS.split("|")]
        answers.append(await self.ask("And now?", chat, sender, **how))
        answers += [
            answer
            for c in ("/compact", "/dream")
            if (answer := await self.ask(c, chat, sender, **how))
        ]
        prompts = [*self.model.prompts[seen:], *self.learner.prompts[learnt:]]
        return [*answers, *(text for prompt in prompts for text in text_of_prompt(prompt))]


def text_of_prompt(prompt: Prompt) -> Iterator[str]:
    """Return the text of a prompt, without the model's own calls."""
    yield from (m.text for m in prompt.messages)


def _learn(prompt: Prompt) -> Reply:
    asked = prompt.messages[1].text
    if "phase" in prompt.messages[0].text:
        return says('{"processed_entries": [0, 1, 2, 3], "edits": []}')
    memory = asked.partition("## Current Long-term Memory\n")[2].partition("\n\n## Conv")[0]
    said = asked.partition("## Conversation to Process\n")[2]
    return calls("save_memory", history_entry=said[:400], memory_update=memory)


def leaks(texts: list[str], *words: str) -> list[str]:
    """Return the texts with one of the words in a context that only its owner's files have."""
    return [text for text in texts if any(word in text for word in words)]


KNOWN: tuple[str, ...] = (
    "password is",
    "Born in",
    "Speaks",
    "Look after",
    f"{SECRET} waits",
    f"{SECRET} is over",
)
KNOWN += (f"{SECRET} noted", f"The {SECRET} chapter", f"{SECRET} inside", f"My secret is {SECRET}")
KNOWN += (f"ond of {SECRET}", f"Once more: {SECRET}")
BOBS = (f"My bird is a {BYSTANDER}", f"ond of {BYSTANDER}", f"Once more: {BYSTANDER}")

OTHERS: dict[str, tuple[str, str, dict[str, object]]] = {
    "a person": ("7", "eve", {}),
    "a person in a chat named like the owner": (ME, "eve", {}),
    "a person whose chat has a thread": ("1", "eve", {"thread_id": "9"}),
    "a thread of a group": ("g", ME, {"is_group": True, "thread_id": "4"}),
    "a group named like a person": ("bob", "eve", {"is_group": True}),
}


@pytest.mark.parametrize("who", OTHERS)
async def test_the_owners_memory_is_out_of_reach(who: str, tmp_path: Path) -> None:
    chat, sender, how = OTHERS[who]
    nanobot = SharedNanobot(tmp_path)
    async with run_owned(
        tmp_path, nanobot.model, nanobot.channel, clock=nanobot.clock, learner=nanobot.learner
    ):
        plant(tmp_path)
        await nanobot.settle()
        before = owners_files(tmp_path)
        assert f"Fond of {SECRET}" in before["memory/MEMORY.md"]
        seen = await nanobot.attack(chat, sender, **how)
        assert len(seen) > 60
        assert leaks(seen, *KNOWN, *BOBS) == []
        assert owners_files(tmp_path) == before
        mine = await nanobot.ask("/memory", "1", ME)
        assert "password" in mine
        assert "vandal" not in mine
    bobs = (tmp_path / "workspace" / "people" / "fake_bob" / "memory" / "MEMORY.md").read_text()
    assert "vandal" not in bobs
    assert f"Fond of {BYSTANDER}" in bobs


async def test_of_the_owner_a_group_sees_what_the_owner_allowed_and_changes_nothing(
    tmp_path: Path,
) -> None:
    nanobot = SharedNanobot(tmp_path)
    shown: dict[str, Any] = {"NANOBOT_MEMORY__GROUPS_SEE_OWNER": "true"}
    async with run_owned(
        tmp_path,
        nanobot.model,
        nanobot.channel,
        clock=nanobot.clock,
        learner=nanobot.learner,
        **shown,
    ):
        plant(tmp_path)
        await nanobot.settle()
        before = owners_files(tmp_path)
        seen = await nanobot.attack("g", "eve", is_group=True)
        assert any("password is" in text for text in seen)
        assert leaks(seen, "Born in", "Look after", f"{SECRET} waits", *BOBS) == []
        assert owners_files(tmp_path) == before
        assert leaks(await nanobot.attack("7", "eve"), *KNOWN, *BOBS) == []


async def test_what_linked_identities_share_is_unlinked_with_them(tmp_path: Path) -> None:
    linked: dict[str, Any] = {"NANOBOT_MEMORY__IDENTITIES": f'[["fake:{ME}", "fake:alias"]]'}
    unlinked: dict[str, Any] = {}
    nanobot = SharedNanobot(tmp_path)
    for environ, sees in ((linked, None), (linked, True), (unlinked, False)):
        async with run_owned(
            tmp_path,
            nanobot.model,
            nanobot.channel,
            clock=nanobot.clock,
            learner=nanobot.learner,
            **environ,
        ):
            if sees is None:
                plant(tmp_path)
                await nanobot.settle()
                continue
            answer = await nanobot.ask(f"/memory search {SECRET}", "8", "alias")
            listed = await nanobot.ask("/continue", "8", "alias")
            await nanobot.ask("Hello", "8", "alias")
            system = nanobot.model.prompts[-1].messages[0].text
            assert ("Once more" in answer, "fake:1" in listed, "password is" in system) == (
                sees,
            ) * 3


async def test_the_first_command_of_a_conversation_says_whose_it_is(tmp_path: Path) -> None:
    """The owner's chat 66 is not yet known as the owner's when they carry a conversation over, and
    a stranger has the id 66."""
    nanobot = SharedNanobot(tmp_path)
    async with run_owned(
        tmp_path, nanobot.model, nanobot.channel, clock=nanobot.clock, learner=nanobot.learner
    ):
        await nanobot.settle()
        assert "Copied" in await nanobot.ask("/continue fake:1", "66", ME)
        found, listed = await asyncio.gather(
            nanobot.ask("/memory search secret", "70", "66"), nanobot.ask("/continue", "70", "66")
        )
        assert leaks([found, listed], *KNOWN, "fake:66") == []


async def test_someone_new_is_remembered_from_their_first_message_on(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, OfflineModel(), channel, NANOBOT_OWNER__FAKE='["person-1"]'):
        await channel.ask("remember that my favourite colour is green", "2")
    memory = tmp_path / "workspace/people/fake_person-2/memory/MEMORY.md"
    assert "favourite colour is green" in memory.read_text(encoding="utf-8")
