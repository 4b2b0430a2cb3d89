"""The CLI channel between a fake core and fake clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from nanobot.bus.events import (
    Button,
    InboundMessage,
    Media,
    ModelUnreachable,
    Notice,
    OutboundPart,
    PromptReading,
    Receipt,
    TextDelta,
    Thinking,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnJoined,
    TurnStarted,
)
from nanobot.channel import Admission, Channel, Chat, HttpHandler, MenuEntry, Sender, WebhookHandler
from nanobot.clock import Clock
from nanobot.errors import NanobotError, SendRefused, StorageError
from nanobot_cli.channel import CliChannel

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class StoppedClock:
    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits for time to pass")


class Core:
    """The host: records published messages and drops known ones."""

    def __init__(self, admission: Admission = "allowed", folder: Path | None = None) -> None:
        self.folder = folder
        self.published: list[InboundMessage] = []
        self.admission = admission
        self.failure: Exception | None = None
        self.reaction: CliChannel | None = None

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        return self.admission

    async def has_received(self, chat_id: str, event_id: str, *, unanswered: bool = False) -> bool:
        return False

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        return None

    def serve_webhook(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        raise AssertionError("the CLI serves nothing")

    def serve_http(self, path: str, handler: HttpHandler) -> AbstractAsyncContextManager[str]:
        raise AssertionError("the CLI serves nothing")

    def media_path(self, media: Media) -> Path:
        if "gone" in media.ref:
            raise SendRefused("the file is no longer there")
        return Path("/home/ana/.nanobot") / media.ref

    def menu(self) -> Sequence[MenuEntry]:
        return ()

    def report_problem(self, problem: str) -> None:
        raise AssertionError("nothing keeps the CLI from working")

    def report_idle(self, why: str) -> None:
        raise AssertionError("this channel always runs")

    async def report_undelivered(self, platform_id: str, reason: str) -> None:
        raise AssertionError("this platform reports nothing later")

    def report_connected(self, who: str) -> None:
        raise AssertionError("the terminal has no account")

    def report_alive(self, within: float) -> None:
        raise AssertionError("the terminal is silent while nobody uses it")

    @property
    def owners(self) -> Sequence[str]:
        return ()

    @property
    def clock(self) -> Clock:
        return StoppedClock()

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        if self.failure is not None:
            raise self.failure
        seen = {message.event_id for message in self.published}
        new = [message for message in messages if message.event_id not in seen]
        self.published += new
        if self.reaction is not None:  # an answer that is quicker than the way back from here
            for message in new:
                await answer(self.reaction, message.event_id, "quick")
        return [message.event_id for message in new]

    async def cursor(self) -> str | None:
        return None

    @property
    def state_folder(self) -> Path:
        return self.folder or Path("/none")  # nothing is kept there

    @property
    def is_folder_shared(self) -> bool:
        return False


class Client:
    """A connection that records its events."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.is_closed = False

    def send(self, event: Mapping[str, object]) -> None:
        if not self.is_closed:
            self.events.append(dict(event))

    @property
    def names(self) -> list[object]:
        return [event["event"] for event in self.events]


@asynccontextmanager
async def running(core: Core) -> AsyncIterator[CliChannel]:
    channel = CliChannel()
    task = asyncio.get_running_loop().create_task(channel.run(core))
    try:
        yield channel
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def request(request_id: str, text: str = "hi", **fields: object) -> dict[str, object]:
    return {"op": "chat", "id": request_id, "session": "cli:direct", "text": text, **fields}


def end_turn(
    *event_ids: str, outcome: Literal["done", "failed", "stopped", "waiting"] = "done"
) -> TurnEnded:
    return TurnEnded("cli", "direct", "t1", event_ids, outcome, ("note",), 10, 20, 30)


def part(text: str, *event_ids: str, last: bool = True) -> OutboundPart:
    return OutboundPart("k", "cli", "direct", text, event_ids=event_ids, last=last)


