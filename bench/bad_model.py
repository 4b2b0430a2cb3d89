"""Test memory against a model that answers wrongly in every consolidation and Dream.

Each kind of wrong answer gets its own home with 20 facts: a conversation is consolidated with it,
then Dream runs with it. No known fact may be lost, negated or altered without the person's
confirmation, no junk may be remembered, and nothing may block the event loop for more than 200 ms.
Random answers are measured as well, and a good model's, which must all be stored.

    python -m bench.bad_model [--only NAME] [--random N] [--seed N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from loguru import logger

from bench.bad_answers import FACTS, MEMORY, NEW, TALK, Answers, add, kinds, random_kinds
from bench.common import Instant
from bench.good_answers import GOOD
from bench.reporting import report
from nanobot.agent.hooks import Hooks
from nanobot.app.base import Base, Models
from nanobot.app.memory import MemoryParts
from nanobot.app.services import Agent
from nanobot.app.tools import Toolbox
from nanobot.config.load import load_settings
from nanobot.memory.scopes import OWNER
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel

LONGEST_STALL = 0.2
"""Seconds that the event loop may be blocked."""
KEY = "fake:1"
_LONG_TERM, _USER, _SOUL = "memory/MEMORY.md", "USER.md", "SOUL.md"
_SEEN = "abcdefghijklmnopqrstuvwxyz"


class WrongModel:
    """Model that always gives the same answers."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        answers, head = self.answers, prompt.messages[0].text
        if head.startswith("# Dream, phase 1"):
            return Reply(_json(answers.phase1))
        if head.startswith("# Dream, phase 2"):
            return Reply(_json(answers.phase2))
        if answers.text:
            return Reply(answers.text)
        return Reply("", (ToolCall("1", "save_memory", answers.save_memory()),))

    async def close(self) -> None:
        """Do nothing."""


