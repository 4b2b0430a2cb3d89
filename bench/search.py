"""Measure a search in 50,000 messages, and indexing 200,000 for the first time.

Words have a natural distribution (few often, many seldom), and the most frequent ones are English
stop words, which make up about half of the text. People's messages have a median of 12 words and
replies one of 70, up to 600, both with a log-normal distribution. They are in forty sessions with
pauses. Questions are five content words from a message, as people ask for half-remembered texts. A
search is measured in CPU time. Ratios within one run are more reliable than milliseconds:

- `growth`: the median search among 50,000 messages against that among 5,000;
- `refresh_ratio`: a refresh when nothing changed against the first indexing;
- `note_ratio`: a search after a note was written against one when nothing changed.

With `--embeddings`, questions are also asked by meaning: the local model embeds them, vectors of
messages are random, and each question goes to an index with and to one without vectors.

    python bench/search.py [--messages N] [--indexed N] [--questions N] [--embeddings] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import accumulate
from math import log
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time

if not __package__:  # run as a file: find the project, and don't import bench/http.py as http
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from nanobot.clock import SystemClock
from nanobot.memory.languages import ENGLISH, LANGUAGES
from nanobot.memory.search import Query, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.vectors import LocalEmbedder, VectorWorker
from nanobot.messages import Message
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.records import SUFFIX, Metadata, encode, stem_of
from nanobot.testing.clock import DEFAULT_START, FakeClock

SESSIONS = 40
DIMENSIONS = 384
SHOWN = 30
"""Results that the agent requests at a time."""

_VOCABULARY = 40_000
_PERSON, _REPLY, _SPREAD, _LONGEST = 12, 70, 0.9, 600
"""Median words of a person's message and of a reply, the deviation of their logarithm, and the most
words."""
_STOP_WORDS = LANGUAGES[ENGLISH].words.split()


def texts(total: int) -> Iterator[str]:
    """Yield `total` messages, by turns of a person and an agent. Word number n has a frequency of
    about 1/n."""
    chance = random.Random(7)
    syllables = [c + v for c in "bcdfghklmnprst" for v in "aeiou"]
    rare = ("".join(chance.choices(syllables, k=chance.randint(2, 5))) for _ in range(_VOCABULARY))
    words = [*_STOP_WORDS, *rare]
    weights = list(accumulate(1 / (n + 3) for n in range(len(words))))
    for number in range(total):
        middle = log(_REPLY if number % 2 else _PERSON)
        length = min(1 + int(chance.lognormvariate(middle, _SPREAD)), _LONGEST)
        yield " ".join(chance.choices(words, cum_weights=weights, k=length))


def write_sessions(folder: Path, total: int) -> list[str]:
    """Write session files of `total` messages in all. Return every hundredth text."""
    folder.mkdir(parents=True)
    begin = DEFAULT_START - timedelta(days=1000)
    each = -(-total // SESSIONS)
    kept = []
    lines: list[str] = []
    for number, text in enumerate(texts(total)):
        session, seq = divmod(number, each)
        moment = begin + timedelta(minutes=seq + 200 * (seq // 20))
        if seq == 0:
            key = f"bench:{session}"
            lines = [encode(Metadata(key, begin, begin, first_seq=1))]
        message = Message("assistant" if seq % 2 else "user", text, moment, seq + 1,
                          turn_id=f"{session}/{seq // 2}")  # fmt: skip
        lines.append(encode(message))
        if seq == each - 1 or number == total - 1:
            (folder / f"{stem_of(f'bench:{session}')}{SUFFIX}").write_text("".join(lines))
        if number % 100 == 0:
            kept.append(text)
    return kept


def questions(known: list[str], number: int) -> list[str]:
    """Return questions of five content words from some message."""
    chance, stop = random.Random(11), set(_STOP_WORDS)
    contents = [[word for word in text.split() if word not in stop] for text in known]
    usable = [words for words in contents if len(words) >= 5]
    return [" ".join(chance.sample(chance.choice(usable), 5)) for _ in range(number)]


class PassagesByChance(LocalEmbedder):
    """The local model for questions, and random vectors for passages."""

    _chance = random.Random(5)

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        if question:
            return await super().embed(texts, question=True)
        return [list(map(float, array("b", self._chance.randbytes(DIMENSIONS)))) for _ in texts]


def open_index(home: Path, name: str = "state", *, by_meaning: bool = False) -> MemoryIndex:
    """Open the index of a home, in the folder of that name."""
    sources = Sources(
        SessionCatalogue(home / "sessions", FakeClock(), home / "state" / "catalogue.db"),
        scope_of=lambda key, metadata: "owner",
        memories=lambda: [("owner", home / "memory")],
    )
    worker = VectorWorker(SystemClock())
    embedder = PassagesByChance(worker) if by_meaning else None
    return MemoryIndex(home / name / "index.db", sources, FakeClock(), embedder, worker)


async def searching(total: int, number: int) -> dict[str, float]:
    """Return the milliseconds of searches among `total` messages, of CPU except for `added`."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        known = write_sessions(home / "sessions", total)
        index = open_index(home)
        await index.refresh()
        times = []
        for text in questions(known, number):
            begun = process_time()
            found = await index.search(Query(text, ("owner",), limit=SHOWN))
            times.append(1000 * (process_time() - begun))
            assert found.hits
        added = []
        path = next((home / "sessions").glob("*.jsonl"))
        for seq in range(10_000_000, 10_000_020):
            with path.open("a") as file:
                file.write(encode(Message("user", "one more word", DEFAULT_START, seq)))
            begun = perf_counter()
            await index.refresh()
            added.append(1000 * (perf_counter() - begun))
        noted = [await note_and_search(home, index, text) for text in questions(known, 20)]
        await index.close()
    return {
        "p50": median(times),
        "p95": quantiles(times, n=20)[-1],
        "added": median(added),
        "noted": median(noted),
    }


