"""The whole linked device, between a helper played by tests and the core."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from nanobot.bus.events import OutboundPart, TurnEnded, TurnStarted
from nanobot.errors import ChannelOff, SendError, SendLater, SendUnknown
from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.linked.outbound import make_message_id
from nanobot_whatsapp.linked.transport import OPEN_SECONDS, find_installed_program
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.whatsapp.linked.helpers import US, Core, Line, make_event
from tests.channels.whatsapp.linked.transport_kit import ANN, running

ANN_JID = "15557770000@s.whatsapp.net"
GROUP = "120363000000000001@g.us"
HELLO = OutboundPart("k1", "whatsapp", ANN, "hello")


async def test_what_is_said_is_stored_then_confirmed_then_shown_as_read(core: Core) -> None:
    async with running(core) as kit:
        helper = await kit.open_next()
        helper.say("event", seq=1, event=make_event("A1", "hello"))
        await helper.wait_for_ack(1)
        (message,) = core.stored
        read = await helper.request("read")
        helper.answer(read)
    assert (message.chat_id, message.event_id, message.content) == (ANN, "A1", "hello")
    assert message.message_id == "A1"
    assert read["params"] == {"chat": ANN_JID, "id": "A1", "sender": ANN_JID}
    assert core.account == "+15550001111 (linked)"
    assert core.problem == ""


async def test_nothing_is_shown_as_read_of_strangers_or_where_nobody_wants_that(
    core: Core,
) -> None:
    core.strangers = {ANN}
    for options in ({}, {"read_receipts": False}):
        async with running(core, **options) as kit:
            helper = await kit.open_next()
            helper.say("event", seq=1, event=make_event("A1"))
            await helper.wait_for_ack(1)
            sending = kit.sending("hello")
            helper.answer(await helper.request("send"))
            await sending
        assert {line["method"] for line in helper.all("request")} == {"send"}
        core.strangers = set()
    assert helper.all("welcome")[0]["read_receipts"] is False


async def test_a_part_that_is_sent_early_waits_for_the_connection(core: Core) -> None:
    async with running(core) as kit:
        sending = kit.sending("hello")
        helper = await kit.open_next()
        request = await helper.request("send")
        helper.answer(request)
        assert await sending == make_message_id(HELLO) == request["params"]["id"]
    assert request["params"]["text"] == "hello"


async def test_a_part_does_not_wait_for_ever_for_whatsapp(core: Core, clock: FakeClock) -> None:
    async with running(core) as kit:
        helper = await kit.pool.next()
        helper.greet()
        helper.state("backoff", "no route to host")
        await core.until(lambda: "no route" in core.problem)
        sending = kit.sending("hello")
        await clock.until_sleeping(3)
        await clock.advance(OPEN_SECONDS)
        error = await sending
    assert isinstance(error, SendLater)
    assert error.retry_after == OPEN_SECONDS
    assert helper.all("request") == []


async def test_a_helper_that_dies_is_started_again_and_nothing_is_lost(
    core: Core, clock: FakeClock, folder: Path
) -> None:
    async with running(core) as kit:
        first = await kit.open_next()
        sending = kit.sending("hello")
        await first.request("send")
        os.kill(int((folder / "helper.lock").read_text()), signal.SIGKILL)
        error = await sending
        assert isinstance(error, SendError)
        assert not isinstance(error, SendUnknown)  # which is tried only once more
        await core.until(lambda: "signal 9" in core.problem)
        again = kit.sending("hello")
        await clock.until_sleeping()
        await clock.advance(1.0)
        second = await kit.open_next()
        request = await second.request("send")
        second.answer(request)
        assert await again == make_message_id(HELLO)
        second.say("event", seq=1, event=make_event("A1"))
        await second.wait_for_ack(1)
        await core.until(lambda: core.problem == "")
    assert len(core.stored) == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("need_pairing", "no WhatsApp account is linked"),
        ("logged_out", "unlinked this device: by the phone"),
        ("banned", "rejects this account: by the phone"),
    ],
)
async def test_what_only_a_person_can_mend_turns_the_channel_off(
    core: Core, state: str, why: str
) -> None:
    async def play() -> None:
        async with running(core) as kit:
            helper = await kit.pool.next()
            helper.greet()
            helper.state(state, "by the phone")
            await kit.life

    with pytest.raises(ExceptionGroup) as failure:
        await play()
    assert failure.group_contains(ChannelOff, match=why)


async def test_without_node_the_channel_is_off_and_says_what_is_missing(folder: Path) -> None:
    options = WhatsAppSettings(node=str(folder / "node"))
    with pytest.raises(ChannelOff, match="Node"):
        await asyncio.to_thread(find_installed_program, options, folder)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("backoff", "cannot be reached: stream errored"),
        ("replaced", "another program"),
        ("banned", "rejects this account for 2 h: stream errored"),
    ],
)
async def test_what_passes_by_itself_is_reported_until_it_is_over(
    core: Core, state: str, words: str
) -> None:
    async with running(core) as kit:
        helper = await kit.open_next()
        helper.state(state, "stream errored", retry_in=7200.0)
        await core.until(lambda: words in core.problem)
        helper.state("connecting")
        helper.state("open")
        await core.until(lambda: core.problem == "")


async def test_while_the_disk_refuses_nothing_is_confirmed(core: Core, clock: FakeClock) -> None:
    async with running(core) as kit:
        helper = await kit.open_next()
        core.disk_full = True
        helper.say("event", seq=1, event=make_event("A1"))
        await core.until(lambda: "no space left" in core.problem)
        core.disk_full = False
        assert helper.all("ack") == []
        await clock.until_sleeping(3)
        await clock.advance(1.0)
        await helper.wait_for_ack(1)
        await core.until(lambda: core.problem == "")
    assert [message.content for message in core.stored] == ["hello"]


async def test_an_event_that_cannot_be_read_is_put_aside_and_the_others_are_taken(
    core: Core, folder: Path
) -> None:
    async with running(core) as kit:
        helper = await kit.open_next()
        helper.say("event", seq=1, event=make_event("A1"))
        helper.say("event", seq=2, event={"kind": "message", "id": ["no id"]})
        helper.say("event", seq=3, event=make_event("A3"))
        await helper.wait_for_ack(3)
    assert [message.event_id for message in core.stored] == ["A1", "A3"]
    assert "no id" in (folder / "quarantine.jsonl").read_text()


async def test_who_is_who_is_learned_between_messages(core: Core) -> None:
    event = make_event("A1", chat="888@lid", sender="888@lid", alt="")
    async with running(core, read_receipts=False) as kit:
        helper = await kit.open_next()
        helper.say("event", seq=1, event=event)
        await helper.wait_for_ack(1)
        helper.say("identity", lid="888@lid", number=ANN_JID)
        helper.say("identity", lid="", number="")
        helper.say("event", seq=2, event=make_event("A2"))
        await helper.wait_for_ack(2)
        sending = kit.sending("hello", chat_id="888@lid")
        request = await helper.request("send")
        helper.answer(request)
        await sending
    assert {message.chat_id for message in core.stored} == {"888@lid"}
    assert request["params"]["to"] == ANN_JID


async def test_nobody_is_learned_to_be_the_account_that_is_linked(core: Core) -> None:
    async with running(core, self_chat=True, read_receipts=False) as kit:
        helper = await kit.open_next()
        helper.say("identity", lid="888@lid", number=US["number"])
        helper.say("identity", lid=US["lid"], number=ANN_JID)
        helper.say("event", seq=1, event=make_event("A1", chat="888@lid", sender="888@lid", alt=""))
        note: Line = {"chat": US["lid"], "sender": US["lid"], "alt": "", "from_me": True}
        helper.say("event", seq=2, event=make_event("A2", **note))
        await helper.wait_for_ack(2)
    assert [message.chat_id for message in core.stored] == ["888@lid", "15550001111"]


async def test_in_a_group_an_answer_quotes_and_reads_by_the_ids_that_whatsapp_knows(
    core: Core,
) -> None:
    group = {"chat": GROUP, "group": True, "mentions_me": True}
    async with running(core) as kit:
        helper = await kit.open_next()
        helper.say("event", seq=1, event=make_event("A1", "hello", **group))
        read = await helper.request("read")
        helper.answer(read)
        helper.say("event", seq=2, event=make_event("A1", "no", sender="77@lid", alt="", **group))
        await helper.wait_for_ack(2)
        helper.answer(await helper.request("read"))
        asked = core.stored[0].message_id
        answering = kit.group.create_task(
            kit.transport.send(OutboundPart("k1", "whatsapp", GROUP, "hi", reply_to=asked))
        )
        sent = await helper.request("send")
        helper.answer(sent)
        await answering
    assert read["params"] == {"chat": GROUP, "id": "A1", "sender": ANN_JID}
    assert sent["params"]["quote"] == {
        "id": "A1",
        "sender": ANN_JID,
        "text": "hello",
        "from_me": False,
    }


async def test_a_turn_shows_as_typing(core: Core) -> None:
    async with running(core) as kit:
        helper = await kit.open_next()
        await kit.transport.show_progress(TurnStarted("whatsapp", ANN, "t1"))
        on = await helper.request("typing")
        helper.answer(on)
        await kit.transport.show_progress(TurnEnded("whatsapp", ANN, "t1", (), "done"))
        off = await helper.request("typing")
        helper.answer(off)
    assert [on["params"], off["params"]] == [
        {"to": ANN_JID, "on": True},
        {"to": ANN_JID, "on": False},
    ]


async def test_what_is_being_sent_when_the_channel_stops_is_sent(core: Core) -> None:
    async with running(core) as kit:
        helper = await kit.open_next()
        sending = kit.sending("bye")
        request = await helper.request("send")
        kit.life.cancel()
        helper.answer(request)
        assert await sending == request["params"]["id"]
