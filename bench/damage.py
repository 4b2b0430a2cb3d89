"""The damage campaign: pages of the journal and files of a home are damaged, and nanobot starts.

A home is furnished with three chats with some weeks of conversation, a memory, a job, and pending
messages. It is copied while nanobot runs, as after a power loss, and after nanobot ended. Each
damage is done to a copy. Then a gateway starts on it, and:

- it starts, and answers a new message in each chat whose own files are undamaged,
- if something was lost, health reports it, and for the journal a notice in the owner's chat too,
- acknowledged messages outside the damage are answered.

    python -m bench.damage            51 damages to the journal, 15 files with 5 damages each
    python -m bench.damage --short    a sample of both
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loguru import logger

from bench.common import Instant
from bench.reporting import report
from nanobot.app.gateway import Gateway
from nanobot.bus.events import Notice
from nanobot.bus.journal_file import SqliteState
from nanobot.cli.client import Client
from nanobot.config.load import load_settings
from nanobot.messages import ToolCall
from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.channel import FakeChannel
from tests.support import copy_running

PAGE = 4096
CHATS = ("1", "2", "3")
PATIENCE = 20.0
_TURNS = 40
_FACT = re.compile("remember that (I like [a-z]+)")
_WAITS = "wait for me"

Damage = Callable[[Path], None]


class Model(Instant):
    """Answers at once, but holds one message while the home is furnished."""

    def __init__(self, *, holds: bool) -> None:
        super().__init__()
        self._holds = holds
        self.held = asyncio.Event()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        asked = prompt.messages[-1]
        if asked.role == "user" and (fact := _FACT.search(asked.text)):
            call = json.dumps({"file": "MEMORY.md", "quote": [fact[1]]})
            return Reply("", (ToolCall("c1", "update_memory", call),))
        if self._holds and _WAITS in prompt.messages[-1].text:
            self.held.set()
            await asyncio.Event().wait()
        return await super().complete(prompt, options, on_text)


@dataclass
class Case:
    """A damage to a home. `lost`: it must be reported in health and, if `in_chat`, in the owner's
    chat."""

    name: str
    home: str
    damage: Damage
    lost: bool = True
    in_chat: bool = True


@dataclass
class Outcome:
    """The observations of a start."""

    faults: list[str] = field(default_factory=list)
    told: str = ""
    health: str = ""


# Damages


def zero(path: Path, page: int, size: int = PAGE) -> None:
    """Overwrite a page, counted from 0, with zeros."""
    with path.open("r+b") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(page * size)
        file.write(bytes(max(0, min(size, length - page * size))))


def flip(path: Path, *, seed: int = 1, share: float = 0.01) -> None:
    """Change some bytes."""
    data, chosen = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(max(3, int(len(data) * share)) if data else 0):
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)


def cut(path: Path, share: float = 0.5) -> None:
    """Truncate a file."""
    os.truncate(path, int(path.stat().st_size * share))


def replace_by(content: bytes) -> Damage:
    """Return a damage that replaces the content."""

    def damage(path: Path) -> None:
        path.write_bytes(content)

    return damage


_GARBAGE = random.Random(7).randbytes(20_000)


def of_journal(home: Path) -> Iterator[Case]:
    """Yield the damages to the journal of the furnished homes."""

    def case(name: str, damage: Damage, suffix: str = "", *, lost: bool = True) -> Case:
        source = "live" if suffix or name.startswith("live") else "rested"
        place = f"state/journal.db{suffix}"
        return Case(f"journal{suffix}: {name}", source, lambda home: damage(home / place), lost)

    journal = home / "rested" / "state" / "journal.db"
    with closing(sqlite3.connect(journal)) as db:
        roots = db.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage").fetchall()
        pages = db.execute(
            "SELECT name, pagetype, max(pageno) FROM dbstat WHERE pagetype != 'internal'"
            " GROUP BY 1, 2 HAVING count(*) > 1"
        ).fetchall()
    for name, root in roots:
        yield case(f"root of {name} zeroed", partial(zero, page=root - 1))
    for name, kind, page in pages:
        yield case(f"a {kind} of {name} zeroed", partial(zero, page=page - 1))
    yield case("first page zeroed", lambda path: zero(path, 0))
    yield case("magic flipped", lambda path: _put(path, 3, b"\xff"))
    yield case("version flipped", lambda path: _put(path, 60, b"\x01"), lost=False)
    yield case("version of the format flipped", lambda path: _put(path, 18, b"\x03"))
    yield case("cut in half", cut)
    yield case("last page cut off", lambda path: cut(path, 1 - PAGE / path.stat().st_size))
    yield case("emptied", lambda path: cut(path, 0))
    yield case("removed", Path.unlink)
    yield case("replaced by garbage", replace_by(_GARBAGE))
    yield case("some bytes flipped", lambda path: flip(path, share=0.0001), lost=False)
    yield case("many bytes flipped", lambda path: flip(path, share=0.02))
    yield case("live: emptied", lambda path: cut(path, 0))
    index = (home / "live" / "state" / "journal.db-shm").read_bytes()
    last = int.from_bytes(index[16:20], sys.byteorder)  # frames of the current log round
    yield case("head zeroed", lambda path: zero(path, 0), "-wal")
    yield case("middle zeroed", lambda path: zero(path, last // 2), "-wal")
    yield case("tail zeroed", lambda path: zero(path, last - 1), "-wal")
    yield case("cut in half", lambda path: os.truncate(path, last // 2 * PAGE), "-wal")
    yield case("end cut off", lambda path: os.truncate(path, (last - 1) * PAGE), "-wal")
    yield case("emptied", lambda path: cut(path, 0), "-wal")
    yield case("removed", Path.unlink, "-wal")
    yield case("bytes flipped", flip, "-wal")
    yield case("replaced by garbage", replace_by(_GARBAGE), "-wal")
    yield case("zeroed", lambda path: zero(path, 0), "-shm", lost=False)
    yield case("replaced by garbage", replace_by(_GARBAGE), "-shm", lost=False)


def _put(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


_WAYS: Mapping[str, Damage] = {
    "emptied": lambda path: cut(path, 0),
    "cut in half": cut,
    "a page zeroed": lambda path: zero(path, 0),
    "bytes flipped": lambda path: flip(path, share=0.02),
    "garbage": replace_by(_GARBAGE),
}


@dataclass
class Kind:
    """A file of a home, and the damages to it that must be reported."""

    place: str
    lost: tuple[str, ...] = ()


_ALL = tuple(_WAYS)
_BROKEN = ("a page zeroed", "garbage")
_LINES = ("cut in half", "a page zeroed", "bytes flipped", "garbage")
"""The noticeable damages to text and to lines. An emptied file may have been emptied by a
person."""
FILES = (
    Kind("state/documents.json"),
    Kind("state/sends.log"),
    Kind("state/index.db"),
    Kind("state/catalogue.db"),
    Kind("state/memory.git/HEAD", lost=_ALL),
    Kind("state/channels/cli/unseen.json", lost=_ALL),
    Kind("sessions/fake_1.jsonl", lost=("a page zeroed", "bytes flipped")),
    Kind("workspace/memory/history.jsonl", lost=("a page zeroed", "bytes flipped", "garbage")),
    Kind("workspace/memory/HISTORY.md"),
    Kind("workspace/memory/MEMORY.md", lost=_BROKEN),
    Kind("workspace/memory/.applied"),
    Kind("workspace/memory/.cursor"),
    Kind("workspace/USER.md", lost=_BROKEN),
    Kind("workspace/SOUL.md", lost=_BROKEN),
    Kind("logs/audit.jsonl"),
)


def of_files() -> Iterator[Case]:
    """Yield the damages to other files."""
    for kind in FILES:
        for way, damage in _WAYS.items():
            yield Case(
                f"{kind.place}: {way}",
                "rested",
                partial(_damage_file, kind.place, damage),
                lost=way in kind.lost,
                in_chat=False,
            )


def _damage_file(place: str, damage: Damage, home: Path) -> None:
    assert (home / place).exists(), place
    damage(home / place)


# Campaign


class Running:
    """A gateway on a home, as a context manager."""

    def __init__(self, home: Path, *, holds: bool = False) -> None:
        self.channel, self.model = FakeChannel(), Model(holds=holds)
        settings = load_settings(home, {"NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0"})
        self._gateway = Gateway(
            settings,
            provider=self.model,
            learner=OfflineModel(),
            channels=(self.channel,),
            admit_everyone=True,
            chores=holds,
        )
        logger.remove()

    async def __aenter__(self) -> Running:
        ready = asyncio.Event()
        self._life = asyncio.ensure_future(self._gateway.run(on_ready=ready.set, signals=False))
        waiting = asyncio.ensure_future(ready.wait())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait((self._life, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._life.done():
            self._life.result()
            raise RuntimeError("it ended while it started")
        return self

    async def expect_answer(self, chat: str) -> None:
        """Send a message and wait for its answer. If a notice reports a damaged conversation,
        follow its instructions."""
        channel = self.channel
        event = await channel.say("Are you there?", chat, event_id="new")
        answer = asyncio.ensure_future(channel.answer_to(event, chat))
        while not answer.done():
            await asyncio.wait((answer,), timeout=0.2)
            if any(
                isinstance(one, Notice) and "Send /new to set" in one.text for one in channel.shown
            ):
                channel.shown.clear()
                await channel.say("/new", chat, event_id="renew")
        answer.result()

    async def __aexit__(self, *_: object) -> None:
        self._gateway.request_stop()
        await self._life


async def furnish(folder: Path) -> None:
    """Create the two homes in the folder."""
    home = folder / "rested"
    async with Running(home, holds=True) as nanobot:
        channel = nanobot.channel
        for turn in range(_TURNS):
            for chat in CHATS:
                await channel.ask(f"Message {turn} of chat {chat}: {'many words ' * 20}", chat)
        await channel.ask("remember that I like tea")
        for chat in CHATS:
            await channel.ask(f"/note The person in chat {chat} likes tea.", chat)
            await channel.ask("/new", chat)
            await channel.ask("And now?", chat)
        await channel.say(_WAITS, "4")
        await nanobot.model.held.wait()
        await channel.ask("The last one.")
        await asyncio.to_thread(until, home / "state" / "index.db")
        await asyncio.to_thread(copy_running, home, folder / "live")
    with closing(SqliteState(home / "state")) as state:
        state.write("facts", b'{"version": 1}', 0)
    shelf = home / "state" / "channels" / "cli" / "unseen.json"
    shelf.parent.mkdir(parents=True, exist_ok=True)
    shelf.write_text('{"version": 1, "parts": []}')


def until(path: Path) -> None:
    """Wait until the file exists."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