def _json(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


class Home:
    """A home with a memory, and a conversation with the messages of `talk`."""

    def __init__(self, folder: Path, model: WrongModel, memory: str, talk: Iterable[str]) -> None:
        self.workspace, self.talk = folder / "workspace", tuple(talk)
        (self.workspace / "memory").mkdir(parents=True)
        (self.workspace / _LONG_TERM).write_text(memory)
        self.clock = FakeClock()
        settings = load_settings(folder, {"NANOBOT_MEMORY__WINDOW": "1000"})
        self.base = Base(settings, self.clock, (FakeChannel("fake"),), admit_everyone=True)
        models = Models(self.base, Instant(), model)
        self.parts = MemoryParts(self.base, models.learner)
        toolbox = Toolbox(self.base, models, self.parts, ())
        self.agent = Agent(self.base, models, self.parts, toolbox, Hooks(self.base.screen, ()))
        self.before = self.files()

    def files(self) -> dict[str, str]:
        """Return the texts of the memory files by name."""
        found = sorted((*self.workspace.glob("*.md"), *(self.workspace / "memory").glob("*")))
        return {
            str(path.relative_to(self.workspace)): path.read_text(errors="surrogateescape")
            for path in found
            if path.is_file()
        }

    async def consolidate(self) -> None:
        """Store the conversation and consolidate it."""
        sessions = self.base.stores.sessions
        session = await sessions.get_or_create(KEY)
        for text in self.talk:
            turn = f"t{session.next_seq}"
            session.add_message(Message("user", text, self.clock.now(), turn_id=turn))
            session.add_message(Message("assistant", "I see.", self.clock.now(), turn_id=turn))
            await sessions.save(session)
            self.clock.jump(60)
        for _ in range(2):  # all but the newest turn, then the newest
            await self.agent.consolidator.compact(session)

    async def dream(self) -> None:
        """Run Dream a day later."""
        self.clock.jump(86_400)
        await self.parts.service.dream(OWNER)

    async def close(self) -> None:
        for part in (self.base.stores.sessions, self.parts, self.base.stores.journal):
            await part.close()


@asynccontextmanager
async def open_home(
    answers: Answers, memory: str = MEMORY, talk: Iterable[str] = TALK
) -> AsyncIterator[Home]:
    """Create a home for one kind of answer, and delete it afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Home(Path(folder), WrongModel(answers), memory, talk)
        await home.base.stores.journal.open()
        try:
            yield home
        finally:
            await home.close()


class Probe:
    """Measures how long the event loop was blocked."""

    longest = 0.0

    async def __aenter__(self) -> Probe:
        self._task = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _look(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.perf_counter() - begun - 0.005)


async def suffer(answers: Answers) -> tuple[list[str], float]:
    """Return the broken promises and the longest stall in seconds.

    The stall is the shortest of three tries, because another process may have had the processor."""
    wrong, stall = await _suffer(answers)
    for _ in range(2):
        if stall > LONGEST_STALL:
            stall = min(stall, (await _suffer(answers))[1])
    return wrong, stall


async def _suffer(answers: Answers) -> tuple[list[str], float]:
    async with open_home(answers) as home, Probe() as probe:
        await home.consolidate()
        wrong = [f"consolidated: {one}" for one in faults(home)]
        for _ in range(answers.runs):
            await home.dream()
        wrong += [f"dreamt: {one}" for one in faults(home)]
        await home.agent.consolidator.recover()
    return wrong, probe.longest


def faults(home: Home) -> Iterator[str]:
    """Yield the broken promises, judged by the files independently of the code under test."""
    files = home.files()
    lines = files[_LONG_TERM].splitlines()
    for fact in FACTS:
        if f"- {fact}" not in (line.partition(" <!--")[0] for line in lines):
            yield f"lost: {fact}"
    known = {line for text in home.before.values() for line in text.splitlines()}
    for path in (_LONG_TERM, _USER, _SOUL):
        new = [line for line in files.get(path, "").splitlines() if line.strip()]
        for line in new:
            bare = line.partition(" <!--")[0]
            if bare not in known and (reason := _wrong_with(bare, home.talk)):
                yield f"{path}: {reason}: {line[:100]!r}"
        counts = Counter(new)
        yield from (f"{path}: {n} times {line[:60]!r}" for line, n in counts.items() if n > 1)
    for path, text in files.items():
        odd = {one for one in text if not one.isprintable() and one != "\n"}
        if odd and path not in home.before:
            yield f"{path}: characters {sorted(map(ord, odd))[:5]}"


def _wrong_with(line: str, talk: Iterable[str]) -> str:
    """Return why the conversation does not support a new line, or an empty text."""
    bare = line.removeprefix("- ").strip()
    if quoted := re.fullmatch(r"“(.*)” \(\d{4}-\d\d-\d\d\)", bare):
        return "" if quoted[1] in talk else "a false quotation"
    if line.startswith("#"):
        return "" if len(line) < 70 else "a long heading"
    said = [_words(text) for text in talk]
    own = _words(bare)
    everything = set().union(*said)
    numbers = set(re.findall(r"\d+", bare)) - set(re.findall(r"\d+", " ".join(talk)))
    if numbers:
        return f"numbers {sorted(numbers)}"
    best = max(said, key=lambda words: len(words & own))
    no = {"not", "never", "no", "dont", "nicht", "ohne", "without", "isnt", "hardly"}
    if (own & no) - best:
        return "a negation that nobody said"
    if 3 * len((own - no) & everything) < len(own - no) or not own - no:
        return "junk"
    return ""


def _words(text: str) -> set[str]:
    plain = text.casefold().replace("’", "").replace("'", "")
    return {word[:5] for word in re.findall(r"[^\W\d_]{2,}", plain)} - {
        "the",
        "is",
        "on",
        "at",
        "of",
    }


async def is_stored(old: str, said: str, new: str) -> tuple[bool, bool]:
    """Return whether a good model's answer is stored by consolidation, and by Dream."""
    lines = [*(fact for fact in FACTS[-6:]), *([old] if old else [])]
    memory = "# Memory\n\n" + "".join(f"- {line}\n" for line in lines)
    update = memory.replace(f"- {old}\n", f"- {new}\n") if old else f"{memory}- {new}\n"
    edits = {"edits": [{"old": f"- {old}" if old else "", "new": f"- {new}", "section": ""}]}
    item = {"text": new, "entry": 0} | ({"replaces": f"- {old}"} if old else {})
    results = list[bool]()
    for answers in (
        Answers(update, entry=f"They spoke: {said}"),
        Answers(
            memory,
            entry=f"They spoke: {said}",
            phase1={"contradictions" if old else "memory_updates": [item]},
            phase2=edits,
        ),
    ):
        async with open_home(answers, memory, ("Hello!", said, "That is all.")) as home:
            await home.consolidate()
            await home.dream()
            text = home.files()[_LONG_TERM].splitlines()
        # Consolidation forgets nothing: the old line may stay until Dream reads about it.
        gone = not old or f"- {old}" not in text or not results
        results.append(f"- {new}" in text and gone)
    return results[0], results[1]


async def new_facts_come_through() -> bool:
    """Check whether Dream learns a fact that its phase 2 left out."""
    async with open_home(Answers(phase1=add(NEW).phase1)) as home:
        await home.consolidate()
        await home.dream()
        return any(NEW in text for text in home.files().values())


async def measure(names: Iterable[str], count: int, seed: int) -> tuple[dict[str, object], bool]:
    """Return all figures, and whether they are good."""
    wrong, longest, slowest = dict[str, list[str]](), 0.0, ""
    cases = [(name, answers) for name, answers in kinds().items() if name in names]
    cases += random_kinds(random.Random(seed), count)
    for name, answers in cases:
        found, stall = await suffer(answers)
        if found:
            wrong[name] = found
            print(f"{name}:\n  " + "\n  ".join(found[:12]), file=sys.stderr)
        if stall > longest:
            longest, slowest = stall, name
    passed = [await is_stored(*row) for row in GOOD]
    for row, (first, second) in zip(GOOD, passed, strict=True):
        if not (first and second):
            print(f"refused (consolidation {first}, Dream {second}): {row}", file=sys.stderr)
    figures: dict[str, object] = {
        "kinds of wrong answers": len(cases) - count,
        "random wrong answers": count,
        "of which with a fault (target 0)": len(wrong),
        f"longest stall [s] (target <= {LONGEST_STALL}), in “{slowest}”": longest,
        "legitimate updates": len(GOOD),
        "of which consolidation takes": sum(first for first, _ in passed),
        "of which Dream takes": sum(second for _, second in passed),
    }
    good = not wrong and longest <= LONGEST_STALL
    return figures, good and await new_facts_come_through()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the kinds whose name holds this")
    parser.add_argument("--random", type=int, default=200, help="random wrong answers")
    parser.add_argument("--seed", type=int, default=39)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    logger.remove()
    names = [name for name in kinds() if options.only in name]
    figures, good = asyncio.run(measure(names, options.random, options.seed))
    report("bad_model", figures)
    sys.exit(not good)


if __name__ == "__main__":
    main()
