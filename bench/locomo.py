"""Measure how well search finds earlier messages: recall of evidence on conversations in LoCoMo's
format.

Each conversation becomes an ordinary session file in its own home (both people as messages with a
name, captions of pictures as part of the text, one session), and the real `MemoryIndex` gets each
question as from the conversation's own agent on the day of the last message. Questions are never
indexed. The score of a question is the share of its evidence turns among the first k hits. The
categories are LoCoMo's, 5 is left out of the overall figure, and questions without evidence are
skipped. `visible` is the share of its evidence turns whose text, or the first 200 characters of it,
the tool `search_memory` returns for the unchanged question without another argument. Two baselines
run on the same sessions:

- grep: messages by number of distinct words of the question, newest first among equals;
- plain FTS5: `porter unicode61`, any word of the question, in the order of bm25;

both without stop words, which helps them.

In a chat with an agent every second message is the agent's. `--shape` adds a reply after each
message: `short` a few words ("Okay, noted."), `echo` most of the message again ("You said that …").
The evidence is still the people's messages. `replies` lets the agent say half of the evidence, by a
checksum of its text: as the reply to the message before, or to "Go on." after another reply or a
pause. Hits that are not messages don't count. With `--facts`, the memory has an entry for each
session, as consolidation writes it, with the summary and the observations in the file as key facts,
but not with the turns that these name.

    python bench/locomo.py [--data FILE] [--shape none|short|echo|replies|all]
        [--facts] [--embeddings] [--json]

The exit code is 0 also without a file, which is reported, and 2 for a file in another format."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log2
from pathlib import Path
from statistics import fmean
from typing import NamedTuple
from zlib import crc32

if not __package__:  # run as a file: find the project, and don't import bench/http.py as http
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from msgspec.structs import replace

from nanobot.clock import SystemClock
from nanobot.memory.analysis import content_words
from nanobot.memory.history import HistoryEntry
from nanobot.memory.history import encode as encode_entry
from nanobot.memory.search import Query, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.tool import SearchArguments, SearchMemory
from nanobot.memory.search.vectors import LocalEmbedder, VectorWorker
from nanobot.messages import Message
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.records import SUFFIX, Metadata, encode, stem_of
from nanobot.testing.clock import FakeClock
from nanobot.tooling import TurnContext

DEFAULT = Path("../shared/data/locomo-dev5.json")
DEPTHS = (5, 10, 20, 50)
OVERALL = (1, 2, 3, 4)
KEY = "locomo:conversation"
MEMORY, HISTORY = "workspace/memory", "workspace/memory/history.jsonl"
_EVIDENCE = re.compile(r"D(\d+):(\d+)")
_WORD = re.compile(r"[^\W_]+")
_VISIBLE = 200
SHAPES = ("none", "short", "echo", "replies")
_SHORT = (
    "Okay, noted.", "Got it!", "Thanks for telling me.", "That sounds great!", "I see.",
    "I'll keep that in mind.", "Interesting, tell me more?", "Sure, anything else?",
)  # fmt: skip
_ECHO = (
    "Got it: {}", "You said that {} Thanks for telling me!", "So {} I'll remember that.",
    "Noted. {} Is there anything else?",
)  # fmt: skip
_GO_ON, _TURN = "Go on.", timedelta(minutes=5)
_YOU = {"i": "you", "i'm": "you're", "i've": "you've", "my": "your", "me": "you", "am": "are"}


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence` holds the seqs of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The record of a session: its first and last message, a summary, and facts."""

    first: int
    last: int
    summary: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages numbered from 1, the questions about them, and the records of the sessions."""

    messages: tuple[Message, ...]
    questions: tuple[Question, ...]
    stretches: tuple[Stretch, ...] = ()

    def renumber(self, messages: Iterable[Message], seqs: Mapping[int, int]) -> Conversation:
        """Return a conversation with these messages. `seqs` has the new number of each message."""
        questions = (
            Question(one.text, one.category, frozenset(map(seqs.__getitem__, one.evidence)))
            for one in self.questions
        )
        stretches = (
            Stretch(seqs[one.first], seqs[one.last], one.summary, one.facts)
            for one in self.stretches
        )
        return Conversation(tuple(messages), tuple(questions), tuple(stretches))


Ranked = list[int]
"""Seqs of messages, best first."""


class Answer(NamedTuple):
    """The hits for a question. `visible` is the share of its evidence that a model sees."""

    question: Question
    ranked: Ranked
    visible: float | None = None

    def recall(self, depth: int) -> float:
        """Return the share of the evidence among the first hits."""
        evidence = self.question.evidence
        return len(evidence.intersection(self.ranked[:depth])) / len(evidence)


def conversations(path: Path) -> list[Conversation]:
    """Read a file. Raise ValueError, KeyError or TypeError for another format."""
    samples = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(samples, list) or not samples:
        raise TypeError("the file is a list of conversations")
    return [_conversation(sample) for sample in samples]


def _conversation(sample: dict[str, dict[str, object] | list[dict[str, object]]]) -> Conversation:
    talk, asked = sample["conversation"], sample["qa"]
    if not isinstance(talk, dict) or not isinstance(asked, list):
        raise TypeError("a conversation is an object, its questions are a list")
    messages, stretches = list[Message](), list[Stretch]()
    seqs: dict[tuple[int, int], int] = {}
    sessions = (re.fullmatch(r"session_(\d+)", name) for name in talk)
    for number in sorted(int(found[1]) for found in sessions if found):
        written = f"{talk[f'session_{number}_date_time']} +0000"
        begun = datetime.strptime(written, "%I:%M %p on %d %B, %Y %z")
        turns = talk[f"session_{number}"]
        if not isinstance(turns, list):
            raise TypeError("a session is a list of turns")
        first = len(messages) + 1
        for at, turn in enumerate(turns):
            text = str(turn["text"])
            if caption := turn.get("blip_caption"):
                text = f"{text} [image: {caption}]"
            moment = begun + timedelta(seconds=20 * at)
            seq = len(messages) + 1
            messages.append(Message("user", text, moment, seq, name=str(turn["speaker"])))
            seqs[_turn(str(turn["dia_id"]))[0]] = seq
        summary, facts = _recorded(sample, number)
        stretches.append(Stretch(first, len(messages), summary, facts))
    questions = []
    for item in asked:
        named = _turn(" ".join(map(str, item.get("evidence") or [])))  # type: ignore[call-overload]
        evidence = frozenset(seqs[turn] for turn in named if turn in seqs)
        if evidence:
            category = int(str(item["category"]))
            questions.append(Question(str(item["question"]), category, evidence))
    return Conversation(tuple(messages), tuple(questions), tuple(stretches))


def _recorded(sample: Mapping[str, object], number: int) -> tuple[str, tuple[str, ...]]:
    """Return the summary and the facts that the file has for a session, if any."""
    summaries, observed = sample.get("session_summary"), sample.get("observation")
    summary = summaries.get(f"session_{number}_summary") if isinstance(summaries, dict) else None
    people = observed.get(f"session_{number}_observation") if isinstance(observed, dict) else None
    facts = (fact for of_one in (people or {}).values() for fact, *_ in of_one)
    return str(summary or ""), tuple(map(str, facts))


def _turn(text: str) -> list[tuple[int, int]]:
    return [(int(session), int(turn)) for session, turn in _EVIDENCE.findall(text)]


def add_replies(conversation: Conversation, shape: str) -> Conversation:
    """Return the conversation with the agent's replies. `none` leaves it unchanged."""
    if shape == "none":
        return conversation
    if shape == "replies":
        return _as_replies(conversation)
    messages: list[Message] = []
    for place, said in enumerate(conversation.messages):
        templates = _SHORT if shape == "short" else _ECHO
        reply = templates[place % len(templates)].format(_echo(said.content))
        assert said.timestamp is not None
        moment = said.timestamp + timedelta(seconds=10)
        messages.append(replace(said, seq=2 * place + 1))
        messages.append(Message("assistant", reply, moment, 2 * place + 2))
    return conversation.renumber(
        messages, {one.seq: 2 * one.seq - 1 for one in conversation.messages}
    )


