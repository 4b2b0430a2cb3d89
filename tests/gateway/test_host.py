"""What an adapter gets from the core: admission, durable publishing, its cursor, a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot.bus.journal import InboxEntry, Journal
from nanobot.bus.queue import MessageBus
from nanobot.errors import StorageError
from nanobot.gateway.host import Host
from nanobot.testing import FakeClock
from tests.bus.support import opened, said


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with opened(tmp_path / "journal.db", FakeClock()) as journal:
        yield journal


class Core:
    """A host with a bus behind it, and what came through."""

    def __init__(self, journal: Journal, folder: Path, *allow: str, everyone: bool = False) -> None:
        self.entries: list[InboxEntry] = []
        bus = MessageBus(journal)
        bus.connect(self.entries.append, lambda _: None)
        self.host = Host("fake", bus, journal, folder, allow_from=allow, everyone=everyone)


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
    assert core.host.admit("person", "1") == admission
    new = await core.host.publish((said("m1"),))
    assert list(new) == (["m1"] if admission == "allowed" else [])


async def test_what_a_refused_sender_wrote_is_not_stored_and_the_cursor_moves(
    journal: Journal, tmp_path: Path
) -> None:
    core = Core(journal, tmp_path, "person")
    stranger = replace(said("m1"), sender_id="stranger")
    assert list(await core.host.publish((stranger, said("m2")), "9")) == ["m2"]
    assert [entry.message.event_id for entry in core.entries] == ["m2"]
    assert len((await journal.leftovers()).entries) == 1
    assert await core.host.cursor() == "9"


async def test_an_adapters_folder_is_its_owners_only(journal: Journal, tmp_path: Path) -> None:
    folder = tmp_path / "channels" / "fake"
    core = Core(journal, folder)
    assert not folder.exists()
    assert core.host.state_folder == folder
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_folder_that_cannot_be_made_is_a_storage_error(
    journal: Journal, tmp_path: Path
) -> None:
    (tmp_path / "channels").write_text("in the way")
    with pytest.raises(StorageError):
        _ = Core(journal, tmp_path / "channels" / "fake").host.state_folder
