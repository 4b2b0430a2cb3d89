"""Any malformed event of the helper only affects itself, and the rest is processed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel.health import HealthReporter
from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.ingest import Ingest, RecentMessages
from nanobot_whatsapp.linked.inbound import Inbox
from nanobot_whatsapp.people import People
from tests.bus.support import rows
from tests.channels.malformed import as_body, mutate
from tests.channels.whatsapp.linked.helpers import Line, make_event
from tests.channels.whatsapp.linked.test_link import open_link
from tests.channels.whatsapp.linked.transport_kit import ANN
from tests.gateway.core import Core
from tests.scratch import scratch

GROUP = "120363000000000001@g.us"
REF = {"directPath": "/v/t62", "mediaKey": "a2V5", "n": 5}
PICTURE = {"kind": "image", "mime": "image/png", "name": "a.png", "size": 5, "ref": REF}
QUOTE = {"id": "Q1", "sender": "888@lid", "text": "before", "ours": False}
SHAPES: Sequence[Line] = [
    make_event("A1", "hello"),
    make_event("A1", "look", media=PICTURE, quote=QUOTE, notes=["album"], mentions=["888@lid"]),
    make_event("A1", "better", edits="A0"),
    make_event("A1", "", deletes="A0"),
    make_event("A1", "", reaction="👍", quote={**QUOTE, "ours": True}),
    make_event("A1", "", unknown="pollMessage"),
]
WHO = frozenset({"kind", "chat", "sender", "alt", "from_me"})
OTHER = {"chat": "15550009999@s.whatsapp.net", "sender": "15550009999@s.whatsapp.net", "alt": ""}


async def ingest_all(lines: Sequence[bytes], last: int) -> list[tuple[str, str]]:
    """Return the events and chats in the inbox after the event `last` is confirmed."""
    with scratch() as home:
        clock = FakeClock()
        journal = SqliteJournal(home / "journal.db", clock)
        await journal.open()
        try:
            core = Core(journal, home, everyone=True, groups="all")
            host = core.host
            ingest = Ingest(host, People(host.state_folder), self_chat=False, pairing=True)
            inbox = Inbox(
                host, ingest, HealthReporter("whatsapp", host), RecentMessages(), receipts=False
            )
            async with open_link(home, clock, inbox) as pair:
                for line in lines:
                    pair.helper.write(line.decode())
                await pair.helper.wait_for_ack(last)
            await core.background.drain(5.0)
        finally:
            await journal.close()
        found = rows(home / "journal.db", "SELECT event_id, chat_id FROM inbox")
        return [(str(event), str(chat)) for event, chat in found]


def event(seq: int, body: object) -> bytes:
    return as_body({"type": "event", "seq": seq, "event": body})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_no_event_stops_those_beside_and_behind_it(seed: int) -> None:
    rnd = Random(seed)
    shapes = [*SHAPES, *({**shape, "chat": GROUP, "group": True} for shape in SHAPES)]
    malformed = [mutate(rnd.choice(shapes), rnd, but=frozenset()) for _ in range(4)]
    wrong: object = rnd.choice([None, "x", [], {}, 7, {"kind": 5}, {"kind": "later"}])
    good = make_event("B1", "hello", **OTHER)
    lines = [event(seq, body) for seq, body in enumerate([*malformed, wrong, good], 1)]
    assert ("B1", "15550009999") in asyncio.run(ingest_all(lines, 6))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_who_wrote_in_private_is_answered_whatever_it_held(seed: int) -> None:
    rnd = Random(seed)
    malformed = mutate(rnd.choice(SHAPES), rnd, but=WHO)
    assert [chat for _, chat in asyncio.run(ingest_all([event(1, malformed)], 1))] == [ANN]