def _as_replies(conversation: Conversation) -> Conversation:
    """Return the conversation with half of the evidence said by the agent."""
    evidence = frozenset[int]().union(*(one.evidence for one in conversation.questions))
    messages, seqs = list[Message](), dict[int, int]()
    for said in conversation.messages:
        text, moment = said.content, said.timestamp
        is_reply = said.seq in evidence and crc32(text.encode()) % 2 == 0
        if is_reply:
            assert moment is not None
            before = messages[-1].timestamp if messages and messages[-1].role == "user" else None
            if before is None or before < moment - _TURN:
                asked = moment - timedelta(seconds=10)
                messages.append(Message("user", _GO_ON, asked, len(messages) + 1))
        seqs[said.seq] = seq = len(messages) + 1
        reply = Message("assistant", text, moment, seq)
        messages.append(reply if is_reply else replace(said, seq=seq))
    return conversation.renumber(messages, seqs)


def _echo(text: str) -> str:
    """Return most of a message, in the second person."""
    words = text.split()
    return " ".join(_YOU.get(word.lower(), word) for word in words[: max(12, len(words) * 3 // 4)])


def write_home(home: Path, conversation: Conversation, *, has_facts: bool = False) -> None:
    """Write the session file of a conversation, and with `has_facts` its history."""
    folder = home / "sessions"
    folder.mkdir(parents=True)
    first, last = conversation.messages[0].timestamp, conversation.messages[-1].timestamp
    with (folder / f"{stem_of(KEY)}{SUFFIX}").open("w") as file:
        file.write(encode(Metadata(KEY, first, last, first_seq=1)))
        file.writelines(encode(message) for message in conversation.messages)
    (home / MEMORY).mkdir(parents=True)
    with (home / HISTORY).open("wb") as lines:
        for cursor, one in enumerate(conversation.stretches if has_facts else (), 1):
            when = conversation.messages[one.last - 1].timestamp
            assert when is not None
            entry = HistoryEntry(
                cursor, when, "consolidation", KEY, one.first, one.last, one.summary, one.facts
            )
            lines.write(encode_entry(entry))


@asynccontextmanager
async def open_filled_index(
    home: Path, conversation: Conversation, by_meaning: bool
) -> AsyncIterator[MemoryIndex]:
    """Open and fill the real index of a conversation's home on its last day. Close it at the
    end."""
    end = conversation.messages[-1].timestamp
    assert end is not None
    sources = Sources(
        SessionCatalogue(home / "sessions", FakeClock()),
        scope_of=lambda key, metadata: "owner",
        memories=lambda: [("owner", home / MEMORY)],
    )
    worker = VectorWorker(SystemClock())
    embedder = LocalEmbedder(worker) if by_meaning else None
    index = MemoryIndex(home / "state" / "index.db", sources, FakeClock(end), embedder, worker)
    try:
        await index.refresh()
        await index.embed()
        yield index
    finally:
        await index.close()


async def by_index(home: Path, conversation: Conversation, by_meaning: bool) -> list[Answer]:
    """Return the results of the real index and of the real tool, in the order of the questions."""
    caller = TurnContext("locomo", "asking", "locomo:asking", "turn")
    answers = []
    async with open_filled_index(home, conversation, by_meaning) as index:
        tool = SearchMemory(index, lambda scope: (scope,))
        for question in conversation.questions:
            query = Query(question.text, ("owner",), source="message", limit=max(DEPTHS))
            result = await index.search(query)
            shown = await tool(SearchArguments(query=question.text), caller)
            texts = [conversation.messages[seq - 1].content for seq in question.evidence]
            ranked = [hit.passage.seq for hit in result.hits]
            answers.append(Answer(question, ranked, _visible(texts, shown.text)))
    return answers


def _visible(texts: Iterable[str], shown: str) -> float:
    """Return the share of `texts` that are in a result, at least with their first 200
    characters."""
    result = " ".join(shown.replace("\n  | ", " ").split())
    return fmean(" ".join(text.split())[:_VISIBLE].strip() in result for text in texts)


def by_grep(conversation: Conversation) -> Iterator[Ranked]:
    """Rank messages by the number of distinct words that they share with the question."""
    texts = [message.content.lower() for message in conversation.messages]
    for question in conversation.questions:
        asked = content_words(_WORD.findall(question.text.lower()))
        shared = [(sum(w in text for w in asked), seq) for seq, text in enumerate(texts, 1)]
        yield [seq for count, seq in sorted(shared, reverse=True) if count][: max(DEPTHS)]


def by_plain_fts(conversation: Conversation) -> Iterator[Ranked]:
    """Rank messages by SQLite's own bm25, for any word of the question."""
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


def figures(answers: Sequence[Answer]) -> dict[str, float]:
    """Return recall at each depth, mean reciprocal rank, nDCG@10, and the visible share."""
    measured = {f"recall@{k}": [one.recall(k) for one in answers] for k in DEPTHS}
    measured["mrr"] = [_reciprocal(one.question, one.ranked) for one in answers]
    measured["ndcg@10"] = [_ndcg(one.question, one.ranked) for one in answers]
    if seen := [one.visible for one in answers if one.visible is not None]:
        measured["visible"] = seen
    return {name: round(fmean(numbers), 4) for name, numbers in measured.items()}


def _reciprocal(question: Question, ranked: Ranked) -> float:
    places = (place for place, seq in enumerate(ranked, 1) if seq in question.evidence)
    return 1 / next(places, float("inf"))


def _ndcg(question: Question, ranked: Ranked) -> float:
    gained = sum(
        1 / log2(place + 1) for place, seq in enumerate(ranked[:10], 1) if seq in question.evidence
    )
    best = sum(1 / log2(place + 1) for place in range(1, min(len(question.evidence), 10) + 1))
    return gained / best


Figures = dict[str, dict[str, float]]
"""Figures by group of questions."""


def by_category(answers: Sequence[Answer]) -> Figures:
    """Return the figures of each category and of 1 to 4 together."""
    groups = {str(c): [one for one in answers if one.question.category == c] for c in range(1, 6)}
    groups["1-4"] = [one for one in answers if one.question.category in OVERALL]
    return {name: figures(group) | {"questions": len(group)} for name, group in groups.items()
            if group}  # fmt: skip


def measure(
    samples: Sequence[Conversation], by_meaning: bool = False, *, has_facts: bool = False
) -> dict[str, Figures]:
    """Return all figures by search method.

    The index's are also by conversation, for categories 1 to 4, so that parameters can be
    chosen on some and checked on the others."""
    ways: dict[str, list[Answer]] = {"index": [], "grep": [], "fts5": []}
    each: Figures = {}
    for number, sample in enumerate(samples, 1):
        with tempfile.TemporaryDirectory() as folder:
            write_home(Path(folder), sample, has_facts=has_facts)
            answers = asyncio.run(by_index(Path(folder), sample, by_meaning))
        ways["index"] += answers
        ways["grep"] += map(Answer, sample.questions, by_grep(sample))
        ways["fts5"] += map(Answer, sample.questions, by_plain_fts(sample))
        each[str(number)] = by_category(answers).get("1-4", {})
    return {way: by_category(found) for way, found in ways.items()} | {"conversations": each}


def _headline(results: dict[str, Figures]) -> dict[str, float | None]:
    overall = results["index"].get("1-4", {})
    return {name: overall.get(name) for name in ("recall@10", "visible")}


def _print_table(results: dict[str, dict[str, Figures]]) -> None:
    columns = [*(f"recall@{k}" for k in DEPTHS), "mrr", "ndcg@10", "visible"]
    print(f"{'shape':<8}", *(f"{name:>9}" for name in columns))
    for shape, found in results.items():
        overall = found["index"].get("1-4", {})
        print(f"{shape:<8}", *(f"{overall.get(name, 0.0):9.3f}" for name in columns))


def main() -> int:
    parser = argparse.ArgumentParser(description="Recall of search on LoCoMo conversations.")
    parser.add_argument("--data", type=Path, default=DEFAULT, help="a file in LoCoMo's format")
    parser.add_argument("--shape", choices=(*SHAPES, "all"), default="none")
    parser.add_argument("--embeddings", action="store_true", help="with the extra's local model")
    parser.add_argument("--facts", action="store_true", help="with the sessions' recorded facts")
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
    shapes = SHAPES if options.shape == "all" else (options.shape,)
    by_shape = {
        shape: measure(
            [add_replies(sample, shape) for sample in samples],
            options.embeddings,
            has_facts=options.facts,
        )
        for shape in shapes
    }
    results = by_shape[shapes[0]]
    if options.json:
        line = {"bench": "locomo", "shape": shapes[0], **_headline(results), **results}
        others = {shape: _headline(found) for shape, found in by_shape.items()}
        print(json.dumps(line | ({"shapes": others} if len(shapes) > 1 else {})))
        return 0
    if len(shapes) > 1:
        _print_table(by_shape)
        return 0
    for way, groups in results.items():
        print(way)
        for name, numbers in groups.items():
            print(f"  {name:<4}", "  ".join(f"{k} {v:.3f}" for k, v in numbers.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