async def answer(channel: CliChannel, event_id: str, text: str) -> None:
    """Act as the core at the end of a turn."""
    await channel.show_progress(end_turn(event_id))
    assert await channel.send(part(text, event_id)) == Receipt()


async def test_a_request_becomes_one_message_of_the_owner_and_gets_one_reply() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1", "hello"), client)
        await answer(channel, "cli:1", "hello to you")
    assert core.published == [
        InboundMessage("cli", "direct", "owner", "hello", event_id="cli:1", timestamp=NOON)
    ]
    assert core.published[0].session_key == "cli:direct"
    assert client.events == [
        {"event": "accepted", "id": "1"},
        {
            "event": "reply",
            "id": "1",
            "text": "hello to you",
            "turn": "t1",
            "tools": ("note",),
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "milliseconds": 30,
            "outcome": "done",
            "origin": "",
        },
    ]


async def test_a_session_of_another_channel_is_spoken_to_from_the_cli() -> None:
    core = Core()
    async with running(core) as channel:
        await channel.chat(request("1", session="telegram:123"), Client())
    message = core.published[0]
    assert (message.channel, message.session_key) == ("cli", "telegram:123")


async def test_an_answer_that_is_quicker_than_publish_reaches_its_client() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        core.reaction = channel
        await channel.chat(request("1"), client)
    assert client.names == ["accepted", "reply"]


async def test_progress_goes_to_the_clients_of_its_turn_only() -> None:
    core, mine, other = Core(), Client(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), mine)
        await channel.chat(request("2"), other)
        await channel.show_progress(TurnStarted("cli", "direct", "t1", ("cli:1",)))
        await channel.show_progress(PromptReading("cli", "direct", "t1", 1_900, 2_750))
        await channel.show_progress(PromptReading("cli", "direct", "t1", 2_750, 2_750))
        await channel.show_progress(TextDelta("cli", "direct", "t1", "he", restart=True))
        await channel.show_progress(ToolStarted("cli", "direct", "t1", "read_file a.txt"))
        await channel.show_progress(ToolOutput("cli", "direct", "t1", "more\n"))
        finished = ToolFinished("cli", "direct", "t1", "read_file a.txt", 0.1, 1_234)
        await channel.show_progress(finished)
        await channel.show_progress(TextDelta("cli", "direct", "unknown", "?"))
    assert mine.events[1:] == [
        {"event": "taken", "id": "1", "turn": "t1"},
        {"event": "reading", "id": "1", "text": "reading 1,900 of 2,750 tokens"},
        {"event": "reading", "id": "1", "text": ""},
        {"event": "delta", "id": "1", "text": "he", "restart": True},
        {"event": "tool", "id": "1", "hint": "read_file a.txt"},
        {"event": "output", "id": "1", "text": "more\n"},
        {"event": "done", "id": "1", "hint": "read_file a.txt", "size": 1_234, "failed": False},
    ]
    assert other.names == ["accepted"]


async def test_the_watchers_see_when_a_postponed_turn_is_tried_again_until_it_ends(
    tmp_path: Path,
) -> None:
    core, asker, watcher = Core(folder=tmp_path), Client(), Client()
    away = ModelUnreachable("cli", "direct", "t1", "connection refused", 15, 1)
    line = "model unreachable: connection refused, trying again in 15 s (1)"
    async with running(core) as channel:
        await channel.chat(request("1"), asker)
        await channel.chat(request("2", "", watch=True), watcher)
        await channel.show_progress(TurnStarted("cli", "direct", "t1", ("cli:1",)))
        await channel.show_progress(away)
        assert asker.events[-1] == {"event": "reading", "id": "1", "text": line}
        await channel.show_progress(TurnEnded("cli", "direct", "t1", ("cli:1",), "waiting"))
        await channel.show_progress(away)
        await channel.show_progress(TurnStarted("cli", "direct", "t1", ("cli:1",)))
        await channel.show_progress(Thinking("cli", "direct", "t1", 8))
        await channel.show_progress(TurnEnded("cli", "direct", "t1", ("cli:1",), "done"))
        await channel.show_progress(TurnStarted("cli", "direct", "t2", ()))
        await channel.show_progress(Thinking("cli", "direct", "t2", 8))
    shown = [event["text"] for event in watcher.events if event["event"] == "reading"]
    assert shown == [line, "thinking 8 s", ""]


