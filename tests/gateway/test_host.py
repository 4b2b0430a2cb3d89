"""The adapter's view of the core: admission, durable publishing, its cursor, a folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Media
from nanobot.bus.sql_journal import Journal
from nanobot.channel import Chat, Sender
from nanobot.errors import SendRefused, StorageError
from nanobot.testing import FakeClock
from tests.bus.support import make_message, no_file_may_grow_beyond, open_journal
from tests.gateway.core import Core


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with open_journal(tmp_path / "journal.db", FakeClock()) as journal:
        yield journal


@pytest.mark.parametrize(
    ("allow", "everyone", "admission"),
    [
        ((), False, "refused"),
        (("other",), False, "refused"),
        (("other", "person"), False, "allowed"),
        (("*",), False, "allowed"),
        ((), True, "allowed"),
    ],
)
async def test_only_those_on_the_list_are_admitted(
    journal: Journal, tmp_path: Path, allow: tuple[str, ...], everyone: bool, admission: str
) -> None:
    core = Core(journal, tmp_path, *allow, everyone=everyone)
    assert core.host.admit(Sender("person"), Chat("1")) == admission
    new = await core.host.publish((make_message("m1"),))
    assert list(new) == (["m1"] if admission == "allowed" else [])
    await core.background.drain(1)


async def test_who_was_admitted_by_another_id_of_theirs_may_publish(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "+491")
    sender = Sender("person", also=("+491",))
    assert core.host.admit(sender, Chat("1")) == "allowed"
    assert await core.host.publish((make_message("m1"),))


async def test_what_was_for_the_agent_is_stored_though_the_next_line_of_the_batch_is_not(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "+491", groups="mention", allow_groups={"1": frozenset()})
    sender, group = Sender("person", also=("+491",)), Chat("1", is_group=True)
    assert core.host.admit(sender, group) == "allowed"
    assert core.host.admit(sender, group, addressed=False) == "refused"
    assert await core.host.publish((replace(make_message("m1"), is_group=True),))


async def test_a_stranger_is_answered_once_durably_and_nothing_of_theirs_is_kept(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path)
    stranger = Sender("666", "Mallory")
    for _ in range(3):
        assert core.host.admit(stranger, Chat("666")) == "refused"
        await core.background.drain(1)
    (part,) = core.parts
    assert (part.part.chat_id, part.part.event_ids) == ("666", ())
    assert "nanobot pair approve" in part.part.content
    assert [left.part.chat_id for left in (await journal.leftovers()).parts] == ["666"]
    assert not core.entries


async def test_a_stranger_whom_the_disk_kept_from_an_answer_gets_it_when_they_write_again(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path)
    core.documents.refuses = True
    assert core.host.admit(Sender("666"), Chat("666")) == "refused"
    await core.background.drain(1)
    assert core.parts == []
    core.documents.refuses = False
    assert core.host.admit(Sender("666"), Chat("666")) == "refused"
    await core.background.drain(1)
    (request,) = core.access.requests()
    (part,) = core.parts
    assert request.request.code in part.part.content


async def test_one_who_was_shut_out_again_is_refused_at_once(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path)
    await core.access.request_access("fake", Sender("person"), Chat("1"))
    await core.access.approve("fake:person")
    assert core.host.admit(Sender("person"), Chat("1")) == "allowed"
    await core.access.revoke("fake", "person")
    assert core.host.admit(Sender("person"), Chat("1")) == "refused"
    assert not await core.host.publish((make_message("m1"),))
    await core.background.drain(1)


async def test_what_goes_out_is_read_from_the_media_folder_only(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path)
    media = tmp_path / "media"
    media.mkdir()
    (media / "a.txt").write_text("a file")
    (tmp_path / "config.yaml").write_text("token: secret")
    (media / "link.txt").symlink_to(tmp_path / "config.yaml")
    assert core.host.media_path(Media("media/a.txt")) == media / "a.txt"
    for ref in ("media/gone.txt", "config.yaml", "media/../config.yaml", "media/link.txt", "/etc"):
        with pytest.raises(SendRefused):
            core.host.media_path(Media(ref))


async def test_an_adapter_knows_the_menu_and_tells_its_trouble(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path)
    assert [entry.name for entry in core.host.menu()] == ["help"]
    core.host.report_problem("another poller runs")
    assert core.state.detail == "another poller runs"


async def test_what_a_refused_sender_wrote_is_not_stored_and_the_cursor_moves(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "person")
    stranger = replace(make_message("m1"), sender_id="stranger")
    assert list(await core.host.publish((stranger, make_message("m2")), "9")) == ["m2"]
    assert [entry.message.event_id for entry in core.entries] == ["m2"]
    assert len((await journal.leftovers()).entries) == 1
    assert await core.host.cursor() == "9"


async def test_an_adapters_folder_is_its_owners_only(journal: Journal, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "channels" / "fake"
    core = Core(journal, tmp_path)
    assert not folder.exists()
    assert core.host.state_folder == folder
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_folder_that_cannot_be_made_is_a_storage_error(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path)
    (tmp_path / "state" / "channels").write_text("in the way")
    with pytest.raises(StorageError):
        _ = core.host.state_folder


async def test_who_sends_too_much_is_turned_away_and_told_once(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "person", per_minute=2)
    new = await core.host.publish([make_message(f"m{number}") for number in range(5)], "5")
    assert list(new) == ["m0", "m1"]
    assert await core.host.cursor() == "5"
    await core.background.drain(5.0)
    told = [(part.part.content, part.part.event_ids) for part in core.parts]
    assert len(told) == 1
    assert "more than 2 messages in a minute" in told[0][0]
    assert told[0][1] == ("m2",)


async def test_where_the_disk_is_full_each_chat_is_told_once_until_it_takes_something(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "person")
    for event in ("m1", "m2"):
        here = make_message(event, "x" * 500_000)
        there = replace(here, chat_id="2", thread_id="5")
        with no_file_may_grow_beyond(200_000):
            for message in (here, there, here):
                with pytest.raises(StorageError):
                    await core.host.publish((message,))
        told = [(notice.chat_id, notice.thread_id) for notice in core.shown]
        assert told == [("1", ""), ("2", "5")]
        assert "Your message is pending: cannot use" in core.shown[0].text
        core.shown.clear()
        await core.host.publish((here, there))


async def test_who_writes_while_intake_is_held_is_told_why(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "person")
    core.bus.hold_intake(StorageError(tmp_path, "only 10 MB are left"))
    waiting = asyncio.create_task(core.host.publish((make_message("m1"),)))
    await asyncio.sleep(0)
    assert "only 10 MB are left" in core.shown[0].text
    core.bus.hold_intake(None)
    assert await waiting


async def test_publishing_excuses_a_silence_no_longer_than_it_takes(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "person")
    await core.host.publish((make_message("m1"),))
    assert core.state.due is None
    core.host.report_alive(60.0)
    core.bus.hold_intake(StorageError(tmp_path, "only 10 MB are left"))
    waiting = asyncio.create_task(core.host.publish((make_message("m2"),)))
    await asyncio.sleep(0)
    assert (core.state.heard_at, core.state.due) == (0.0, None)
    core.bus.hold_intake(None)
    assert await waiting
    assert core.state.due == 60.0
