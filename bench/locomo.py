"""How well search finds what was said: recall of evidence on conversations in LoCoMo's format.

Each conversation becomes an ordinary session file in a home of its own (both people as messages
with a name, captions of pictures as part of the text, one session), and the real `MemoryIndex` is
asked each question as the conversation's own agent would ask it, on the day of the last message.
Questions are never seen when indexing. A question counts with the share of its evidence turns that
are among the first k hits; the categories are LoCoMo's, 5 is left out of the overall figure, and
questions without evidence are skipped. Two baselines run on the same sessions:

- grep: messages by how many distinct words of the question they hold, newest first among equals;
- plain FTS5: `porter unicode61`, any word of the question, in the order of bm25;

both without stop words, which helps them.

    python bench/locomo.py [--data FILE] [--json]

Exit code 0 also where there is no file, which is said; 2 for a file that is not in this format.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log2
from pathlib import Path
from statistics import fmean

if not __package__:  # run as a file: the project is to be found, and its http.py not taken for http
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from nanobot.memory.search import Query, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.question import content_words
from nanobot.messages import Message
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.records import SUFFIX, Metadata, encode, stem_of
from nanobot.testing.clock import FakeClock

DEFAULT = Path("../shared/data/locomo-dev5.json")
DEPTHS = (5, 10, 20, 50)
OVERALL = (1, 2, 3, 4)
KEY = "locomo:conversation"
_EVIDENCE = re.compile(r"D(\d+):(\d+)")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence` holds the seqs of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages numbered from 1, and what is asked about them."""

    messages: tuple[Message, ...]
    questions: tuple[Question, ...]


Ranked = list[int]
"""Seqs of messages, best first."""


def conversations(path: Path) -> list[Conversation]:
    """Those in a file. Raises ValueError, KeyError or TypeError for another format."""
    samples = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(samples, list) or not samples:
        raise TypeError("the file is a list of conversations")
    return [_conversation(sample) for sample in samples]


def _conversation(sample: dict[str, dict[str, object] | list[dict[str, object]]]) -> Conversation:
    talk, asked = sample["conversation"], sample["qa"]
    if not isinstance(talk, dict) or not isinstance(asked, list):
        raise TypeError("a conversation is an object, its questions are a list")
    messages: list[Message] = []
    seqs: dict[tuple[int, int], int] = {}
    sessions = (re.fullmatch(r"session_(\d+)", name) for name in talk)
    for number in sorted(int(found[1]) for found in sessions if found):
        written = f"{talk[f'session_{number}_date_time']} +0000"
        begun = datetime.strptime(written, "%I:%M %p on %d %B, %Y %z")
        turns = talk[f"session_{number}"]
        if not isinstance(turns, list):
            raise TypeError("a session is a list of turns")
        for at, turn in enumerate(turns):
            text = str(turn["text"])
            if caption := turn.get("blip_caption"):
                text = f"{text} [image: {caption}]"
            moment = begun + timedelta(seconds=20 * at)
            seq = len(messages) + 1
            messages.append(Message("user", text, moment, seq, name=str(turn["speaker"])))
            seqs[_turn(str(turn["dia_id"]))[0]] = seq
    questions = []
    for item in asked:
        named = _turn(" ".join(map(str, item.get("evidence") or [])))  # type: ignore[call-overload]
        evidence = frozenset(seqs[turn] for turn in named if turn in seqs)
        if evidence:
            category = int(str(item["category"]))
            questions.append(Question(str(item["question"]), category, evidence))
    return Conversation(tuple(messages), tuple(questions))


def _turn(text: str) -> list[tuple[int, int]]:
    return [(int(session), int(turn)) for session, turn in _EVIDENCE.findall(text)]


def write_home(home: Path, conversation: Conversation) -> None:
    """The session file of a conversation."""
    folder = home / "sessions"
    folder.mkdir(parents=True)
    first, last = conversation.messages[0].timestamp, conversation.messages[-1].timestamp
    with (folder / f"{stem_of(KEY)}{SUFFIX}").open("w") as file:
        file.write(encode(Metadata(KEY, first, last, first_seq=1)))
        file.writelines(encode(message) for message in conversation.messages)


async def by_index(home: Path, conversation: Conversation) -> list[Ranked]:
    """The answers of the real index, in the order of the questions."""
    end = conversation.messages[-1].timestamp
    assert end is not None
    sources = Sources(
        SessionCatalogue(home / "sessions", FakeClock()), scope_of=lambda key, metadata: "owner"
    )
    index = MemoryIndex(home / "state" / "index.db", sources, FakeClock(end))
    try:
        answers = []
        for question in conversation.questions:
            query = Query(question.text, ("owner",), limit=max(DEPTHS))
            result = await index.search(query)
            answers.append([hit.passage.seq for hit in result.hits])
        return answers
    finally:
        await index.close()


