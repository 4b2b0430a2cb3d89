"""Measure the list of conversations and the search in their messages, in CPU time.

python -m bench.listing [--conversations 10000] [--messages 50000] [--json]"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

from bench.common import median
from bench.reporting import report
from nanobot.channel import Operation
from nanobot.clock import SystemClock
from nanobot.gateway.conversations import Conversations
from nanobot.memory.scopes import Scopes
from nanobot.memory.search import Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, Metadata, encode, stem_of

ROUNDS = 9
_SYLLABLES = [
    "ba",
    "be",
    "bi",
    "bo",
    "bu",
    "da",
    "de",
    "di",
    "do",
    "du",
    "ka",
    "ke",
    "ki",
    "ko",
    "ku",
    "la",
    "le",
    "li",
    "lo",
    "lu",
]
_RARE = [f"{one}{end}" for one, end in product(_SYLLABLES, ("nner", "xter", "zling", "mport"))]
_COMMON = ["the", "you", "and", "weather", "house", "project", "table", "meeting", "tomorrow"]
_LISTED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "list of 50 [ms] (target <= 50)": ("list", {"limit": 50}),
    "list of 50 of the owner [ms] (target <= 50)": ("list", {"limit": 50, "scope": "owner"}),
}
_QUERIES = ("banner", "banner dexter", "the", "the you weather", "banne", "tomorr", "nowhere", "b")


def write_conversations(folder: Path, conversations: int, messages: int) -> None:
    """Write so many conversations of the owner, with so many messages together."""
    folder.mkdir()
    chance, moment = random.Random(1), datetime(2025, 1, 1, tzinfo=UTC)
    for number in range(conversations):
        key, moment = f"web:{number:012x}", moment + timedelta(minutes=37)
        facts = {"scope": "owner", "opening": {"seq": 1, "text": "the first words"}}
        lines = [encode(Metadata(key, moment, moment, first_seq=1, metadata=facts))]
        for seq in range(1, messages // conversations + 1):
            text = " ".join(_words(chance))
            said = Message("user" if seq % 2 else "assistant", text, moment, seq, turn_id="t")
            lines.append(encode(said))
        (folder / f"{stem_of(key)}{SUFFIX}").write_text("".join(lines))


def _words(chance: random.Random) -> Iterator[str]:
    for _ in range(chance.randint(8, 40)):
        yield chance.choice(_COMMON if chance.random() < 0.4 else _RARE)


async def cpu_of(operation: Operation, arguments: Mapping[str, object]) -> float:
    begun = time.process_time()
    await operation(arguments)
    return 1000 * (time.process_time() - begun)


async def measure(home: Path, conversations: int, messages: int) -> dict[str, float]:
    write_conversations(home / "sessions", conversations, messages)
    clock = SystemClock()
    catalogue = SessionCatalogue(home / "sessions", clock, home / "catalogue.db")
    sessions = SessionManager(catalogue, clock)
    scopes = Scopes(lambda channel, _: channel == "web")
    index = MemoryIndex(home / "index.db", Sources(catalogue, scopes.of_session), clock)
    await index.refresh()
    find = index.find_messages
    table = Conversations(sessions, scopes, find, lambda _: Root(home)).table()
    figures = dict[str, float]()
    for label, (name, arguments) in _LISTED.items():
        found = list[float]()
        for _ in range(ROUNDS):
            catalogue.expire()  # as after a change of any conversation
            found.append(await cpu_of(table[f"conversations.{name}"], arguments))
        figures[label] = median(found)
    for query in _QUERIES:
        arguments = {"query": query, "scope": "owner"}
        search = table["conversations.search"]
        found = [await cpu_of(search, arguments) for _ in range(ROUNDS)]
        figures[f"search for “{query}” [ms] (target <= 150)"] = median(found)
    await index.close()
    await sessions.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="The list of conversations, and their search.")
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        figures = asyncio.run(measure(Path(home), options.conversations, options.messages))
    report("listing", figures)


if __name__ == "__main__":
    main()
