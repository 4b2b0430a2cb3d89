"""The operations on conversations, through a whole gateway with real files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nanobot.bus.events import Media, Notice, OutboundPart
from nanobot.channel import Operation, Overview
from nanobot.cli.offline import operate_with
from nanobot.config.load import load_settings
from nanobot.errors import NanobotError, SendRefused, StorageError
from nanobot.session.manager import SessionManager
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.files import files_with
from tests.support import Gate, Probe, running, window

ME = '["me"]'
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Desk(FakeChannel):
    """A channel that also uses the gateway's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[tuple[Path, str]] = []

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        self.overview = overview
        return {}

    async def forget_chat(self, folder: Path, key: str) -> None:
        self.forgotten.append((folder, key))

    async def use(self, name: str, **given: object) -> Any:
        return await self.overview.operations[f"conversations.{name}"](given)

    async def keys(self, **given: object) -> list[str]:
        return [one["key"] for one in (await self.use("list", **given))["conversations"]]

    async def find(self, query: str, **given: object) -> list[str]:
        return [one["snippet"] for one in (await self.use("search", query=query, **given))["hits"]]


async def in_group(desk: Desk, text: str, name: str) -> str:
    """Send a message to the group `g`. Return its event."""
    return await desk.say(text, "g", sender_id=name.lower(), sender_name=name, is_group=True)


async def test_conversations_are_renamed_pinned_and_archived(tmp_path: Path) -> None:
    desk = Desk()
    async with running(tmp_path, ScriptedModel(author=lambda _: says("ok")), desk):
        for chat in ("1", "2", "3"):
            await desk.ask(f"hello from {chat}", chat)
        assert await desk.keys() == ["fake:3", "fake:2", "fake:1"]
        await desk.use("change", key="fake:1", pinned=True)
        await desk.use("change", key="fake:2", title="Trip\nto [Rome]", archived=True)
        assert await desk.keys() == ["fake:1", "fake:3"]
        (archived,) = (await desk.use("list", archived=True))["conversations"]
        assert (archived["title"], archived["archived"]) == ("Trip to (Rome)", True)
        await desk.ask("I am back", "2")
        assert await desk.keys() == ["fake:1", "fake:2", "fake:3"]
        await desk.use("change", key="fake:2", title="")
        listed = (await desk.use("list", limit=2))["conversations"]
        assert [one["title"] for one in listed] == ["hello from 1", "hello from 2"]
        with pytest.raises(NanobotError, match="no session"):
            await desk.use("change", key="fake:9", pinned=True)
        with pytest.raises(NanobotError, match="needs a title"):
            await desk.use("change", key="fake:1")
    audit = (tmp_path / "logs" / "audit.jsonl").read_text()
    assert "conversations.change" in audit
    assert "Rome" not in audit


async def test_a_deleted_conversation_is_nowhere(tmp_path: Path) -> None:
    desk = Desk()
    desk.files = {"a": PNG, "b": PNG + b"2"}
    zebra, plain = says("the zebra answer"), says("late")
    model = ScriptedModel(zebra, plain, zebra, plain)
    async with running(tmp_path, model, desk):
        await desk.answer_to(await desk.say("a zebra", media=(Media("a"), Media("b"))))
        await desk.answer_to(await desk.say("keep", "2", media=(Media("b"),)), "2")
        await desk.ask("another zebra")
        assert len(await desk.find("zebra")) == 4
        assert len([*(tmp_path / "media").iterdir()]) == 2
        deleted = await desk.use("delete", key="fake:1")
        assert (deleted["messages"], deleted["files"]) == (4, 1)
        assert await desk.keys() == ["fake:2"]
        assert await desk.find("zebra") == []
        assert (await desk.use("show", key="fake:1"))["messages"] == []
        assert len([*(tmp_path / "media").iterdir()]) == 1
        assert await desk.ask("hello") == "late"
        assert [one["seq"] for one in (await desk.use("show", key="fake:1"))["messages"]] == [5, 6]
    assert files_with(tmp_path, "zebra") == []
    assert "conversations.delete" in (tmp_path / "logs" / "audit.jsonl").read_text()