async def searching_by_meaning(total: int, number: int) -> dict[str, float]:
    """Return the milliseconds of searches among `total` messages with vectors, and the ratio to
    searches without, which alternate with them."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        known = write_sessions(home / "sessions", total)
        plain, index = open_index(home), open_index(home, "vectors", by_meaning=True)
        for one in (plain, index):
            await one.refresh()
            await one.embed()
        assert (await index.stats()).vectors == total
        without, times = list[float](), list[float]()
        for text in questions(known, number):
            for one, spent in ((plain, without), (index, times)):
                begun = perf_counter()
                await one.search(Query(text, ("owner",)))
                spent.append(1000 * (perf_counter() - begun))
        worker, database = VectorWorker(SystemClock()), str(home / "vectors" / "index.db")
        embedding, looking = list[float](), list[float]()
        for text in questions(known, number):
            begun = perf_counter()
            (vector,) = await LocalEmbedder(worker).embed([text], question=True)
            embedded = perf_counter()
            await worker.ask(
                "nearest", path=database, streams=list(range(1, SESSIONS + 1)),
                vector=array("f", vector).tobytes(), limit=200,
            )  # fmt: skip
            embedding.append(1000 * (embedded - begun))
            looking.append(1000 * (perf_counter() - embedded))
        for closing in (plain, index, worker):
            await closing.close()
    return {
        "meaning_ratio": median(times) / median(without),
        "meaning_p50_ms": median(times),
        "meaning_p95_ms": quantiles(times, n=20)[-1],
        "question_embedded_ms": median(embedding),
        "vectors_compared_ms": median(looking),
    }


async def note_and_search(home: Path, index: MemoryIndex, text: str) -> float:
    """Return the milliseconds of CPU of a search after a line was added to a note."""
    note = home / "memory" / "2026-03-01.md"
    note.parent.mkdir(exist_ok=True)
    with note.open("a") as file:
        file.write(f"- 09:00 {text}\n")
    begun = process_time()
    await index.search(Query(text, ("owner",)))
    return 1000 * (process_time() - begun)


async def indexing(total: int) -> dict[str, float]:
    """Return the seconds for the first indexing of `total` messages and for a refresh after it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_sessions(home / "sessions", total)
        index = open_index(home)
        begun = perf_counter()
        await index.refresh()
        first = perf_counter() - begun
        assert (await index.stats()).messages == total
        again = []
        for _ in range(20):
            begun = perf_counter()
            await index.refresh()
            again.append(perf_counter() - begun)
        await index.close()
        size = (home / "state" / "index.db").stat().st_size
    return {"first": first, "again": median(again), "megabytes": size / 1e6}


def measure(messages: int, indexed: int, number: int) -> dict[str, float]:
    """Return all figures."""
    small = asyncio.run(searching(max(messages // 10, SESSIONS), number))
    large = asyncio.run(searching(messages, number))
    built = asyncio.run(indexing(indexed))
    return {
        "growth": large["p50"] / small["p50"],
        "refresh_ratio": built["again"] / built["first"],
        "note_ratio": large["noted"] / large["p50"],
        "search_p50_ms": large["p50"],
        "search_p95_ms": large["p95"],
        "one_message_added_ms": large["added"],
        "search_after_note_ms": large["noted"],
        "first_indexing_s": built["first"],
        "refresh_unchanged_ms": 1000 * built["again"],
        "index_megabytes": built["megabytes"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What search costs.")
    parser.add_argument("--messages", type=int, default=50_000, help="messages searched")
    parser.add_argument("--indexed", type=int, default=200_000, help="messages indexed at once")
    parser.add_argument("--questions", type=int, default=200, help="searches measured")
    parser.add_argument("--embeddings", action="store_true", help="with the extra's local model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    messages, asked = max(options.messages, SESSIONS), max(options.questions, 20)
    figures = measure(messages, max(options.indexed, SESSIONS), asked)
    if options.embeddings:
        figures |= asyncio.run(searching_by_meaning(messages, asked))
    if options.json:
        print(json.dumps({"bench": "search"} | {k: round(v, 4) for k, v in figures.items()}))
    else:
        for name, value in figures.items():
            print(f"{name:24}{value:10.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
