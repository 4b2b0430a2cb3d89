"""Through a running gateway: the origin of a line, undoing changes, forgetting permanently."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
import zlib
from pathlib import Path

from dulwich.object_format import SHA1
from dulwich.pack import Pack

from nanobot.bus.events import Media
from nanobot.providers.port import Prompt
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Line
from nanobot.tooling import ToolResult
from tests.files import read_file
from tests.memory.whole.learning import assistant, learner
from tests.support import Probe, running

FILE = "memory/MEMORY.md"
WORDINGS = (
    "The favourite colour of the user is blue",
    "The favourite colour of the user is dark blue",
    "The favourite colour of the user is dark navy blue",
)


async def consolidate(channel: FakeChannel, *texts: str) -> None:
    for text in texts:
        await channel.ask(text)
    await channel.ask("/compact")  # all but the newest turn
    await channel.ask("/compact")


async def cli(home: Path, *arguments: str) -> str:
    """Return the output of `nanobot …` in a separate process."""
    environment = {**os.environ, "NANOBOT_HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nanobot", *arguments, env=environment, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


def reword(text: str) -> str:
    """Replace each wording with the next one in Dream."""
    place = WORDINGS.index(text) if text in WORDINGS else 0
    return f"- {WORDINGS[place - 1]}" if place else ""


async def test_why_leads_to_what_was_said_also_after_dream_reworded_the_line_twice(
    tmp_path: Path,
) -> None:
    channel, mind = FakeChannel(), ScriptedModel(author=learner(reword))
    async with running(tmp_path, ScriptedModel(author=assistant), channel, learner=mind):
        await consolidate(channel, f"consolidate: {WORDINGS[0]}", "what a day")
        first = await channel.ask('/memory why "blue"')
        for wording in WORDINGS[1:]:
            await consolidate(channel, f"dream: {wording}")
            await channel.ask("/dream")
        text = (tmp_path / "workspace" / FILE).read_text()
        why = await channel.ask('/memory why "blue"')
        shown = json.loads(await cli(tmp_path, "memory", "why", "blue", "--json"))
        printed = await cli(tmp_path, "memory", "why", "blue")
    assert text.count("colour") == 1
    assert f"- {WORDINGS[2]}" in text
    assert "[Consolidate]" in first
    assert f"consolidate: {WORDINGS[0]}" in first, "the raw message"
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "navy" in line)
    for told in (why, printed):
        flat = " ".join(told.split())
        assert f"{FILE}, line {number}: - {WORDINGS[2]}" in flat
        assert flat.index("dream: " + WORDINGS[2]) < flat.index("dream: " + WORDINGS[1])
        assert flat.index("dream: " + WORDINGS[1]) < flat.index("consolidate: " + WORDINGS[0])
        assert flat.count("[Dream]") == 2
        assert len(re.findall(r"history \d+", flat)) == 3, flat
        assert len(re.findall(r"\(version \d+, [0-9a-f]{7,}, ", flat)) == 3, flat
    assert WORDINGS[0] in json.dumps(shown)


async def test_why_of_an_accepted_fact_names_the_file_that_it_came_from(tmp_path: Path) -> None:
    channel = FakeChannel()
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "trip.md").write_text(
        "# Trip\n\nThe ferry to Bastia leaves at nine.\n"
    )
    model = ScriptedModel(
        calls("read_file", path="trip.md"),
        says("It leaves at nine."),
        calls("update_memory", file="MEMORY.md", add=["The ferry to Bastia leaves at nine"]),
        says("I asked to have it remembered."),
    )
    async with running(tmp_path, model, channel):
        await channel.ask("when does the ferry leave?")
        await channel.ask("remember that")
        await channel.ask("/memory accept 1")
        why = await channel.ask("/memory why ferry")
    assert "[You] confirmed 1 fact" in why
    assert "you: remember that" in why
    assert "tool read_file trip.md: The ferry to Bastia leaves at nine." in why


async def test_a_change_is_undone_and_done_again_and_hand_edits_made_meanwhile_stay(
    tmp_path: Path,
) -> None:
    channel, mind = FakeChannel(), ScriptedModel(author=learner())
    file = tmp_path / "workspace" / FILE

    def write(line: str) -> None:
        file.write_text(f"{file.read_text().rstrip()}\n- {line}\n")

    async with running(tmp_path, ScriptedModel(author=assistant), channel, learner=mind):
        await consolidate(channel, "dream: Owns a small sailing boat")
        await channel.ask("/dream")
        assert "sailing boat" in file.read_text()
        number = (await channel.ask("/dream-log")).split()[0]
        write("Written by hand before")
        undone = await channel.ask(f"/dream-restore --version {number}")
        after = file.read_text()
        write("Written by hand after")
        again = re.search(r"--version (\d+)", undone)
        assert again is not None, undone
        await channel.ask(f"/dream-restore --version {again[1]}")
        versions = await channel.ask("/dream-restore --list")
    assert "sailing boat" not in after
    assert "by hand before" in after
    for line in ("small sailing boat", "by hand before", "by hand after"):
        assert file.read_text().count(line) == 1
    assert versions.count("[Restore]") == 2
    assert versions.count("[You]") == 2


SECRET = "Qopuvi Zarnetka"
FORMS = [SECRET.encode(), SECRET.upper().encode(), SECRET.lower().encode(), b"Qopuvi", b"qopuvi"]
PNG = b"\x89PNG\r\n\x1a\n\0\0" + SECRET.encode()


def unpack(path: Path) -> bytes:
    """Decompress a file of git, and return any other unchanged."""
    try:
        data = read_file(path)
    except FileNotFoundError:  # it was on its way to another name
        return b""
    if path.suffix == ".pack":
        with Pack(str(path.with_suffix("")), object_format=SHA1) as pack:
            return data + b"".join(item.as_raw_string() for item in pack.iterobjects())
    if path.parent.parent.name == "objects" and data.startswith(b"x"):
        return data + zlib.decompress(data)
    return data


def places(home: Path) -> list[str]:
    """Return the files with the text in their contents or names."""
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    return [
        str(path.relative_to(home))
        for path in files
        if any(form in unpack(path) + bytes(path) for form in FORMS)
    ]


def gossip(prompt: Prompt) -> Line:
    """Use every tool that leaves something behind, one a turn."""
    last = prompt.messages[-1]
    if last.role == "tool":
        return says(f"It is {SECRET}.")
    match last.text.splitlines()[-1].split()[0]:
        case "note":
            return calls("note", text=f"feed {SECRET}")
        case "fact":
            return calls("update_memory", add=[f"The cat is called {SECRET}"])
        case "file":
            return calls("write_file", path="story.md", content=f"Once {SECRET}\n")
        case "change":
            return calls("write_file", path="story.md", content="Once nobody\n")
        case "spill":
            return calls("probe", text=f"{SECRET} " * 20_000)
    return says(f"I see, {SECRET}")


async def test_after_a_full_life_no_byte_of_an_erased_text_is_left(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files["cat"] = PNG
    probe = Probe(act=ToolResult)
    mind = ScriptedModel(author=learner())
    async with running(
        tmp_path, ScriptedModel(author=gossip), channel, learner=mind, tools=(probe,)
    ):
        await consolidate(channel, f"consolidate: The cat is called {SECRET}", "and so on")
        await consolidate(channel, f"dream: The dog fears {SECRET}")
        await channel.ask("/dream")
        for step in ("note it", "fact it", "file it", "change it", "spill it"):
            await channel.ask(step)
        photo = (Media("cat", "image", "image/png", "cat.png"),)
        await channel.answer_to(await channel.say(f"{SECRET}!", media=photo))
        await channel.ask(f"/note {SECRET.upper()} again")
        await channel.ask(f"my cat is {SECRET}", "2")
        await channel.ask("/new", "2")
        (tmp_path / "state" / "cli_history").write_text(f"# 2026\n+tell {SECRET}\n")
        (tmp_path / "logs" / "old.log").write_text(f"12:00 said {SECRET}\n")
        assert "Qopuvi" in await channel.ask(f"/memory search {SECRET}")
        before = places(tmp_path)
        plan = await channel.ask(f"/forget --erase {SECRET}")
        code = re.search(r"--yes (\S+?)`", plan)
        assert code is not None, plan
        report = await channel.ask(f"/forget --yes {code[1]}")
        left = places(tmp_path)
        model_free = await channel.ask("/memory search cat")
    for kind in (
        "sessions/",
        "workspace/memory/2",
        "workspace/memory/h",
        "state/journal",
        "state/index",
    ):
        assert any(place.startswith(kind) for place in before), (kind, before)
    for kind in ("state/memory.git/", "state/undo/", "spill/", "media/", "logs/", "state/cli"):
        assert any(place.startswith(kind) for place in before), (kind, before)
    assert left == [], report
    assert "Qopuvi" not in model_free
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(author=lambda _: says("hi")), channel):
        await channel.answer_to(await channel.say("hello", event_id="later"))
        assert places(tmp_path) == []
    assert places(tmp_path) == []
    with sqlite3.connect(tmp_path / "state" / "journal.db") as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