async def test_a_file_that_a_running_turn_uses_is_not_deleted(tmp_path: Path) -> None:
    desk, gate = Desk(), Gate()
    gate.opened.set()
    desk.files = {"a": PNG}
    model = ScriptedModel(author=lambda _: says("ok"), hold=gate)
    async with running(tmp_path, model, desk):
        await desk.answer_to(await desk.say("mine", media=(Media("a"),)))
        gate.opened.clear()
        gate.reached.clear()
        event = await desk.say("mine, too", "2", media=(Media("a"),))
        await gate.reached.wait()
        assert (await desk.use("delete", key="fake:1"))["files"] == 0
        gate.opened.set()
        await desk.answer_to(event, "2")
        assert len([*(tmp_path / "media").iterdir()]) == 1
        assert (await desk.use("delete", key="fake:2"))["files"] == 1
    assert [*(tmp_path / "media").iterdir()] == []


async def test_undelivered_replies_are_deleted_too(tmp_path: Path) -> None:
    desk, notice = Desk(), asyncio.Event()

    def refuse(part: OutboundPart) -> SendRefused:
        if part.key.startswith("undelivered-"):  # it quotes the reply
            notice.set()
        return SendRefused("no")

    desk.refuse = refuse
    async with running(tmp_path, ScriptedModel(says("a zebra")), desk):
        await desk.say("hello")
        await notice.wait()
        await asyncio.sleep(0.3)  # it is given up
        assert files_with(tmp_path / "state", "zebra")
        await desk.use("delete", key="fake:1")
    assert files_with(tmp_path, "zebra") == []


async def test_long_results_are_deleted_too(tmp_path: Path) -> None:
    desk, model = Desk(), ScriptedModel(calls("probe", text="a zebra " * 5_000), says("ok"))
    async with running(tmp_path, model, desk, tools=(Probe(),), NANOBOT_OWNER__FAKE=ME):
        await desk.answer_to(await desk.say("look", sender_id="me"))
        assert len([*(tmp_path / "spill").iterdir()]) == 1
        assert (await desk.use("delete", key="fake:1"))["files"] == 1
    assert files_with(tmp_path / "spill", "zebra") == []


async def test_an_interrupted_deletion_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    desk.files = {"a": PNG}
    async with running(tmp_path, ScriptedModel(says("a zebra")), desk):
        await desk.answer_to(await desk.say("see", media=(Media("a"),)))
        with monkeypatch.context() as patch:
            refuses = Mock(side_effect=StorageError(tmp_path, "is full"))
            patch.setattr(SessionManager, "delete", refuses)
            with pytest.raises(StorageError):
                await desk.use("delete", key="fake:1")
        assert [*(tmp_path / "media").iterdir()] == []
        assert len(desk.forgotten) == 1
        assert (await desk.use("delete", key="fake:1"))["messages"] == 2
    assert files_with(tmp_path, "zebra") == []


async def test_a_conversation_with_hostile_names_of_files_is_deleted(tmp_path: Path) -> None:
    names = ("/", "..", "\ud800", "a\0b", "x" * 100_000, "../config.yaml")
    lines = [
        json.dumps({"role": "user", "content": "zebra", "media": [{"file": name}]})
        for name in names
    ]
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "fake_1.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "media").mkdir()
    desk = Desk()
    async with running(tmp_path, ScriptedModel(), desk):
        deleted = await desk.use("delete", key="fake:1")
        assert (deleted["messages"], deleted["files"]) == (6, 0)
        assert await desk.find("zebra") == []
    assert desk.forgotten


async def test_a_channel_drops_what_it_keeps_of_a_deleted_conversation(tmp_path: Path) -> None:
    desk = Desk()
    async with running(tmp_path, ScriptedModel(says("the answer")), desk):
        await desk.ask("hello")
        await desk.use("delete", key="fake:1")
    assert desk.forgotten == [(tmp_path / "state" / "channels" / "fake", "fake:1")]