async def test_a_client_that_does_not_want_to_see_the_reply_grow_gets_notices_only() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1", stream=False), client)
        await channel.show_progress(TurnStarted("cli", "direct", "t1", ("cli:1",)))
        await channel.show_progress(TextDelta("cli", "direct", "t1", "he"))
        await channel.show_progress(ToolStarted("cli", "direct", "t1", "x"))
        await channel.show_progress(ToolOutput("cli", "direct", "t1", "more"))
        await channel.show_progress(Notice("cli", "direct", "the disk is full"))
    assert client.events[1:] == [{"event": "notice", "id": "1", "text": "the disk is full"}]


async def test_a_client_with_several_messages_in_one_turn_sees_it_once() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.chat(request("2"), client)
        await channel.show_progress(TurnStarted("cli", "direct", "t1", ("cli:1", "cli:2")))
        await channel.show_progress(TextDelta("cli", "direct", "t1", "he"))
        await channel.chat(request("3"), client)
        joined = TurnJoined("cli", "direct", "t1", ("cli:1", "cli:2", "cli:3"))
        await channel.show_progress(joined)
    assert client.names == ["accepted"] * 2 + ["taken"] * 2 + ["delta", "accepted", "taken"]


async def test_who_watches_a_chat_hears_what_nobody_there_waits_for(tmp_path: Path) -> None:
    core, watcher, asker = Core(folder=tmp_path), Client(), Client()
    async with running(core) as channel:
        await channel.chat(request("w", "", watch=True), watcher)
        await channel.chat(request("1"), asker)
        await answer(channel, "cli:1", "for the asker")
        await answer(channel, "helper:7", "the helper is done")
        await channel.send(part("by the way"))
        await channel.send(replace(part("elsewhere"), chat_id="work"))
        watcher.is_closed = True
        await channel.send(part("too late"))
    assert [event.get("text") for event in watcher.events] == [
        None,
        "the helper is done",
        "by the way",
    ]
    assert [message.event_id for message in core.published] == ["cli:1"]


async def test_what_is_kept_of_a_deleted_chat_is_shown_to_nobody(tmp_path: Path) -> None:
    core, watcher = Core(folder=tmp_path), Client()
    async with running(core) as channel:
        await channel.send(part("before"))
        await channel.send(replace(part("elsewhere"), chat_id="work", key="x/2"))
        await channel.forget_chat(tmp_path, "cli:direct")
        await channel.chat(request("w", "", watch=True), watcher)
        await channel.send(part("after"))
    assert [event.get("text") for event in watcher.events] == [None, "after"]
    assert "elsewhere" in (tmp_path / "unseen.json").read_text()


async def test_who_watches_and_waits_hears_everything_once(tmp_path: Path) -> None:
    core, client = Core(folder=tmp_path), Client()
    async with running(core) as channel:
        await channel.chat(request("w", "", watch=True), client)
        await channel.chat(request("1"), client)
        await channel.show_progress(Notice("cli", "direct", "the disk is full"))
        await channel.send(part("by the way"))
        await answer(channel, "cli:1", "done")
    assert client.names == ["accepted", "accepted", "notice", "message", "reply"]


BUTTONS = (
    Button("Approve", "/approve A1", only="owner"),
    Button("Deny", "/deny A1"),
    Button("Mine", "x", only="telegram-7"),
)
CHOICES = [
    {"label": "Approve", "value": "/approve A1"},
    {"label": "Deny", "value": "/deny A1"},
]


