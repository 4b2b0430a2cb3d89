"""Only Meta's calls are accepted, and a 200 is only returned for stored messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nanobot.channel import WebhookReply, WebhookRequest
from nanobot.channel.health import HealthReporter
from nanobot.errors import StorageError
from nanobot.testing import FakeClock
from nanobot.validation import SecretStr
from nanobot_whatsapp.cloud.inbound import HEADER, Receiver, signature_of
from tests.channels.telegram.support import RecordingHost

SECRET = "0123456789abcdef"
WORD = "agreed-beforehand"


class Inbox:
    """Accepts documents. A closed `gate` makes it wait, and `full` makes it fail."""

    def __init__(self) -> None:
        self.taken: list[object] = []
        self.aside: list[tuple[object, str]] = []
        self.full = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = 0
        self.entered = asyncio.Event()

    async def ingest(self, *documents: object) -> None:
        self.begun += 1
        self.entered.set()
        await self.gate.wait()
        if self.full:
            raise StorageError("inbox.db", "no space left on device")
        self.taken += documents

    def put_aside(self, raw: object, reason: str) -> None:
        self.aside.append((raw, reason))


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def host(tmp_path: Path) -> RecordingHost:
    return RecordingHost(tmp_path, FakeClock())


@pytest.fixture
def receiver(inbox: Inbox, host: RecordingHost) -> Receiver:
    return Receiver(
        SecretStr(SECRET),
        SecretStr(WORD),
        inbox.ingest,
        inbox.put_aside,
        HealthReporter("whatsapp", host),
    )


def sign(body: bytes, secret: str = SECRET) -> WebhookRequest:
    """Return a signed call with this body."""
    return WebhookRequest("POST", "", {HEADER: signature_of(body, secret)}, {}, body)


def make_challenge(**query: str) -> WebhookRequest:
    """Return the challenge of the webhook."""
    return WebhookRequest("GET", "", {}, {f"hub.{name}": text for name, text in query.items()}, b"")


async def test_the_challenge_is_repeated_to_who_knows_the_word(receiver: Receiver) -> None:
    reply = await receiver(
        make_challenge(mode="subscribe", verify_token=WORD, challenge="1158201444")
    )
    assert (reply.status, reply.body) == (200, b"1158201444")
    assert reply.headers["Content-Type"].startswith("text/plain")
    for wrong in (
        {"mode": "subscribe", "verify_token": WORD + "x"},
        {"mode": "subscribe", "verify_token": "é"},
        {"mode": "subscribe"},
        {"mode": "unsubscribe", "verify_token": WORD},
        {},
    ):
        assert await receiver(make_challenge(**wrong, challenge="1")) == WebhookReply(403)


async def test_only_what_is_signed_is_read(receiver: Receiver, inbox: Inbox) -> None:
    body = b'{"entry": []}'
    good = signature_of(body, SECRET)
    for wrong in ("", good[:-1], good.removeprefix("sha256="), good.replace("256", "1"), "\xe9"):
        request = WebhookRequest("POST", "", {HEADER: wrong}, {}, body)
        assert await receiver(request) == WebhookReply(403)
    assert await receiver(WebhookRequest("POST", "", {}, {}, body)) == WebhookReply(403)
    assert await receiver(sign(body, "another-secret")) == WebhookReply(403)
    assert (await receiver(WebhookRequest("PUT", "", {HEADER: good}, {}, body))).status == 405
    assert (inbox.begun, inbox.aside) == (0, [])
    assert await receiver(sign(body)) == WebhookReply(200)
    assert inbox.taken == [{"entry": []}]


def test_the_signature_is_as_meta_makes_it() -> None:
    # the example of RFC 4231, test case 2
    made = signature_of(b"what do ya want for nothing?", "Jefe")
    assert made == "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


@pytest.mark.parametrize("body", [b"no JSON", b"[" * 100_000, b"\xff", b'"' + b'[\\"' * 99])
async def test_what_is_no_json_is_put_aside_and_not_asked_for_again(
    body: bytes, receiver: Receiver, inbox: Inbox
) -> None:
    assert await receiver(sign(body)) == WebhookReply(200)
    assert inbox.begun == 0
    assert len(inbox.aside) == 1


@pytest.mark.parametrize(
    "malformed",
    [
        b"9" * 5_000,
        b"-" + b"9" * 31,
        b"[" * 20_000 + b"]" * 20_000,
        b'{"x":' * 99 + b'""' + b"}" * 99,
    ],
)
async def test_a_value_that_no_parser_takes_costs_that_value(
    malformed: bytes, receiver: Receiver, inbox: Inbox
) -> None:
    text = b'"]}\\"[{' + b"[" * 99 + b'"'
    body = b'{"a": [' + malformed + b', {"b": 5}, ' + malformed + b'], "c": ' + text + b"}"
    assert await receiver(sign(body)) == WebhookReply(200)
    (taken,) = inbox.taken
    assert isinstance(taken, dict)
    assert taken["c"] == json.loads(text)
    assert taken["a"][1] == {"b": 5}
    assert len(json.dumps(taken)) < 2_000


async def test_halves_of_characters_do_not_pass(receiver: Receiver, inbox: Inbox) -> None:
    await receiver(sign(b'{"a": "x\\ud83d", "b": "\\ud83d\\ude2e"}'))
    assert json.dumps(inbox.taken, ensure_ascii=False).encode() == (
        '[{"a": "x\ufffd", "b": "😮"}]'.encode()
    )


async def test_200_is_said_after_the_commit_and_500_without_one(
    receiver: Receiver, inbox: Inbox, host: RecordingHost
) -> None:
    inbox.full = True
    assert await receiver(sign(b"{}")) == WebhookReply(500)
    assert "messages can't be stored and remain at Meta" in host.reports[-1]
    inbox.full = False
    assert await receiver(sign(b"{}")) == WebhookReply(200)
    assert host.reports[-1] == ""


async def test_calls_are_taken_in_order(receiver: Receiver, inbox: Inbox) -> None:
    inbox.gate.clear()
    bodies = [json.dumps({"n": n}).encode() for n in range(200)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(receiver(sign(body))) for body in bodies]
        await inbox.entered.wait()
        inbox.gate.set()
    assert {task.result().status for task in tasks} == {200}
    assert inbox.taken == [{"n": n} for n in range(200)]
    assert inbox.begun <= 2, "those that came meanwhile were stored together"


async def test_of_calls_that_wait_for_a_full_disk_none_is_confirmed(
    receiver: Receiver, inbox: Inbox
) -> None:
    inbox.gate.clear()
    inbox.full = True
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(receiver(sign(b"{}"))) for _ in range(20)]
        await inbox.entered.wait()
        inbox.gate.set()
    assert {task.result().status for task in tasks} == {500}
    inbox.full = False
    assert await receiver(sign(b"{}")) == WebhookReply(200)


async def test_a_call_that_is_given_up_confirms_none_of_those_that_it_was_to_store(
    receiver: Receiver, inbox: Inbox
) -> None:
    inbox.gate.clear()
    first = asyncio.create_task(receiver(sign(b"[1]")))
    await inbox.entered.wait()
    inbox.entered.clear()
    rest = [asyncio.create_task(receiver(sign(b"[2]"))) for _ in range(3)]
    first.cancel()
    await inbox.entered.wait()  # the second stores for all of them
    rest[0].cancel()
    await asyncio.wait(rest)
    assert [task.cancelled() or task.result().status for task in rest] == [True, 500, 500]