async def try_case(case: Case, folder: Path) -> Outcome:
    """Damage a copy of the home, start, and return the observations."""
    home, outcome = folder / "home", Outcome()
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(folder / case.home, home)
    case.damage(home)
    try:
        async with asyncio.timeout(PATIENCE), Running(home) as nanobot:
            for chat in CHATS:
                await nanobot.expect_answer(chat)
            await nanobot.channel.ask("remember that I like milk", "new")
            await asyncio.to_thread(_look_in, home)
            status = await asyncio.to_thread(_status, home)
            outcome.health = "; ".join(one["text"] for one in status["health"]["concerns"])
            own = [part.content for part in nanobot.channel.sent if not part.event_ids]
            outcome.told = " ".join(text for text in own if "⚠️" in text)
    except TimeoutError:
        outcome.faults.append("no answer")
    except Exception as error:  # noqa: BLE001 - each is a finding
        outcome.faults.append(f"{type(error).__name__}: {error}")
    if not outcome.faults and case.lost:
        outcome.faults += ["health does not say so"] if not outcome.health else []
        outcome.faults += ["the owner's chat does not"] if case.in_chat and not outcome.told else []
    return outcome


def _look_in(home: Path) -> None:
    """Connect a terminal, which shows the messages that it has not shown yet."""
    with socket.socket(socket.AF_UNIX) as terminal:
        terminal.connect(os.path.relpath(home / "state" / "gateway.sock"))
        look = {"op": "chat", "session": "cli:direct", "text": "", "id": "look", "watch": True}
        terminal.sendall(json.dumps(look).encode() + b"\n")
        terminal.settimeout(PATIENCE)
        terminal.recv(65_536)


def _status(home: Path) -> Mapping[str, Any]:
    with Client(home) as client:
        status = client.ask("status", {})
    assert isinstance(status, dict)
    return status


async def campaign(*, short: bool) -> Mapping[str, object]:
    """Try all damages, or a sample."""
    failures = list[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await furnish(folder)
        cases = [*of_journal(folder), *of_files()]
        chosen = cases[::6] if short else cases
        for case in chosen:
            outcome = await try_case(case, folder)
            failures += [f"{case.name}: {fault}" for fault in outcome.faults]
            if "--verbose" in sys.argv:
                print(case.name, outcome, flush=True)
    return {"damages": len(chosen), "failures": failures}


def main() -> None:
    """Run the command line. The exit code is 1 if something failed."""
    figures = asyncio.run(campaign(short="--short" in sys.argv))
    report("damage", figures)
    sys.exit(bool(figures["failures"]))


if __name__ == "__main__":
    main()