async def test_the_buttons_of_the_owner_are_choices() -> None:
    client = Client()
    async with running(Core()) as channel:
        await channel.chat(request("1"), client)
        await channel.send(replace(part("May I?"), buttons=BUTTONS))
    assert client.events[-1]["choices"] == CHOICES


async def test_where_somebody_watches_only_they_are_given_the_choice(tmp_path: Path) -> None:
    script, person = Client(), Client()
    async with running(Core(folder=tmp_path)) as channel:
        await channel.chat(request("1"), script)
        await channel.chat(request("w", "", watch=True), person)
        await channel.send(replace(part("May I?"), buttons=BUTTONS))
    assert script.events[-1]["choices"] == []
    assert person.events[-1]["choices"] == CHOICES


async def test_who_sees_a_question_hears_that_it_is_closed(tmp_path: Path) -> None:
    person, elsewhere = Client(), Client()
    question = replace(part("May I?"), buttons=BUTTONS)
    async with running(Core(folder=tmp_path)) as channel:
        await channel.chat(request("w", "", watch=True), person)
        await channel.chat(request("x", "", watch=True, session="cli:work"), elsewhere)
        receipt = await channel.send(question)
        await channel.close_choices(question, receipt, "Approved, by the page.")
    closed = {"event": "closed", "id": "w", "text": "Approved, by the page.", "choices": CHOICES}
    assert person.events[-1] == closed
    assert elsewhere.names == ["accepted"]


async def test_a_question_that_nobody_saw_is_shown_later_without_its_choices(
    tmp_path: Path,
) -> None:
    person = Client()
    question = replace(part("May I?"), buttons=BUTTONS)
    async with running(Core(folder=tmp_path)) as channel:
        receipt = await channel.send(question)
        await channel.close_choices(question, receipt, "Not answered in time.")
        await channel.chat(request("w", "", watch=True), person)
    assert person.events[-1]["text"] == "May I?\n\nNot answered in time."
    assert person.events[-1]["choices"] == []


async def test_a_notice_reaches_its_chat_only() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.show_progress(Notice("cli", "elsewhere", "no"))
    assert client.names == ["accepted"]


async def test_messages_steered_into_one_turn_all_get_its_reply() -> None:
    core, one, two = Core(), Client(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), one)
        await channel.chat(request("2"), two)
        await channel.show_progress(end_turn("cli:1", "cli:2"))
        await channel.send(part("both", "cli:1", "cli:2"))
    assert [one.events[-1]["text"], two.events[-1]["text"]] == ["both", "both"]


async def test_the_parts_of_a_long_message_arrive_as_one_reply() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.show_progress(end_turn("cli:1"))
        await channel.send(part("one ", "cli:1", last=False))
        assert client.names == ["accepted"]
        await channel.send(part("two", "cli:1"))
    assert client.events[-1]["text"] == "one two"


async def test_a_stopped_turn_ends_with_an_empty_reply() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.show_progress(end_turn("cli:1", outcome="stopped"))
    assert (client.events[-1]["text"], client.events[-1]["outcome"]) == ("", "stopped")


@pytest.mark.parametrize("outcome", ["failed", "waiting"])
async def test_the_outcome_of_a_turn_stands_in_the_reply(
    outcome: Literal["failed", "waiting"],
) -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.show_progress(end_turn("cli:1", outcome=outcome))
        await channel.send(part("the model is out", "cli:1"))
    assert client.events[-1]["outcome"] == outcome


async def test_a_reply_that_nobody_waits_for_is_accepted_and_never_given_to_a_later_client() -> (
    None
):
    core, gone, later = Core(), Client(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), gone)
        gone.is_closed = True
        await channel.chat(request("2"), later)
        await answer(channel, "cli:1", "for the one who left")
        await answer(channel, "cli:from-before-a-restart", "old")
    assert later.names == ["accepted"]