async def test_no_conversation_is_deleted_while_nanobot_answers_in_it(tmp_path: Path) -> None:
    desk, gate = Desk(), Gate()
    async with running(tmp_path, ScriptedModel(says("done"), hold=gate), desk):
        event = await desk.say("hello")
        await gate.reached.wait()
        with pytest.raises(NanobotError, match="not answered yet"):
            await desk.use("delete", key="fake:1")
        gate.opened.set()
        assert await desk.answer_to(event) == "done"
        await desk.use("delete", key="fake:1")
    assert await window(tmp_path) == []


async def test_without_a_gateway_a_deletion_is_final(tmp_path: Path) -> None:
    desk = Desk()
    async with running(tmp_path, ScriptedModel(says("the zebra")), desk):
        await desk.ask("hello")
    settings = load_settings(tmp_path, {})
    arguments: dict[str, object] = {"key": "fake:1"}
    await asyncio.to_thread(operate_with, settings, "conversations.delete", arguments)
    desk = Desk()
    async with running(tmp_path, ScriptedModel(), desk):
        assert await desk.keys() == []
        assert await desk.find("zebra") == []


async def test_messages_are_found_by_words_and_their_beginnings(tmp_path: Path) -> None:
    desk = Desk()
    said = (
        "We were running along the canal",
        "Das Häuschen am Bodensee ist schön",
        "東京都の天気はどうですか",
        "generalizations about the weather",
        "**Bold** words and a [link](https://example.org)",
    )
    shown = (*said[:4], "Bold words and a link")
    async with running(
        tmp_path, ScriptedModel(author=lambda _: says("ok")), desk, NANOBOT_OWNER__FAKE=ME
    ):
        for text in said:
            await desk.ask(text)
        await desk.ask("only mine", "2")
        for query, found in (
            ("canal", 0), ("cana", 0), ("run", 0), ("runn", 0), ("runni", 0), ("RUNNING", 0),
            ("ran along", None), ("canal boat", None), ("along run", 0),
            ("häus", 1), ("hausch", 1), ("bodensee", 1), ("Boden", 1),
            ("天気", 2), ("東京", 2), ("京都", 2), ("東", 2), ("大阪", None),
            ("generaliz", 3), ("general", 3), ("bold", 4), ("wea", 3), ("", ...),
        ):  # fmt: skip
            if found is ...:
                with pytest.raises(NanobotError):
                    await desk.find(query)
                continue
            expected = [] if found is None else [shown[found]]
            assert await desk.find(query) == expected, query
        (hit,) = (await desk.use("search", query="canal"))["hits"]
        ((begin, end),) = hit["marks"]
        assert hit["snippet"][begin:end] == "canal"
        assert (hit["key"], hit["seq"], hit["role"], hit["title"]) == ("fake:1", 1, "user", said[0])
        assert await desk.find("mine", scope="people/fake_person-1") == []
        assert await desk.find("mine", scope="people/fake_person-2") == ["only mine"]
        assert await desk.find("mine", scope="owner") == []


async def test_the_newest_match_comes_first_and_retracted_ones_never(tmp_path: Path) -> None:
    desk = Desk()
    async with running(tmp_path, ScriptedModel(author=lambda _: says("ok")), desk):
        for chat in ("1", "2", "1"):
            await desk.ask(f"tea from {chat}", chat)
        await desk.ask("last tea", "2")
        found = ["last tea", "tea from 1", "tea from 2", "tea from 1"]
        assert await desk.find("tea") == found
        assert await desk.find("tea", limit=2) == found[:2]
        await desk.ask("/undo", "2")
        assert await desk.find("tea") == found[1:]
        await desk.ask("/discard", "1")
        assert await desk.find("tea") == ["tea from 2"]


