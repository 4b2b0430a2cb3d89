"""Any malformed message only affects itself: it is set aside and reported, and the rest is
processed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel.health import HealthReporter
from nanobot.testing import FakeClock
from nanobot.validation import SecretStr
from nanobot_whatsapp.cloud.inbound import HEADER, Inbox, Receiver, signature_of
from nanobot_whatsapp.ingest import Ingest, RecentMessages
from nanobot_whatsapp.people import People
from tests.bus.support import rows
from tests.channels.malformed import DEEP, LONG, as_body, mutate
from tests.channels.whatsapp.cloud.quiet import QUIET_MESSAGES, STATUSES
from tests.channels.whatsapp.cloud.samples import ANN, OUR_ID, Json, call, message
from tests.channels.whatsapp.cloud.shapes import HEARD
from tests.gateway.core import Core
from tests.scratch import scratch

SECRET = "0123456789abcdef"
PRIVATE: Sequence[Json] = [shape for shape, *_ in HEARD.values()]
OTHERS: Sequence[Json] = [*QUIET_MESSAGES.values()]
WHO = frozenset({"from", "from_user_id", "from_parent_user_id"})

Post = Callable[[bytes], Awaitable[int]]


@asynccontextmanager
async def listening(home: Path) -> AsyncIterator[Post]:
    """Serve the webhook over HTTP, with a journal, and yield a function that signs and posts a
    body."""
    journal = SqliteJournal(home / "journal.db", FakeClock())
    await journal.open()
    try:
        core = Core(journal, home, everyone=True, groups="all")
        host, health = core.host, HealthReporter("whatsapp", core.host)
        people = People(host.state_folder)
        ingest = Ingest(host, people, self_chat=False, pairing=True)
        inbox = Inbox(host, people, ingest, RecentMessages(), OUR_ID)
        receiver = Receiver(
            SecretStr(SECRET), SecretStr("word"), inbox.ingest, inbox.quarantine.keep, health
        )
        async with (
            host.serve_webhook("/whatsapp", receiver) as url,
            aiohttp.ClientSession() as http,
        ):

            async def post(body: bytes) -> int:
                headers = {HEADER: signature_of(body, SECRET)}
                async with http.post(url, data=body, headers=headers) as reply:
                    return reply.status

            yield post
        await core.background.drain(5.0)
        await core.web.close()
    finally:
        await journal.close()


def list_inbox(home: Path) -> list[tuple[str, str]]:
    """Return the events and chats of the messages in the inbox."""
    found = rows(home / "journal.db", "SELECT event_id, chat_id FROM inbox")
    return [(str(event), str(chat)) for event, chat in found]


def good(id: str) -> Json:
    return message("text", {"body": "hello"}, id=id, **{"from": "15550009999"})


async def post_all(bodies: Sequence[bytes]) -> tuple[list[int], list[tuple[str, str]]]:
    """Post these, and return the answers and the inbox."""
    with scratch() as folder:
        async with listening(folder) as post:
            answers = [await post(body) for body in bodies]
        return answers, list_inbox(folder)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_no_message_stops_those_beside_and_behind_it(seed: int) -> None:
    rnd = Random(seed)
    malformed = [mutate(rnd.choice([*PRIVATE, *OTHERS]), rnd, but=frozenset()) for _ in range(3)]
    status = mutate(rnd.choice(list(STATUSES.values())), rnd, but=frozenset())
    beside = call(*malformed, good("wamid.beside"), statuses=[status])
    wild = mutate(call(*malformed), rnd, but=frozenset())
    bodies = [as_body(each) for each in (beside, wild, call(good("wamid.behind")))]
    answers, found = asyncio.run(post_all(bodies))
    assert answers == [200, 200, 200]
    assert {("wamid.beside", "15550009999"), ("wamid.behind", "15550009999")} <= set(found)


async def test_what_is_no_call_at_all_does_not_come_again_and_harms_nothing(tmp_path: Path) -> None:
    wrong: list[object] = [None, True, 7, "x" * 100_000, [], [[]], {}, [call(good("wamid.inside"))]]
    bodies = [*map(as_body, wrong), b"", b"\xff\xfe{}", b"{" * 50_000, as_body(DEEP), as_body(LONG)]
    async with listening(tmp_path) as post:
        assert {await post(body) for body in bodies} == {200}
        assert await post(as_body(call(good("wamid.behind")))) == 200
    assert list_inbox(tmp_path) == [("wamid.behind", "15550009999")]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_who_wrote_in_private_is_answered_whatever_it_held(seed: int) -> None:
    rnd = Random(seed)
    shape = {**rnd.choice(PRIVATE), "from": ANN}
    answers, found = asyncio.run(post_all([as_body(call(mutate(shape, rnd, but=WHO)))]))
    assert answers == [200]
    assert [chat for _, chat in found] == [ANN]