async def test_what_is_said_before_the_reply_reaches_whoever_waits_in_the_chat_with_its_files() -> (
    None
):
    core, mine, elsewhere = Core(), Client(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), mine)
        await channel.chat(request("2", "/status"), mine)
        await channel.chat(request("3", session="cli:work"), elsewhere)
        sent = replace(part("here it is"), media=(Media("media/ab.txt", name="a.txt", size=7),))
        assert await channel.send(sent) == Receipt()
        await answer(channel, "cli:1", "done")
    assert mine.events[2:3] == [
        {
            "event": "message",
            "id": "1",
            "text": "here it is",
            "files": [{"name": "a.txt", "path": "/home/ana/.nanobot/media/ab.txt", "size": 7}],
            "choices": [],
            "at": "",
            "chat": "",
        }
    ]
    assert mine.names == ["accepted", "accepted", "message", "reply"]
    assert elsewhere.names == ["accepted"]


async def test_a_file_that_is_gone_is_named_and_costs_neither_the_words_nor_the_others() -> None:
    core, client = Core(), Client()
    files = (Media("media/gone.txt", name="a.txt"), Media("media/cd.txt", name="c.txt"))
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.send(replace(part("both of them"), media=files))
    assert client.events[1]["text"] == "both of them\n[the file a.txt no longer exists]"
    assert str(client.events[1]["files"]).count("path") == 1
    assert "c.txt" in str(client.events[1]["files"])


async def test_a_turn_that_has_said_it_all_ends_with_an_empty_reply() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), client)
        await channel.send(part("it is done"))
        await answer(channel, "cli:1", "")
    assert client.names == ["accepted", "message", "reply"]
    assert (client.events[-1]["text"], client.events[-1]["outcome"]) == ("", "done")


async def test_a_message_seen_before_is_refused_and_does_not_hang() -> None:
    core, first, again = Core(), Client(), Client()
    async with running(core) as channel:
        await channel.chat(request("1"), first)
        with pytest.raises(NanobotError, match="received before") as refusal:
            await channel.chat(request("1"), again)
        await answer(channel, "cli:1", "once")
        with pytest.raises(NanobotError, match="received before"):
            await channel.chat(request("1"), again)
    assert "nanobot sessions show cli:direct" in refusal.value.hint
    assert (first.names, again.names) == (["accepted", "reply"], [])
    assert len(core.published) == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"text": " "}, "the message is empty"),
        ({"text": None}, "the message is empty"),
        ({"session": "direct"}, "not a valid session key"),
        ({"session": "cli:"}, "not a valid session key"),
        ({"session": "cli:a\nb"}, "not a valid session key"),
        ({"id": ""}, "needs an id"),
        ({"id": 7}, "needs an id"),
    ],
)
async def test_a_malformed_request_is_refused(fields: dict[str, object], error: str) -> None:
    core = Core()
    async with running(core) as channel:
        with pytest.raises(NanobotError, match=error):
            await channel.chat({**request("1"), **fields}, Client())
    assert core.published == []


async def test_what_the_disk_refused_can_be_sent_again() -> None:
    core, client = Core(), Client()
    async with running(core) as channel:
        core.failure = StorageError("journal.db", "no space left")
        with pytest.raises(StorageError):
            await channel.chat(request("1"), client)
        core.failure = None
        await channel.chat(request("1"), client)
    assert client.names == ["accepted"]


async def test_who_is_not_admitted_is_told() -> None:
    async with running(core := Core("refused")) as channel:
        with pytest.raises(NanobotError, match="does not accept messages"):
            await channel.chat(request("1"), Client())
    assert core.published == []


def test_it_is_a_channel_that_takes_any_text_and_any_files_at_once() -> None:
    channel: Channel = CliChannel()
    assert (channel.name, channel.limits.text, channel.limits.files) == ("cli", 0, 0)
    assert channel.limits.caption > 10**12
