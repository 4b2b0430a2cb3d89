"""The access file when it is damaged or the disk fails."""

from __future__ import annotations

import asyncio
import json

import pytest

from nanobot.channel import Chat, Sender
from nanobot.errors import NanobotError, StorageError
from tests.security.homes import BOB, AccessHome, asks, lets_in

CARL = Sender("9", "Carl")


async def test_a_guess_is_told_nothing_while_the_disk_refuses(home: AccessHome) -> None:
    access = home.start()
    code = await asks(access)
    home.state.refuses = True
    for guess in ("B" * 8, code):
        with pytest.raises(StorageError):
            await access.approve(guess)
    assert not lets_in(access)


async def test_guesses_at_the_same_time_are_all_counted(home: AccessHome) -> None:
    access = home.start()
    code = await asks(access)
    guesses = [access.approve("B" * 8) for _ in range(30)]
    failed = await asyncio.gather(*guesses, access.approve(code), return_exceptions=True)
    assert sum("too many wrong codes" in str(one) for one in failed) == 21


async def test_nobody_is_let_in_or_out_that_the_disk_does_not_know_of(home: AccessHome) -> None:
    access = home.start()
    await access.approve(await asks(access))
    code = await asks(access, BOB)
    home.state.refuses = True
    with pytest.raises(StorageError):
        await access.approve(code)
    with pytest.raises(StorageError):
        await access.revoke("telegram", "7")
    assert (lets_in(access), lets_in(access, BOB)) == (True, False)
    home.state.refuses = False
    await access.approve(code)
    assert lets_in(home.start(), BOB)


async def test_who_asks_while_another_one_is_let_in_is_not_forgotten(home: AccessHome) -> None:
    access = home.start()
    approving = asyncio.create_task(access.approve(await asks(access)))
    await asyncio.sleep(0)  # it is at the disk now
    code = await asks(access, BOB)
    await approving
    assert await home.start().approve(code)


async def test_of_two_messages_at_once_one_is_answered(home: AccessHome) -> None:
    access = home.start()
    both = [access.request_access("telegram", BOB, Chat(BOB.id)) for _ in range(2)]
    assert [bool(text) for text in await asyncio.gather(*both)] == [True, False]


async def test_whom_the_disk_does_not_know_of_has_not_asked(home: AccessHome) -> None:
    access = home.start()
    home.state.refuses = True
    with pytest.raises(StorageError):
        await asks(access)
    assert access.requests() == []
    home.state.refuses = False
    assert await asks(access)


async def test_a_name_that_was_erased_from_the_file_does_not_come_back(home: AccessHome) -> None:
    access = home.start()
    code = await asks(access, BOB)
    await access.approve(await asks(access))
    erased = home.state.text("access").replace("Anna", "[erased]").replace("Bob", "[erased]")
    home.state.put("access", erased)
    await asks(access, CARL)
    with pytest.raises(NanobotError, match="no pending request"):
        await access.approve("B" * 8)
    approved = await access.approve(code)
    assert approved.grant.name == "[erased]"
    written = home.state.text("access")
    assert ("Anna" in written, "Bob" in written, "Carl" in written) == (False, False, True)
    assert (lets_in(access), lets_in(access, BOB)) == (True, True)


async def test_a_file_that_breaks_meanwhile_shuts_nobody_out(home: AccessHome) -> None:
    access = home.start()
    await access.approve(await asks(access))
    home.state.put("access", "broken")
    await access.approve(await asks(access, BOB))
    assert (lets_in(access), lets_in(access, BOB)) == (True, True)


def test_a_request_of_a_file_without_threads_is_taken(home: AccessHome) -> None:
    request = ENTRY | {"chat_id": "7", "code": "22222222", "at": SINCE["since"]}
    home.state.put("access", json.dumps(WHOLE | {"requests": [request]}))
    assert [one.request.thread_id for one in home.start().requests()] == [""]


ENTRY = {"channel": "telegram", "kind": "person", "id": "7", "name": "", "owner": True}
SINCE = {"since": "2026-03-02T09:00:00+00:00"}
WHOLE: dict[str, object] = {"version": 1, "approved": [], "requests": [], "wrong_codes": []}


def test_a_file_of_this_version_is_taken(home: AccessHome) -> None:
    home.state.put("access", json.dumps(WHOLE | {"approved": [ENTRY | SINCE]}))
    assert home.start().owners("telegram") == ("7",)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        json.dumps(WHOLE | {"version": 2, "approved": [ENTRY | SINCE]}),
        json.dumps(WHOLE | {"version": True}),
        json.dumps(WHOLE | {"approved": [ENTRY | SINCE, ENTRY]}),
        json.dumps(WHOLE | {"approved": [ENTRY | SINCE | {"id": "*"}]}),
        json.dumps(WHOLE | {"approved": [ENTRY | SINCE | {"owner": "yes"}]}),
        json.dumps(WHOLE | {"approved": [ENTRY | SINCE | {"kind": "group"}]}),
        json.dumps(WHOLE | {"approved": [ENTRY | {"since": "2026-03-02T09:00:00"}]}),
        json.dumps(WHOLE | {"approved": {"telegram": ["7"]}}),
        json.dumps({"version": 1, "approved": [ENTRY | SINCE]}),
    ],
)
async def test_a_file_that_is_not_right_lets_nobody_in_and_is_kept(
    home: AccessHome, logged: list[str], content: str
) -> None:
    home.owners = {"telegram": ("1",)}
    home.state.put("access", content)
    access = home.start()
    assert not lets_in(access)
    assert lets_in(access, Sender("1"))
    assert home.state.aside == {"access.json.broken-1": content.encode()}
    assert len(logged) == 1
    assert logged[0].startswith("ERROR: ")
    assert "nanobot pair approve" in access.load()
    await access.approve(await asks(access))
    again = home.start()
    assert lets_in(again)
    assert again.load() == ""


def test_each_broken_file_is_kept(home: AccessHome) -> None:
    for content in ("one", "two"):
        home.state.put("access", content)
        assert home.start().load()
    assert list(home.state.aside.values()) == [b"one", b"two"]


async def test_a_broken_document_that_cannot_be_moved_is_not_written_over(home: AccessHome) -> None:
    home.state.put("access", "broken")
    home.state.refuses = True
    access = home.start()
    assert "could not be moved" in access.load()
    with pytest.raises(StorageError):
        await asks(access)
    assert home.state.text("access") == "broken"
    home.state.refuses = False
    await access.approve(await asks(access))
    assert home.state.aside == {"access.json.broken-1": b"broken"}
