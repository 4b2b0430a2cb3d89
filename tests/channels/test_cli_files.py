"""Files that a message of the terminal attaches."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import pytest

from nanobot.bus.events import Media
from nanobot.errors import NanobotError, SendRefused, StorageError
from nanobot_cli.typed import read_attachments
from nanobot_cli.uploads import Uploads
from nanobot_cli.wire import MOST_BYTES
from tests.channels.test_cli_channel import NOON, Client, Core, end_turn, request, running

NOW = NOON.timestamp()


def attached(*files: tuple[str, bytes]) -> list[dict[str, str]]:
    return [{"name": name, "data": b64encode(data).decode()} for name, data in files]


async def test_a_file_is_on_disk_before_its_message_and_until_the_answer(tmp_path: Path) -> None:
    core, client = Core(folder=tmp_path), Client()
    files = attached(("tea.png", b"png"), ("../no\nte.txt", b""))
    async with running(core) as channel:
        await channel.chat(request("1", "look at @tea.png", attached=files), client)
        (message,) = core.published
        assert message.content == "look at @tea.png"
        named = [(one.kind, one.mime, one.name, one.size) for one in message.media]
        assert named == [
            ("image", "image/png", "tea.png", 3),
            ("document", "text/plain", "../no te.txt", 0),
        ]
        assert [await channel.fetch(one, 10) for one in message.media] == [b"png", b""]
        with pytest.raises(SendRefused, match="limit"):
            await channel.fetch(message.media[0], 2)
        await channel.show_progress(end_turn("cli:1", outcome="waiting"))
        assert await channel.fetch(message.media[0], 10) == b"png"
        await channel.show_progress(end_turn("cli:1"))
        with pytest.raises(SendRefused, match="no longer"):
            await channel.fetch(message.media[0], 10)


async def test_files_of_an_earlier_process_are_deleted_with_their_answer(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    for number in ("1", "2"):
        async with running(core) as channel:
            await channel.chat(request(number, attached=attached(("x", b"x"))), Client())
    async with running(core) as channel:
        await channel.show_progress(end_turn("cli:1", outcome="stopped"))
        first, second = (message.media[0] for message in core.published)
        with pytest.raises(SendRefused):
            await channel.fetch(first, 10)
        assert await channel.fetch(second, 10) == b"x"


async def test_a_reference_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    async with running(Core(folder=tmp_path)) as channel:
        with pytest.raises(SendRefused):
            await channel.fetch(Media("../secret"), 10)


@pytest.mark.parametrize("kind", ["#", "a", "é", "\ud800", "huge"])
async def test_a_damaged_or_huge_file_refuses_the_message(tmp_path: Path, kind: str) -> None:
    core = Core(folder=tmp_path)
    data = b64encode(b"x" * (MOST_BYTES + 1)).decode() if kind == "huge" else kind
    async with running(core) as channel:
        with pytest.raises(NanobotError):
            await channel.chat(request("1", attached=[{"name": "x", "data": data}]), Client())
    assert core.published == []
    assert not (tmp_path / "files").exists()


async def test_a_disk_that_refuses_a_file_refuses_its_message(tmp_path: Path) -> None:
    core = Core(folder=tmp_path)
    (tmp_path / "files").write_text("in the way")
    async with running(core) as channel:
        with pytest.raises(StorageError):
            await channel.chat(request("1", attached=attached(("x", b"x"))), Client())
    assert core.published == []


def test_files_that_no_turn_has_answered_are_deleted_after_a_month(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    (old,) = uploads.keep("1", [("a", b"a")], NOW)
    os.utime(tmp_path / "files" / old.ref, (NOW, NOW))
    (new,) = uploads.keep("2", [("b", b"b")], NOW + 31 * 86_400)
    assert uploads.read(new.ref, 9) == b"b"
    with pytest.raises(SendRefused):
        uploads.read(old.ref, 9)


def test_names_after_at_attach_the_files_that_exist_and_all_else_is_text(tmp_path: Path) -> None:
    for name in ("a.txt", "my file.txt", "b"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    typed = f'@a.txt, @"my file.txt" and @{tmp_path}/b? not @folder @pipe @anna x@b @\0 @~no/x @b'
    assert read_attachments(typed, tmp_path) == [
        ("a.txt", b"a.txt"), ("my file.txt", b"my file.txt"), ("b", b"b"),
    ]  # fmt: skip
    assert read_attachments("!cat @a.txt", tmp_path) == read_attachments("/note @b", tmp_path) == []


def test_files_that_are_too_large_together_are_not_sent(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(MOST_BYTES // 2 + 1)
    assert len(read_attachments("@a", tmp_path)) == 1
    with pytest.raises(NanobotError, match="b is too large"):
        read_attachments("@a @b", tmp_path)