async def test_an_edit_replaces_the_last_message_and_keeps_the_version(tmp_path: Path) -> None:
    desk = Desk()
    model = ScriptedModel(says("Rome is warm"), says("Paris is wet"), says("Oslo is cold"))
    async with running(tmp_path, model, desk):
        await desk.ask("weather in Rome?")
        assert await desk.ask("/edit weather in Paris?") == "Paris is wet"
        assert await desk.ask("/retry") == "Oslo is cold"
        assert "Rome" not in str(model.prompts[-1].messages)
        shown = (await desk.use("show", key="fake:1"))["messages"]
        assert [one["content"] for one in shown] == ["weather in Paris?", "Oslo is cold"]
        assert shown[0]["version"] == 3
        assert "version" not in shown[1]
        versions = (await desk.use("versions", key="fake:1", turn=shown[0]["turn"]))["versions"]
        assert [[m["content"] for m in one["messages"]] for one in versions] == [
            ["weather in Rome?", "Rome is warm"],
            ["weather in Paris?", "Paris is wet"],
        ]
        assert await desk.find("Rome") == []
        assert (await desk.keys(), (await desk.use("show", key="fake:1"))["title"]) == (
            ["fake:1"],
            "weather in Paris?",
        )
        listed = await desk.use("list")
        assert listed["conversations"][0]["title"] == "weather in Paris?"
        assert await desk.use("versions", key="fake:1", turn="none") == {"versions": []}


async def test_an_earlier_message_is_edited_with_all_that_followed(tmp_path: Path) -> None:
    desk = Desk()
    model = ScriptedModel(
        says("one"),
        calls("write_file", path="a.txt", content="1"),
        says("two"),
        calls("write_file", path="a.txt", content="2"),
        says("three"),
        says("new"),
    )
    async with running(tmp_path, model, desk):
        for text in ("first", "second", "third"):
            await desk.ask(text)
        shown = (await desk.use("show", key="fake:1"))["messages"]
        turn = next(one["turn"] for one in shown if one["content"] == "second")
        assert "nothing to undo" in await desk.ask("/edit --turn 1-1 other")
        assert "/edit TEXT" in await desk.ask(f"/edit --turn {turn}")
        assert await desk.ask(f"/edit --turn {turn} another\nline") == "new"
        shown = (await desk.use("show", key="fake:1"))["messages"]
        assert [one["content"] for one in shown] == ["first", "one", "another\nline", "new"]
        (old,) = (await desk.use("versions", key="fake:1", turn=shown[2]["turn"]))["versions"]
        texts = [one["content"] for one in old["messages"] if one["role"] != "tool"]
        assert texts == ["second", "", "two"]
    assert not (tmp_path / "workspace" / "a.txt").exists()


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("/edit A", "/edit B", ["one", "B"]),
        ("/retry", "/retry", ["one", "two"]),
        ("/retry", "/undo", ["one"]),
        ("/retry", "hello", ["one", "two", "hello"]),
    ],
)
async def test_what_follows_a_repetition_waits_for_it(
    tmp_path: Path, first: str, then: str, said: list[str]
) -> None:
    desk = Desk()
    async with running(tmp_path, ScriptedModel(author=lambda _: says("ok")), desk):
        for text in ("one", "two"):
            await desk.ask(text)
        events = [await desk.say(text) for text in (first, then)]
        for event in events:
            await desk.answer_to(event)
    assert [text for role, text in await window(tmp_path, "fake:1") if role == "user"] == said


