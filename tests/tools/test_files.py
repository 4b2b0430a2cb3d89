"""write_file and edit_file, and the undo record before each change."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from nanobot.messages import ToolCall
from nanobot.tooling import Denied, OwnersPolicy, ToolResult, TurnContext
from nanobot.tools.files import EditFile, EditFileArguments, WriteFile, WriteFileArguments

if TYPE_CHECKING:
    from tests.tools.conftest import FileToolKit


async def test_a_file_is_created_with_its_folders_and_overwritten(kit: FileToolKit) -> None:
    result = await kit.call("write_file", path="a/b/c.txt", content="héllo")
    assert result.text == "created a/b/c.txt (6 bytes)"
    assert result.changed == ("a/b/c.txt",)
    assert await kit.says("write_file", path="a/b/c.txt", content="x") == (
        "overwrote a/b/c.txt (6 bytes before, 1 now)"
    )
    assert "already" in await kit.says("write_file", path="a/b/c.txt", content="x")
    assert (kit.workspace / "a/b/c.txt").read_text() == "x"


async def test_what_others_would_read_is_judged_with_its_path_and_never_by_its_words(
    kit: FileToolKit,
) -> None:
    writer = replace(
        kit.writer,
        foreign=lambda path, _: path != "skills/a.md",
    )
    caller = TurnContext("cli", "direct", "cli:direct", "t-1")
    write = WriteFile(writer)
    edit = EditFile(writer)
    for path, kind in (("people/x/a.txt", "send"), ("skills/a.md", "persist")):
        risk = await write.risk(WriteFileArguments(path=path, content="mine"), caller)
        assert risk is not None
        assert (risk.kind, risk.details) == (kind, f"file: {path}\nmine")
        assert path not in risk.what
        for everywhere, which in ((True, "every"), (False, "the only")):
            arguments = EditFileArguments(
                path=path, old_text="a", new_text="b", replace_all=everywhere
            )
            risk = await edit.risk(arguments, caller)
            assert risk is not None
            assert risk.details.startswith(f"file: {path}\n--- replace {which} occurrence")


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("skills/tea/SKILL.md", True), ("Skills", True), ("skill/x", False), ("notes/skills", False)],
)
async def test_writes_to_the_skills_are_known_by_their_path(
    kit: FileToolKit, path: str, is_one: bool
) -> None:
    caller = TurnContext("cli", "direct", "cli:direct", "t-1")
    risk = await kit.writer.risk(path, "x", caller)
    assert (risk is not None) is is_one


async def test_text_that_cannot_be_stored_is_refused(kit: FileToolKit) -> None:
    assert "invalid character" in await kit.complains("write_file", path="a", content="x\ud83d")
    assert not (kit.workspace / "a").exists()


async def test_an_exact_piece_is_replaced(kit: FileToolKit) -> None:
    file = kit.put("a.txt", "one\ntwo\nthree\n")
    said = await kit.says("edit_file", path="a.txt", old_text="two\n", new_text="2\n")
    assert said == "edited a.txt: replaced once, line 2"
    assert file.read_text() == "one\n2\nthree\n"


async def test_an_ambiguous_piece_is_counted_and_located(kit: FileToolKit) -> None:
    file = kit.put("a.txt", "x\ny\nx\nx\n")
    said = await kit.complains("edit_file", path="a.txt", old_text="x", new_text="z")
    assert "3 times (lines 1, 3, 4)" in said
    assert file.read_text() == "x\ny\nx\nx\n"
    said = await kit.says("edit_file", path="a.txt", old_text="x", new_text="z", replace_all=True)
    assert said == "edited a.txt: replaced 3 times, line 1, 3, 4"
    assert file.read_text() == "z\ny\nz\nz\n"


async def test_crlf_files_keep_their_line_endings(kit: FileToolKit) -> None:
    file = kit.put("dos.txt", b"one\r\ntwo\r\nthree\r\n")
    await kit.says("edit_file", path="dos.txt", old_text="one\ntwo", new_text="1\n2\n2a")
    assert file.read_bytes() == b"1\r\n2\r\n2a\r\nthree\r\n"
    await kit.says("edit_file", path="dos.txt", old_text="2a\r\n", new_text="")
    assert file.read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_mixed_line_endings_are_taken_exactly(kit: FileToolKit) -> None:
    file = kit.put("mixed.txt", b"one\r\ntwo\nthree")
    await kit.says("edit_file", path="mixed.txt", old_text="two\nthree", new_text="2\n3")
    assert file.read_bytes() == b"one\r\n2\n3"


@pytest.mark.parametrize(
    ("old", "hints"),
    [
        ("def  f( x ):", ["2:     def f(x):"]),
        ("def f(x):\n  return x", ["Only spaces, indentation, or line endings differ", "3:  "]),
        ("CLASS A:", ["Only upper and lower case differ", "Read it again"]),
        ("def f(x, y):\n        return y", ["closest lines", "2:     def f(x):"]),
        ("something else entirely", ["The file contains nothing similar"]),
    ],
)
async def test_a_miss_shows_what_comes_closest(
    kit: FileToolKit, old: str, hints: list[str]
) -> None:
    kit.put("a.py", "class A:\n    def f(x):\n        return x\n")
    said = await kit.complains("edit_file", path="a.py", old_text=old, new_text="z")
    for hint in hints:
        assert hint in said


async def test_a_miss_in_a_huge_file_is_cheap(kit: FileToolKit) -> None:
    kit.put("huge.txt", "\n".join(f"{n} {'abcdefgh' * 30}" for n in range(20_000)))
    said = await kit.complains(
        "edit_file", path="huge.txt", old_text="zzz " + "abcdefgi" * 30, new_text=""
    )
    assert "closest lines" in said


async def test_edits_that_make_no_sense_are_refused(kit: FileToolKit) -> None:
    kit.put("a.txt", "a")
    kit.put("x.bin", b"\0\1")
    kit.put("latin.txt", b"caf\xe9")
    edit = kit.complains
    assert "old_text is empty" in await edit("edit_file", path="a.txt", old_text="", new_text="b")
    assert "the same" in await edit("edit_file", path="a.txt", old_text="a", new_text="a")
    assert "binary" in await edit("edit_file", path="x.bin", old_text="a", new_text="b")
    assert "not valid UTF-8" in await edit("edit_file", path="latin.txt", old_text="c", new_text="")
    assert "there is no b.txt" in await edit("edit_file", path="b.txt", old_text="a", new_text="b")


async def test_long_term_files_go_through_their_guarded_writer(kit: FileToolKit) -> None:
    kit.put("memory/MEMORY.md", "likes tea\n")
    await kit.says("edit_file", path="./memory//MEMORY.md", old_text="tea", new_text="coffee")
    assert kit.documents.seen == [("memory/MEMORY.md", "likes coffee\n", b"likes tea\n", "turn-1")]
    await kit.says("write_file", path="notes.txt", content="x")
    assert len(kit.documents.seen) == 1
    said = await kit.complains("write_file", path="memory/MEMORY.md", content="conflict")
    assert "Read it again" in said


async def test_a_turn_is_undone_as_a_whole_newest_change_first(kit: FileToolKit) -> None:
    kit.put("kept.txt", "old")
    kit.put("memory/MEMORY.md", "likes tea\n")
    await kit.says("write_file", path="kept.txt", content="new")
    await kit.says("edit_file", path="kept.txt", old_text="new", new_text="newer")
    await kit.says("write_file", path="made/up.txt", content="x")
    await kit.says("edit_file", path="memory/MEMORY.md", old_text="tea", new_text="coffee")
    kit.turn = "turn-2"
    await kit.says("write_file", path="other.txt", content="stays")
    assert dict(kit.undo.revert("turn-1")) == {
        "memory/MEMORY.md": "restored",
        "made/up.txt": "removed",
        "kept.txt": "restored",
    }
    assert (kit.workspace / "kept.txt").read_text() == "old"
    assert (kit.workspace / "memory/MEMORY.md").read_text() == "likes tea\n"
    assert not (kit.workspace / "made/up.txt").exists()
    assert (kit.workspace / "other.txt").read_text() == "stays"
    assert kit.undo.revert("turn-1") == []


async def test_what_a_person_changed_since_is_left_alone(kit: FileToolKit) -> None:
    await kit.says("write_file", path="a.txt", content="by the turn")
    await kit.says("write_file", path="b.txt", content="by the turn")
    kit.put("a.txt", "by the person")
    assert dict(kit.undo.revert("turn-1")) == {
        "a.txt": "kept (it has changed since)",
        "b.txt": "removed",
    }
    assert (kit.workspace / "a.txt").read_text() == "by the person"
    assert kit.undo.turns() == []


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (".envrc", True),
        ("a/.vscode/tasks.json", True),
        ("a/CLAUDE.md", True),
        ("a/.hg/hgrc", True),
        ("bare/config", True),
        ("bare/hooks/post-checkout", True),
        ("half/refs/x", True),
        ("half/notes", True),  # next to a HEAD
        (".newtool.toml", True),
        ("a/.newtool/hooks", True),
        ("a/.GIT~1/../mise.local.toml", True),
        (".gitignore", False),
        (".venv/pyvenv.cfg", False),
        ("headless/HEAD", True),
        ("Makefile", False),
        ("docs/refs/x.md", False),
        ("memory/CLAUDE.md", False),
    ],
)
async def test_what_a_persons_programs_run_by_themselves_is_asked_about(
    kit: FileToolKit, path: str, asked: bool
) -> None:
    for folder in ("bare/objects", "bare/refs", "half/objects", "headless/refs/x", "docs"):
        (kit.workspace / folder).mkdir(parents=True)
    for file in ("bare/HEAD", "half/HEAD", "headless/commondir"):
        (kit.workspace / file).write_text("x\n")
    writer = kit.writer
    caller = TurnContext("cli", "direct", "cli:direct", "t-1")
    arguments = WriteFileArguments(path=path, content="x")
    risk = await WriteFile(writer).risk(arguments, caller)
    assert (risk is not None and risk.kind == "persist") == asked
    edit = EditFileArguments(path=path, old_text="x", new_text="y")
    risk = await EditFile(writer).risk(edit, caller)
    assert (risk is not None) == asked


LEFT_BEHIND = (
    ".envrc|.env|.hidden/notes.txt|a/.x/b.txt|.vscode/tasks.json|.cache/x|.gitignore|.x:y|"
    "\u200c.x|.x /config|HEAD|a/HEAD|a/head|a/objects/x|a/refs/heads/m|"
    "a/commondir|CLAUDE.md|a/AGENTS.md|skills/x/SKILL.md|memory/.envrc|memory/sub/.vscode/x|...|"
    "memory/CLAUDE.md|memory/HEAD|GEMINI.md|.mcp.json"
)


@pytest.mark.parametrize("path", LEFT_BEHIND.split("|"))
async def test_others_than_the_owner_leave_nothing_that_acts_later(
    kit: FileToolKit, path: str
) -> None:
    guest = TurnContext("a", "8", "a:8", "t-1", "8", "people/a_8")
    write, edit = WriteFileArguments(path=path, content="x"), EditFileArguments(path, "x", "y")
    for risk in (
        await WriteFile(kit.writer).risk(write, guest),
        await EditFile(kit.writer).risk(edit, guest),
    ):
        assert risk is not None
        assert risk.kind == "persist"
        assert isinstance(OwnersPolicy({"persist": "allow"}).decide(guest, risk), Denied)


@pytest.mark.parametrize("path", ["notes.txt", "a/b.md", "Makefile", "run.sh", "memory/MEMORY.md"])
async def test_others_write_ordinary_files_unasked(kit: FileToolKit, path: str) -> None:
    guest = TurnContext("a", "8", "a:8", "t-1", "8", "people/a_8")
    arguments = WriteFileArguments(path=path, content="x")
    assert await WriteFile(kit.writer).risk(arguments, guest) is None


@pytest.mark.parametrize("path", ["shared.txt", "memory/MEMORY.md"])
async def test_edits_of_one_file_in_many_chats_are_all_made(kit: FileToolKit, path: str) -> None:
    count = 12
    file = kit.put(path, "".join(f"- line {n} end\n" for n in range(count)))

    async def edit(number: int) -> str:
        arguments = {"path": path, "old_text": f"line {number} ", "new_text": f"edited {number} "}
        caller = TurnContext("cli", f"{number}", f"cli:{number}", f"turn-{number}")
        call = ToolCall("1", "edit_file", json.dumps(arguments))
        return (await kit.tools.call(call, caller)).text

    said = await asyncio.gather(*map(edit, range(count)))
    assert [text.partition(":")[0] for text in said] == [f"edited {path}"] * count
    assert file.read_text() == "".join(f"- edited {n} end\n" for n in range(count))
    for number in range(count):
        turn = kit.home / "undo" / f"turn-{number}"
        assert len([one for one in turn.iterdir() if one.name.isdigit()]) == 1


async def test_of_two_edits_of_one_place_the_later_one_is_told(kit: FileToolKit) -> None:
    file = kit.put("shared.txt", "one\ntwo\n")

    async def edit(new: str) -> ToolResult:
        arguments = {"path": "shared.txt", "old_text": "two", "new_text": new}
        caller = TurnContext("cli", new, f"cli:{new}", f"turn-{new}")
        return await kit.tools.call(ToolCall("1", "edit_file", json.dumps(arguments)), caller)

    results = await asyncio.gather(*map(edit, ("2", "II", "zwei")))
    made = [result for result in results if not result.is_error]
    assert len(made) == 1
    assert file.read_text() in {"one\n2\n", "one\nII\n", "one\nzwei\n"}
    assert all("old_text was not found" in one.text for one in results if one.is_error)
