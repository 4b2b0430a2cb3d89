"""Measure search for everyday sentences in other languages: hit@3 on ten questions for each.

The data is a text: `# language`, then ten lines `message | question`, then lines `- message`
without a question. A question uses another form of the word, as people do. Each language has its
own home, in which all messages are one conversation in a random order. `mixed` is one home with a
conversation for each language.

    python -m bench.languages [--data FILE] [--misses] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from bench.reporting import report
from nanobot.memory.search import Query, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.messages import Message
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.records import SUFFIX, Metadata, encode, stem_of
from nanobot.testing.clock import DEFAULT_START, FakeClock

DATA = Path(__file__).resolve().parents[1] / "tests/memory/search/languages.txt"
DEPTH = 3


class Language(Struct, frozen=True):
    """`probes` are pairs of a message and a question. `others` are additional messages."""

    probes: tuple[tuple[str, str], ...]
    others: tuple[str, ...]


Languages = Mapping[str, Language]


def languages(path: Path = DATA) -> dict[str, Language]:
    """Read a file, by the name of the language."""
    found = {}
    for block in path.read_text(encoding="utf-8").split("# ")[1:]:
        name, *lines = block.strip().splitlines()
        probes = [line.split(" | ") for line in lines if " | " in line]
        others = tuple(line[2:] for line in lines if line.startswith("- "))
        found[name] = Language(tuple((message, asked) for message, asked in probes), others)
    return found


async def find_missed(of: Languages) -> dict[str, list[str]]:
    """Return for each language the questions whose message is not among the first three hits, in
    one home for all."""
    with tempfile.TemporaryDirectory() as folder:
        sessions = Path(folder) / "sessions"
        sessions.mkdir()
        for name, language in of.items():
            _write(sessions, name, language)
        catalogue = SessionCatalogue(sessions, FakeClock())
        sources = Sources(catalogue, lambda key, metadata: "owner", lambda: ())
        index = MemoryIndex(Path(folder) / "index.db", sources, FakeClock())
        found: dict[str, list[str]] = {}
        for name, language in of.items():
            found[name] = []
            for message, question in language.probes:
                hits = (await index.search(Query(question, ("owner",), limit=DEPTH))).hits
                if message not in [hit.passage.text for hit in hits]:
                    found[name].append(question)
        await index.close()
    return found


def _write(folder: Path, name: str, language: Language) -> None:
    texts = [message for message, _ in language.probes] + list(language.others)
    random.Random(3).shuffle(texts)
    lines = [encode(Metadata(f"cli:{name}", DEFAULT_START, DEFAULT_START, first_seq=1))]
    for number, text in enumerate(texts, 1):
        moment = DEFAULT_START - timedelta(days=30) + timedelta(minutes=4 * number)
        moment += timedelta(hours=3 * (number // 8))  # a pause now and then
        lines.append(encode(Message("user", text, moment, number)))
    (folder / f"{stem_of(f'cli:{name}')}{SUFFIX}").write_text("".join(lines))


async def measure(of: Languages, *, show: bool = False) -> dict[str, object]:
    """Return the number of answered questions of each language, in its own home and in the shared
    one."""
    figures: dict[str, object] = {}
    mixed = await find_missed(of)
    for name, language in of.items():
        alone = (await find_missed({name: language}))[name]
        total = len(language.probes)
        figures[name] = f"{total - len(alone)}/{total} (mixed: {total - len(mixed[name])})"
        if show:
            print(name, *alone, sep="\n  ", file=sys.stderr)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--misses", action="store_true", help="show the questions not answered")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    report("languages", asyncio.run(measure(languages(options.data), show=options.misses)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