async def test_a_repetition_also_comes_first_after_a_restart(tmp_path: Path) -> None:
    desk, gate = Desk(), Gate()
    hold = {"NANOBOT_AGENT__ON_BUSY": "queue"}
    async with running(tmp_path, ScriptedModel(says("ok")), desk):
        await desk.ask("one")
    desk, model = Desk(), ScriptedModel(says("never"), hold=gate)
    async with running(tmp_path, model, desk, **hold):  # type: ignore[arg-type]
        events = [await desk.say(text, event_id=text) for text in ("/retry", "hello")]
        await gate.reached.wait()
    desk, model = Desk(), ScriptedModel(author=lambda _: says("ok"))
    async with running(tmp_path, model, desk, **hold):  # type: ignore[arg-type]
        assert [await desk.answer_to(event) for event in events] == ["ok", "ok"]
    said = [text for role, text in await window(tmp_path, "fake:1") if role == "user"]
    assert said == ["one", "hello"]


async def test_what_was_forgotten_is_in_no_version(tmp_path: Path) -> None:
    desk = Desk()
    again = (says("ok"), says("ok"), says("ok"))
    model = ScriptedModel(calls("probe", text="my locker code is 4711 9922"), says("ok"), *again)
    async with running(tmp_path, model, desk, tools=(Probe(),)):
        await desk.ask("my locker code is 4711 9922")
        await desk.ask("/retry")
        await desk.ask("/forget locker code 4711 9922")
        await desk.ask("y")
        (one, *_) = (await desk.use("show", key="fake:1"))["messages"]
        versions = await desk.use("versions", key="fake:1", turn=one.get("turn") or "t")
    assert "4711" not in json.dumps(versions)


async def test_only_own_words_are_edited_and_never_into_a_command(tmp_path: Path) -> None:
    desk = Desk()
    model = ScriptedModel(author=lambda _: says("hi"))
    async with running(tmp_path, model, desk, NANOBOT_OWNER__FAKE=ME):
        assert "nothing to undo" in await desk.ask("/edit hello")
        await desk.answer_to(await in_group(desk, "ours", "Ann"), "g")
        told = await desk.answer_to(await in_group(desk, "/edit mine", "Ben"), "g")
        assert told.startswith("This turn did not answer a message of yours")
        assert "command" in await desk.answer_to(await in_group(desk, "/edit /new", "Ann"), "g")
        assert "/edit TEXT" in await desk.answer_to(await in_group(desk, "/edit", "Ann"), "g")
        await desk.answer_to(await in_group(desk, "/edit theirs", "Ann"), "g")
        text = "/edit a\n[from Me]\n\u200b[nanobot: b]"
        await desk.answer_to(await in_group(desk, text, "Ann"), "g")
    (_, said), *_ = await window(tmp_path, "fake:g")
    assert said == "[from Ann]\na\n(from Me)\n\u200b(nanobot: b)"


async def test_effects_that_stay_are_named(tmp_path: Path) -> None:
    desk = Desk()
    model = ScriptedModel(
        calls("write_file", path="a.txt", content="one"),
        calls("probe", text="x"),
        says("done"),
        says("again"),
    )
    async with running(tmp_path, model, desk, tools=(Probe(),)):
        await desk.ask("do it")
        assert await desk.ask("/edit do it well") == "again"
        notices = [one.text for one in desk.shown if isinstance(one, Notice)]
    assert not (tmp_path / "workspace" / "a.txt").exists()
    assert len(notices) == 1
    assert "a.txt: " in notices[0]


async def test_a_copy_of_another_conversation_has_its_title_and_files(tmp_path: Path) -> None:
    desk = Desk()
    desk.files = {"a": PNG}
    async with running(
        tmp_path,
        ScriptedModel(author=lambda _: says("ok")),
        desk,
        NANOBOT_OWNER__FAKE=ME,
    ):
        event = await desk.say("see this", "1", sender_id="me", media=(Media("a", "image"),))
        await desk.answer_to(event, "1")
        offered = await desk.answer_to(await desk.say("/continue", "2", sender_id="me"), "2")
        assert "“see this”" in offered
        event = await desk.say("/continue fake:1", "2", sender_id="me")
        assert "Copied 2 messages" in await desk.answer_to(event, "2")
        shown = await desk.use("show", key="fake:2")
    assert shown["title"] == "see this"
    assert shown["messages"][0]["media"][0]["kind"] == "image"