def by_grep(conversation: Conversation) -> Iterator[Ranked]:
    """Messages by the number of distinct words that they share with the question."""
    texts = [message.content.lower() for message in conversation.messages]
    for question in conversation.questions:
        asked = content_words(_WORD.findall(question.text.lower()))
        shared = [(sum(w in text for w in asked), seq) for seq, text in enumerate(texts, 1)]
        yield [seq for count, seq in sorted(shared, reverse=True) if count][: max(DEPTHS)]


def by_plain_fts(conversation: Conversation) -> Iterator[Ranked]:
    """Messages by SQLite's own bm25, for any word of the question."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE plain USING fts5 (text, tokenize = 'porter unicode61')")
    rows = [(m.seq, m.content) for m in conversation.messages]
    db.executemany("INSERT INTO plain (rowid, text) VALUES (?, ?)", rows)
    for question in conversation.questions:
        words = content_words(_WORD.findall(question.text.lower()))
        found = db.execute(
            "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY rank LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), max(DEPTHS)),
        )
        yield [row[0] for row in found]
    db.close()


def figures(asked: Sequence[tuple[Question, Ranked]]) -> dict[str, float]:
    """Recall at each depth, mean reciprocal rank, and nDCG@10."""
    measured: dict[str, Callable[[Question, Ranked], float]] = {
        f"recall@{k}": lambda q, r, k=k: len(q.evidence.intersection(r[:k])) / len(q.evidence)  # type: ignore[misc]
        for k in DEPTHS
    }
    measured |= {"mrr": _reciprocal, "ndcg@10": _ndcg}
    return {name: round(fmean(f(q, r) for q, r in asked), 4) for name, f in measured.items()}


def _reciprocal(question: Question, ranked: Ranked) -> float:
    places = (place for place, seq in enumerate(ranked, 1) if seq in question.evidence)
    return 1 / next(places, float("inf"))


def _ndcg(question: Question, ranked: Ranked) -> float:
    gained = sum(
        1 / log2(place + 1) for place, seq in enumerate(ranked[:10], 1) if seq in question.evidence
    )
    best = sum(1 / log2(place + 1) for place in range(1, min(len(question.evidence), 10) + 1))
    return gained / best


def by_category(asked: Sequence[tuple[Question, Ranked]]) -> dict[str, dict[str, float]]:
    """Figures of each category and of 1 to 4 together."""
    groups = {str(c): [a for a in asked if a[0].category == c] for c in range(1, 6)}
    groups["1-4"] = [a for a in asked if a[0].category in OVERALL]
    return {name: figures(group) | {"questions": len(group)} for name, group in groups.items()
            if group}  # fmt: skip


def measure(samples: Sequence[Conversation]) -> dict[str, dict[str, dict[str, float]]]:
    """All figures, by way of searching."""
    ways: dict[str, list[tuple[Question, Ranked]]] = {"index": [], "grep": [], "fts5": []}
    for sample in samples:
        with tempfile.TemporaryDirectory() as folder:
            write_home(Path(folder), sample)
            answers = asyncio.run(by_index(Path(folder), sample))
        ways["index"] += zip(sample.questions, answers, strict=True)
        ways["grep"] += zip(sample.questions, by_grep(sample), strict=True)
        ways["fts5"] += zip(sample.questions, by_plain_fts(sample), strict=True)
    return {way: by_category(asked) for way, asked in ways.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Recall of search on LoCoMo conversations.")
    parser.add_argument("--data", type=Path, default=DEFAULT, help="a file in LoCoMo's format")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not options.data.exists():
        print(f"no file {options.data}: nothing measured; name one with --data", file=sys.stderr)
        return 0
    try:
        samples = conversations(options.data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{options.data} is not in LoCoMo's format: {error!r}", file=sys.stderr)
        return 2
    results = measure(samples)
    if options.json:
        recall = results["index"].get("1-4", {}).get("recall@10")
        print(json.dumps({"bench": "locomo", "recall@10": recall, **results}))
        return 0
    for way, groups in results.items():
        print(way)
        for name, numbers in groups.items():
            print(f"  {name:<4}", "  ".join(f"{k} {v:.3f}" for k, v in numbers.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
