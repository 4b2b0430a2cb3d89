"""Messages of a terminal chat without clients are shown once to the next client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Button, Media, Receipt
from nanobot.errors import StorageError
from nanobot_cli.unseen import MOST_CHARACTERS, MOST_PARTS
from tests.channels.test_cli_channel import NOON, Client, Core, part, request, running

UNSEEN = "unseen.json"


async def look(core: Core, chat: str = "direct") -> list[dict[str, object]]:
    """Return the events for a client that opens the chat, in a new process."""
    client = Client()
    async with running(core) as channel:
        await channel.chat(request("w", "", session=f"cli:{chat}", watch=True), client)
    assert client.events[0] == {"event": "accepted", "id": "w"}
    return client.events[1:]


def texts(events: list[dict[str, object]]) -> list[object]:
    return [event["text"] for event in events]


async def send_parts(core: Core, *keys: str, chat: str = "direct") -> None:
    async with running(core) as channel:
        for key in keys:
            assert await channel.send(replace(part(key), key=key, chat_id=chat)) == Receipt()


async def test_it_is_shown_once_with_its_time_its_files_and_its_choices(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    files = (Media("media/ab.txt", name="a.txt", size=7), Media("media/gone.txt", name="b.txt"))
    buttons = (Button("Undo", "/undo 7"), Button("Mine", "x", only="telegram-7"))
    async with running(core) as channel:
        await channel.send(replace(part("the oven is hot"), media=files, buttons=buttons))
    assert await look(core) == [
        {
            "event": "message",
            "id": "w",
            "text": "the oven is hot\n[the file b.txt no longer exists]",
            "files": [{"name": "a.txt", "path": "/home/ana/.nanobot/media/ab.txt", "size": 7}],
            "choices": [{"label": "Undo", "value": "/undo 7"}],
            "at": NOON.isoformat(),
            "chat": "",
        }
    ]
    assert await look(core) == []


async def test_each_chat_has_its_own_in_order(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    await send_parts(core, "1", "2")
    await send_parts(core, "3", chat="work")
    await send_parts(core, "4")
    assert texts(await look(core)) == ["1", "2", "4"]
    assert texts(await look(core, "work")) == ["3"]


async def test_a_delivery_that_is_tried_again_is_shown_once(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    await send_parts(core, "1", "2")
    await send_parts(core, "2")
    assert texts(await look(core)) == ["1", "2"]


async def test_who_only_wants_an_answer_does_not_take_it(tmp_path: Path) -> None:
    core, script = Core(folder=tmp_path), Client()
    await send_parts(core, "1")
    async with running(core) as channel:
        await channel.chat(request("1"), script)
        await channel.send(part("the answer", "cli:1"))
    assert script.names == ["accepted", "reply"]
    assert texts(await look(core)) == ["1"]


async def test_what_was_seen_and_what_says_nothing_are_not_kept(tmp_path: Path) -> None:
    core, watcher = Core(folder=tmp_path), Client()
    async with running(core) as channel:
        await channel.send(part(""))
        await channel.chat(request("w", "", watch=True), watcher)
        await channel.send(part("seen"))
        await channel.send(part("for somebody who left", "cli:gone"))
    assert texts(watcher.events[1:]) == ["seen", "for somebody who left"]
    assert not (tmp_path / UNSEEN).exists()


async def test_what_comes_while_somebody_begins_to_watch_is_neither_lost_nor_out_of_order(
    tmp_path: Path,
) -> None:
    core, watcher = Core(folder=tmp_path), Client()
    await send_parts(core, "0")
    async with running(core) as channel, asyncio.TaskGroup() as group:
        for number in range(1, 9):
            group.create_task(channel.send(replace(part(f"{number}"), key=f"{number}")))
            if number == 4:
                group.create_task(channel.chat(request("w", "", watch=True), watcher))
    assert texts(watcher.events[1:]) == [f"{number}" for number in range(9)]


async def test_a_part_of_before_the_start_waits_for_it(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    async with running(core) as channel:
        await channel.send(part("early"))  # the channel's own task has not run yet
    assert texts(await look(core)) == ["early"]


async def test_what_is_no_utf_8_is_kept_as_far_as_it_can_be_written(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    async with running(core) as channel:
        malformed = replace(part("caf\udce9"), media=(Media("media/a.txt", name="\udce9.txt"),))
        assert await channel.send(malformed) == Receipt()
    assert texts(await look(core)) == ["caf?"]


async def test_it_is_for_the_owners_eyes_and_has_an_end(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    await send_parts(core, "0")
    assert (tmp_path / UNSEEN).stat().st_mode & 0o777 == 0o600
    stored = json.loads((tmp_path / UNSEEN).read_bytes())
    (one,) = stored["parts"]
    for number in range(1, MOST_PARTS):
        stored["parts"].append({**one, "key": f"{number}", "text": f"{number}"})
    (tmp_path / UNSEEN).write_text(json.dumps(stored))
    await send_parts(core, "new", "newer")
    await send_parts(core, "x" * (MOST_CHARACTERS + 1), chat="work")
    shown = texts(await look(core))
    assert (len(shown), shown[0]) == (MOST_PARTS - 1, "3")
    long = str(texts(await look(core, "work"))[0])
    assert len(long) < MOST_CHARACTERS + 100
    assert long.endswith("nanobot sessions show cli:work]")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"version":2,"parts":[]}', b"\xff", b"[" * 9_999]
)
async def test_a_damaged_file_is_put_aside_and_stops_nobody(tmp_path: Path, content: bytes) -> None:
    core = Core(folder=tmp_path)
    (tmp_path / UNSEEN).write_bytes(content)
    await send_parts(core, "1")
    assert texts(await look(core)) == ["1"]
    assert (tmp_path / "unseen.damaged").read_bytes() == content


async def test_a_disk_that_refuses_is_tried_again_and_keeps_nobody_from_watching(
    tmp_path: Path,
) -> None:
    core, folder = Core(folder=tmp_path / "state"), tmp_path / "state"
    folder.write_text("no folder")
    async with running(core) as channel:
        with pytest.raises(StorageError):
            await channel.send(part("1"))
    assert await look(core) == []
    folder.unlink()
    folder.mkdir()
    await send_parts(core, "1")
    assert texts(await look(core)) == ["1"]


async def test_an_answer_that_comes_late_is_kept_and_one_whose_client_left_is_not(
    tmp_path: Path,
) -> None:
    core = Core(folder=tmp_path)
    async with running(core) as channel:
        await channel.send(replace(part("to who left", "cli:1"), key="1"))
        await channel.send(replace(part("to who was told to wait", "cli:2"), key="2", late=True))
    assert texts(await look(core)) == ["to who was told to wait"]


async def test_a_client_that_follows_everything_gets_what_comes_in_chats_that_no_one_watches(
    tmp_path: Path,
) -> None:
    core, everywhere, elsewhere = Core(folder=tmp_path), Client(), Client()
    await send_parts(core, "early", chat="work")
    async with running(core) as channel:
        wanted = request("w", "", session="cli:new", watch=True, everywhere=True)
        await channel.chat(wanted, everywhere)
        await channel.send(replace(part("the oven is hot"), key="k2"))
        await channel.chat(request("v", "", watch=True), elsewhere)
        await channel.send(replace(part("it burns"), key="k3"))
    shown = [(event["text"], event["chat"]) for event in everywhere.events[1:]]
    assert shown == [("early", "work"), ("the oven is hot", "direct")]
    assert texts(elsewhere.events[1:]) == ["it burns"]


async def test_a_client_that_goes_to_another_chat_leaves_the_one_before(tmp_path: Path) -> None:
    core, client = Core(folder=tmp_path), Client()
    async with running(core) as channel:
        await channel.chat(request("v", "", watch=True), client)
        await channel.chat(request("w", "", session="cli:work", watch=True), client)
        await channel.send(part("the oven is hot"))
    assert client.names == ["accepted", "accepted"]
    assert texts(await look(core)) == ["the oven is hot"]
