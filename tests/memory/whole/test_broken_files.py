"""With any damage to memory, versions or index, every chat is answered and loses nothing."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nanobot.errors import HomeLocked
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.memory.whole.learning import assistant, learner
from tests.support import read_stored, running

MEMORY = "workspace/memory"
FACT = "The user keeps bees behind the mill"
Break = Callable[[Path], None]


class Visitor(FakeChannel):
    """A channel whose messages are new to a home that has known another one."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._numbers = itertools.count(first)

    async def say(self, text: str, chat_id: str = "1", **fields: object) -> str:
        return await super().say(text, chat_id, event_id=f"e{next(self._numbers)}")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A used home with facts, history, versions, an index, notes, a Dream."""
    home = tmp_path_factory.mktemp("lived") / "home"

    async def live() -> None:
        channel = Visitor(1)
        mind = ScriptedModel(author=learner())
        async with running(home, ScriptedModel(author=assistant), channel, learner=mind):
            await channel.ask(f"consolidate: {FACT}")
            await channel.ask("/compact")
            await channel.ask("/dream")
            await channel.ask("/note the key is under the mat")
            await channel.ask("/memory search bees")

    asyncio.run(live())
    return home


def bytes_in(path: str, content: bytes) -> Break:
    def write(home: Path) -> None:
        (home / path).write_bytes(content)

    return write


def folder_at(path: str) -> Break:
    def replace(home: Path) -> None:
        remove_path(path)(home)
        (home / path).mkdir()

    return replace


def remove_path(path: str) -> Break:
    def remove(home: Path) -> None:
        place = home / path
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    return remove


def link_path(path: str) -> Break:
    def link(home: Path) -> None:
        (home / path).rename(home / "elsewhere.md")
        (home / path).symlink_to(home / "elsewhere.md")

    return link


def file_at(path: str) -> Break:
    def replace(home: Path) -> None:
        remove_path(path)(home)
        (home / path).write_bytes(b"a file")

    return replace


def tear_objects(home: Path) -> None:
    for path in (home / "state/memory.git/objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"junk" + path.read_bytes()[4:])


def stale_locks(home: Path) -> None:
    for name in ("HEAD.lock", "refs/heads/main.lock", "objects/pack/tmp_pack_1"):
        (home / "state/memory.git" / name).write_bytes(b"")


def half_a_line(home: Path) -> None:
    file = home / MEMORY / "history.jsonl"
    file.write_bytes(file.read_bytes()[:-20])


HUGE = b"# Memory\n\n" + b"".join(b"- fact number %d of very many\n" % n for n in range(4_000))
LATIN = "# Memory\n\n- caf\xe9 cr\xe8me\n- tea\n".encode("latin-1")

BREAKS: dict[str, Sequence[Break]] = {
    "garbage": (
        bytes_in(f"{MEMORY}/history.jsonl", b"\0\xff{}\n[1,2\n" * 50),
        bytes_in(f"{MEMORY}/.cursor", b"\xff"),
        bytes_in(f"{MEMORY}/.dream_cursor", b"99999\n"),
        bytes_in("state/index.db", b"no database" * 1_000),
        bytes_in("state/memory.git/HEAD", b"\xff\xfe"),
        bytes_in(f"{MEMORY}/MEMORY.md", bytes(range(256)) * 20),
        bytes_in("state/documents.json", b"\xff{"),
    ),
    "folders for files": (
        folder_at(f"{MEMORY}/history.jsonl"),
        folder_at(f"{MEMORY}/HISTORY.md"),
        folder_at(f"{MEMORY}/.cursor"),
        folder_at(f"{MEMORY}/.dream_cursor"),
        folder_at("state/index.db"),
        folder_at("state/memory.git.lock"),
        folder_at(f"{MEMORY}/MEMORY.md"),
    ),
    "files for folders": (file_at("state/memory.git"), file_at("workspace/people")),
    "gone": (
        remove_path("state/memory.git"),
        remove_path(f"{MEMORY}/HISTORY.md"),
        remove_path("workspace/USER.md"),
    ),
    "cut short": (half_a_line, tear_objects, bytes_in(f"{MEMORY}/MEMORY.md", LATIN)),
    "empty": (
        bytes_in(f"{MEMORY}/history.jsonl", b""),
        bytes_in("state/memory.git/HEAD", b""),
        link_path(f"{MEMORY}/MEMORY.md"),
    ),
    "the versions have no HEAD": (remove_path("state/memory.git/HEAD"),),
    "stale locks and a huge file": (stale_locks, bytes_in(f"{MEMORY}/MEMORY.md", HUGE)),
    "the memory folder is a file": (file_at(MEMORY),),
    "the workspace is a file": (file_at("workspace"),),
}
"""Breaks that are made together."""


@pytest.mark.parametrize("name", BREAKS)
async def test_a_broken_file_keeps_nobody_from_an_answer(
    lived: Path, tmp_path: Path, name: str
) -> None:
    home = tmp_path / "home"
    shutil.copytree(lived, home)

    def break_home(home: Path) -> None:
        for one in BREAKS[name]:
            one(home)

    at_rest = list(BREAKS).index(name) % 2 == 0 or name.startswith("the workspace")
    if at_rest:
        break_home(home)
    channel, mind = Visitor(1_000), ScriptedModel(author=learner())
    answers = []
    async with running(home, ScriptedModel(author=assistant), channel, learner=mind):
        if not at_rest:
            assert (await channel.ask("hello")).startswith("I hear")
            break_home(home)
        assert (await channel.ask("are you there?")).startswith("I hear")
        commands = ("/memory", "/memory why bees", "/dream", "/dream-log", "/compact")
        answers += [await channel.ask(command) for command in commands]
        assert (await channel.ask("remember: one more thing")).startswith("done")
        answers.append(await channel.ask("/new"))
        assert (await channel.ask("and now?")).startswith("I hear")
    assert [answer for answer in answers if "broke inside" in answer] == []
    said = [m.content for m in read_stored(home) if m.role == "user"]
    assert [text for text in said if text != "hello"] == [
        f"consolidate: {FACT}", "are you there?", "remember: one more thing", "and now?",
    ]  # fmt: skip


async def test_one_file_that_cannot_be_read_keeps_no_other_from_learning(
    lived: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(lived, home)
    link_path("workspace/SOUL.md")(home)
    channel, mind = Visitor(1_000), ScriptedModel(author=learner())
    async with running(home, ScriptedModel(author=assistant), channel, learner=mind):
        assert "1 added" in await channel.ask("remember: The boat is called Heron")
        await channel.ask("consolidate: The mill has a new roof")
        await channel.ask("/new")
        await channel.ask("/compact")
        assert "The mill has a new roof" in await channel.ask("/memory")


async def test_what_a_broken_file_kept_back_is_learned_once_it_is_mended(
    lived: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(lived, home)
    channel, mind = Visitor(1_000), ScriptedModel(author=learner())
    file = home / MEMORY / "MEMORY.md"
    async with running(home, ScriptedModel(author=assistant), channel, learner=mind):
        text = file.read_text()
        folder_at(f"{MEMORY}/MEMORY.md")(home)
        await channel.ask("consolidate: The mill has a new roof")
        await channel.ask("/compact")
        file.rmdir()
        file.write_text(text)
        await channel.ask("hello again")
        await channel.ask("/compact")
    assert file.read_text().count("The mill has a new roof") == 1
    assert file.read_text().count(FACT) == 1


@pytest.mark.parametrize("content", [b"99999\n", b"9" * 5_000, b"\xff"])
async def test_facts_are_taken_in_whatever_stands_in_the_applied_mark(
    lived: Path, tmp_path: Path, content: bytes
) -> None:
    home = tmp_path / "home"
    shutil.copytree(lived, home)
    bytes_in(f"{MEMORY}/.applied", content)(home)
    channel, mind = Visitor(1_000), ScriptedModel(author=learner())
    async with running(home, ScriptedModel(author=assistant), channel, learner=mind):
        await channel.ask("consolidate: The mill has a new roof")
        await channel.ask("/compact")
        assert "The mill has a new roof" in await channel.ask("/memory")


async def test_line_ends_of_another_system_stay(lived: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(lived, home)
    file = home / MEMORY / "MEMORY.md"
    file.write_bytes(b"# Memory\r\n\r\n## Facts\r\n\r\n- one thing\r\n- two things\r\n")
    channel = Visitor(1_000)
    async with running(home, ScriptedModel(author=assistant), channel):
        assert "1 added" in await channel.ask("remember: a third thing")
    content = file.read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n")
    assert b"- one thing\r\n" in content
    assert b"- a third thing\r\n" in content


async def test_a_second_nanobot_on_the_same_home_is_refused_and_changes_nothing(
    lived: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(lived, home)
    channel = Visitor(1_000)
    async with running(home, ScriptedModel(author=assistant), channel):
        with pytest.raises(HomeLocked, match="another nanobot"):
            async with running(home, ScriptedModel(author=assistant), Visitor(2_000)):
                pass
        assert (await channel.ask("still there?")).startswith("I hear")


async def test_a_clock_that_goes_back_a_day_stops_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    mind = ScriptedModel(author=learner())
    model = ScriptedModel(author=lambda _: says("yes"))
    async with running(tmp_path, model, channel, clock=clock, learner=mind):
        for line in ("one thing", "another matter"):
            await channel.ask(f"consolidate: {line}")
            await channel.ask("/compact")
            await channel.ask(f"/note {line}")
            clock.jump(-86_400)
        assert await channel.ask("and now?") == "yes"
        assert "nothing new" in await channel.ask("/dream")
    text = (tmp_path / MEMORY / "MEMORY.md").read_text()
    assert "- one thing" in text
    assert "- another matter" in text
    for day, line in (("2026-03-02", "one thing"), ("2026-03-01", "another matter")):
        assert line in (tmp_path / MEMORY / f"{day}.md").read_text()
