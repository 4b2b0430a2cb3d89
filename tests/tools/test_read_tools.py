"""read_file and list_dir."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from nanobot.tooling.registry import MAX_RESULT, SpillFolder

if TYPE_CHECKING:
    from tests.tools.conftest import FileToolKit

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


async def test_a_short_file_is_shown_as_it_is(kit: FileToolKit) -> None:
    kit.put("a.txt", "one\ntwo\n")
    assert await kit.says("read_file", path="a.txt") == "one\ntwo\n"


async def test_lines_can_be_chosen_and_the_rest_is_announced(kit: FileToolKit) -> None:
    kit.put("a.txt", "".join(f"line {n}\n" for n in range(1, 11)))
    read = kit.says
    assert await read("read_file", path="a.txt", start_line=2, end_line=3) == (
        "line 2\nline 3\n[lines 2-3 of 10. Continue with start_line=4]"
    )
    assert (await read("read_file", path="a.txt", start_line=9)).endswith("[lines 9-10 of 10]")
    assert "only 10 lines" in await kit.complains("read_file", path="a.txt", start_line=11)
    wrong = await kit.complains("read_file", path="a.txt", start_line=4, end_line=2)
    assert "before start_line" in wrong


async def test_a_long_file_is_read_to_its_end_in_pieces(kit: FileToolKit) -> None:
    text = "".join(f"{n} {'x' * (n % 80)}\n" for n in range(5_000))
    kit.put("long.txt", text)
    pieces, start = [], 1
    while True:
        shown = await kit.says("read_file", path="long.txt", start_line=start)
        assert len(shown) <= MAX_RESULT
        body, _, note = shown.rpartition("\n")
        pieces.append(body + "\n")
        if "Continue" not in note:
            break
        start = int(note.split("start_line=")[1].rstrip("]"))
    assert "".join(pieces) == text


async def test_a_line_longer_than_a_result_is_cut_and_said(kit: FileToolKit) -> None:
    kit.put("min.js", "x" * 100_000 + "\nlast")
    shown = await kit.says("read_file", path="min.js")
    assert "[line 1 has 100,000 characters and is truncated here]" in shown
    assert "start_line=2" in shown
    assert (await kit.says("read_file", path="min.js", start_line=2)).startswith("last\n")


async def test_only_newlines_end_lines(kit: FileToolKit) -> None:
    kit.put("odd.txt", "a\x0cb\u2028c\rd\r\ne")
    assert await kit.says("read_file", path="odd.txt", start_line=2) == "e\n[lines 2-2 of 2]"


@pytest.mark.parametrize(
    ("content", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 9, "image/jpeg"),
        (b"GIF89a" + b"\0" * 9, "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_images_are_known_by_their_content(
    kit: FileToolKit, content: bytes, mime: str
) -> None:
    kit.put("picture.txt", content)
    result = await kit.call("read_file", path="picture.txt")
    assert result.images == ((base64.b64encode(content).decode(), mime),)
    assert mime in result.text


async def test_what_cannot_be_shown_is_named(kit: FileToolKit) -> None:
    kit.put("big.png", PNG + b"\0" * 5_000_000)
    kit.put("book", b"%PDF-1.7\n")
    kit.put("x.bin", b"\0\1\2")
    kit.put("empty", b"")
    kit.put("latin.txt", b"caf\xe9\n")
    assert "is too large" in await kit.complains("read_file", path="big.png")
    assert "binary (9 bytes)" in await kit.complains("read_file", path="book")
    assert "binary (3 bytes)" in await kit.complains("read_file", path="x.bin")
    assert await kit.says("read_file", path="empty") == "[empty is empty]"
    shown = await kit.says("read_file", path="latin.txt")
    assert shown == "caf\ufffd\n[some bytes are not valid UTF-8 and are shown as \ufffd]"


async def test_a_missing_file_suggests_what_may_be_meant(kit: FileToolKit) -> None:
    kit.put("notes/shopping.md", "x")
    assert "Did you mean notes/shopping.md?" in await kit.complains(
        "read_file", path="notes/Shoping.md"
    )
    assert "Did you mean notes/shopping.md?" in await kit.complains("read_file", path="shopping.md")
    assert "list_dir" in await kit.complains("read_file", path="zzz/unknown")
    assert "Use list_dir" in await kit.complains("read_file", path="notes")


async def test_what_lies_outside_stays_there(kit: FileToolKit) -> None:
    (kit.home / "config.yaml").write_text("key: hunter22")
    (kit.workspace / "way-out").symlink_to(kit.home)
    os.mkfifo(kit.workspace / "pipe")
    for path in ("../config.yaml", "way-out/config.yaml", "/etc/passwd", "pipe", ".git/config"):
        for tool in ("read_file", "list_dir", "grep", "find_files"):
            arguments = {"path": path} | (
                {"pattern": "."} if tool in ("grep", "find_files") else {}
            )
            assert "hunter22" not in (await kit.call(tool, **arguments)).text
        await kit.complains("read_file", path=path)
        await kit.complains("write_file", path=path, content="x")
    assert (kit.home / "config.yaml").read_text() == "key: hunter22"


async def test_a_folder_is_listed_folders_first(kit: FileToolKit) -> None:
    kit.put("b.txt", "12345")
    kit.put("z/inner.txt", "x")
    kit.put(".git/config", "x")
    (kit.workspace / "link").symlink_to("b.txt")
    assert await kit.says("list_dir") == "z/\nb.txt 5 bytes\nlink (a link, not followed)"
    kit.put("z/inner.txt", "x").unlink()
    assert await kit.says("list_dir", path="z") == "[z is empty]"
    assert "Use read_file" in await kit.complains("list_dir", path="b.txt")
    assert "there is no y" in await kit.complains("list_dir", path="y")


async def test_a_crowded_folder_is_cut_and_counted(kit: FileToolKit) -> None:
    for n in range(600):
        kit.put(f"many/{n:04d}", "")
    shown = await kit.says("list_dir", path="many")
    assert shown.endswith("[500 of 600 entries. Use find_files for the others]")


async def test_a_spilled_result_can_be_read_back_and_not_written(kit: FileToolKit) -> None:
    text = "\n".join(f"line {n}" for n in range(10_000))
    path = SpillFolder(kit.home / "spill").store(text, "web")
    shown = await kit.says("read_file", path=path, start_line=9_999)
    assert shown.startswith("line 9998\nline 9999\n")
    assert "is read-only" in await kit.complains("write_file", path=path, content="x")
    assert "is read-only" in await kit.complains(
        "edit_file", path=path, old_text="line 1\n", new_text="x"
    )


def test_the_spill_folder_keeps_the_latest_only(kit: FileToolKit) -> None:
    folder = SpillFolder(kit.home / "spill", keep=3)
    paths = [folder.store(f"text {n}", "../../x") for n in range(6)]
    left = sorted(str(path) for path in (kit.home / "spill").iterdir())
    assert len(left) == 3
    assert paths[-1] in left
