"""The file of who was let in: what happens when it, or the disk, is not right."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from nanobot.channel import Chat, Sender
from nanobot.errors import NanobotError, StorageError
from nanobot.security.access import Access, AccessRules
from tests.security.homes import BOB, House, asks, lets_in

CARL = Sender("9", "Carl")


async def test_wrong_codes_count_while_the_disk_refuses(house: House) -> None:
    access = house.start()
    asks(access)
    shutil.rmtree(house.folder)
    house.folder.touch()
    for _ in range(10):
        with pytest.raises(NanobotError, match="no open request"):
            await access.approve("B" * 8)
    with pytest.raises(NanobotError, match="too many wrong codes"):
        await access.approve("B" * 8)


async def test_nobody_is_let_in_or_out_that_the_disk_does_not_know_of(house: House) -> None:
    access = house.start()
    await access.approve(asks(access))
    code = asks(access, BOB)
    aside = house.folder.rename(house.folder.with_name("elsewhere"))
    house.folder.touch()
    with pytest.raises(StorageError):
        await access.approve(code)
    with pytest.raises(StorageError):
        await access.revoke("telegram", "7")
    assert (lets_in(access), lets_in(access, BOB)) == (True, False)
    house.folder.unlink()
    aside.rename(house.folder)
    await access.approve(code)
    assert lets_in(house.start(), BOB)


async def test_who_asks_while_another_one_is_let_in_is_not_forgotten(house: House) -> None:
    access = house.start()
    approving = asyncio.create_task(access.approve(asks(access)))
    await asyncio.sleep(0)  # it is at the disk now
    code = asks(access, BOB)
    await approving
    await access.keep()
    assert await house.start().approve(code)


async def test_who_could_not_be_told_has_not_asked(house: House) -> None:
    access = house.start()
    told, untold = asks(access), asks(access, BOB)
    access.withdraw("telegram", BOB, Chat(BOB.id))
    assert [request.asked.id for request in access.requests()] == ["7"]
    assert asks(access, BOB) not in (told, untold)
    await access.approve("telegram:8")
    access.withdraw("telegram", BOB, Chat(BOB.id))  # too late: they are in
    assert lets_in(access, BOB)


def rewrite(path: Path, old: str, new: str) -> None:
    """Put a file with another text in place, as `/forget --erase` does."""
    path.with_suffix(".new").write_text(path.read_text().replace(old, new))
    path.with_suffix(".new").rename(path)


async def test_a_name_that_was_erased_from_the_file_does_not_come_back(house: House) -> None:
    access = house.start()
    code = asks(access, BOB)
    await access.approve(asks(access))
    rewrite(house.path, "Anna", "[erased]")
    rewrite(house.path, "Bob", "[erased]")
    asks(access, CARL)
    await access.keep()
    with pytest.raises(NanobotError, match="no open request"):
        await access.approve("B" * 8)
    approved = await access.approve(code)
    assert approved.known.name == "[erased]"
    written = house.path.read_text()
    assert ("Anna" in written, "Bob" in written, "Carl" in written) == (False, False, True)
    assert (lets_in(access), lets_in(access, BOB)) == (True, True)


async def test_a_file_that_breaks_meanwhile_shuts_nobody_out(house: House) -> None:
    access = house.start()
    await access.approve(asks(access))
    house.path.write_text("broken")
    await access.approve(asks(access, BOB))
    assert (lets_in(access), lets_in(access, BOB)) == (True, True)


def test_a_request_of_a_file_without_threads_is_taken(house: House) -> None:
    request = ENTRY | {"chat_id": "7", "code": "22222222", "used": False, "at": SINCE["since"]}
    house.path.write_text(json.dumps(WHOLE | {"requests": [request]}))
    assert [one.asked.thread_id for one in house.start().requests()] == [""]


ENTRY = {"channel": "telegram", "kind": "person", "id": "7", "name": "", "owner": True}
SINCE = {"since": "2026-03-02T09:00:00+00:00"}
WHOLE: dict[str, object] = {"version": 1, "approved": [], "requests": [], "wrong_codes": []}


def test_a_file_of_this_version_is_taken(house: House) -> None:
    house.path.write_text(json.dumps(WHOLE | {"approved": [ENTRY | SINCE]}))
    assert house.start().owners("telegram") == ("7",)


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
    house: House, logged: list[str], content: str
) -> None:
    house.owners = {"telegram": ("1",)}
    house.path.write_text(content)
    access = house.start()
    assert not lets_in(access)
    assert lets_in(access, Sender("1"))
    assert (house.folder / "access.json.broken-1").read_text() == content
    assert len(logged) == 1
    assert logged[0].startswith("ERROR: ")
    assert "nanobot pair approve" in access.load()
    await access.approve(asks(access))
    again = house.start()
    assert lets_in(again)
    assert again.load() == ""


def test_each_broken_file_is_kept(house: House) -> None:
    for content in ("one", "two"):
        house.path.write_text(content)
        assert house.start().load()
    kept = sorted(path.read_text() for path in house.folder.iterdir())
    assert kept == ["one", "two"]


def test_a_link_is_not_followed(house: House, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text(json.dumps(WHOLE | {"approved": [ENTRY | SINCE]}))
    house.path.symlink_to(target)
    assert not lets_in(house.start())
    assert target.exists()


async def test_a_broken_file_that_cannot_be_moved_is_not_written_over(house: House) -> None:
    path = house.folder / ("a" * 250)  # with more letters it would be no name
    path.write_text("broken")
    access = Access(path, {"telegram": AccessRules()}, {}, house.clock)
    assert "could not be moved" in access.load()
    with pytest.raises(StorageError):
        await access.approve(asks(access))
    assert not lets_in(access)
    assert path.read_text() == "broken"
