"""What is kept of versions so that not all of them are read again: it says what they say, and goes
where they go."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from nanobot.memory.gitstore import GitStore
from nanobot.memory.importance import without_importance
from nanobot.memory.touched import LineTimes, Touched, bare, versions_touching
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from nanobot.testing.clock import FakeClock

FILE, OTHER = "memory/MEMORY.md", "USER.md"
WORDS = ("tea", "rye", "jam", "oats", "mint", "plum")
_SEEDS = 3 if int(os.environ.get("NANOBOT_EXAMPLES", "0")) >= 1_000 else 1
"""Histories that are tried; each takes some hundred commits."""


class Home:
    """A workspace and its versions; `new` is the store that a new process would have."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.root = Root(folder / "workspace")
        self.root.create()
        self.state = folder / "state"
        self.store = self.new()

    def new(self) -> GitStore:
        return GitStore(self.state, self.root, self.clock)

    def write(self, text: str, path: str = FILE) -> None:
        place = self.root.place(path)
        before = place.read_bytes(100_000)
        put = partial(place.write_bytes, text.encode(), expected=before)
        self.clock.jump(3_600)
        self.store.write(path, before, text.encode(), Change("agent", text[:20]), put)

    def kept(self) -> list[Path]:
        return sorted(self.store.repository.path.glob("*.jsonl"))

    def asked(self) -> tuple[object, ...]:
        """What a new process is told of the versions, and of their lines."""
        store = self.new()
        touching = [numbers(store, Touched.has_brought, f"- {word}") for word in WORDS]
        return store.log(1_000), LineTimes(store).of(FILE), LineTimes(store).of(OTHER), touching


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def grow(home: Home, count: int, seed: int) -> None:
    """Versions of two files whose lines come, go, come twice, and change in importance."""
    chance = random.Random(seed)
    lines = list[str]()
    for number in range(count):
        mark = chance.choice(("", "", " <!-- importance 4 -->"))
        lines.append(
            f"{chance.choice('-*')} {chance.choice(WORDS)}{chance.choice(('', '  '))}{mark}"
        )
        chance.shuffle(lines)
        home.write("\n".join([*lines[: chance.randint(1, 7)], f"- number {number}", ""]))
        if number % 3 == 0:
            home.write(f"- number {number}\n- {chance.choice(WORDS)}\n", OTHER)


def numbers(store: GitStore, asked: Callable[[Touched, str], bool], line: str) -> list[int]:
    found = versions_touching(store, FILE, lambda touched: asked(touched, line))
    return [one.version.number for one in found]


def said(text: str) -> set[str]:
    return {line.strip() for line in without_importance(text).split("\n") if line.strip()}


def expected_times(store: GitStore, path: str) -> dict[str, datetime]:
    """By reading every version."""
    left, found, is_first = set[str](), dict[str, datetime](), True
    for one in store.lineage(path):
        left, is_first = said(one.after) if is_first else left, False
        found |= dict.fromkeys(left - said(one.before), one.version.when)
        left &= said(one.before)
    return found


def damaged(home: Home) -> Iterator[Callable[[], object]]:
    """What may happen to the files that are kept."""
    texts = {path: path.read_bytes() for path in home.kept()}
    for path, content in texts.items():
        yield path.unlink
        yield partial(path.write_bytes, b"")
        yield partial(path.write_bytes, b"\0\xff{}\n")
        yield partial(path.write_bytes, content[: len(content) // 2])
        yield partial(path.write_bytes, b"\n".join(content.split(b"\n")[:20]) + b"\n")
        yield partial(path.write_bytes, content)


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_the_versions_that_touched_a_line_are_those_whose_texts_say_so(
    home: Home, seed: int
) -> None:
    grow(home, 50, seed)
    for _ in range(2):  # read, and from what was kept
        store = home.new()
        shots = list(store.lineage(FILE))
        for line in (f"- {word}" for word in WORDS):
            brought = [s.version.number for s in shots if line in said(s.after) - said(s.before)]
            taken = [
                s.version.number
                for s in shots
                if any(bare(one) == bare(line) for one in said(s.before) - said(s.after))
            ]
            assert numbers(store, Touched.has_brought, line) == brought
            assert numbers(store, Touched.has_taken, line) == taken


def test_what_is_kept_changes_no_answer(home: Home) -> None:
    grow(home, 60, 7)
    first = home.asked()
    assert len(home.kept()) == 2
    assert home.asked() == first
    for damage in damaged(home):
        damage()
        assert home.asked() == first


def test_what_comes_after_it_was_kept_is_found(home: Home) -> None:
    grow(home, 40, 1)
    home.asked()
    for count in (3, 50):
        grow(home, count, count)
        kept = home.asked()
        for path in home.kept():
            path.unlink()
        assert home.asked() == kept


def test_what_was_erased_is_kept_nowhere(home: Home) -> None:
    grow(home, 60, 3)
    home.write("- secret rye\n")
    home.asked()
    assert any(b"secret" in path.read_bytes() for path in home.kept())
    home.new().rewrite(lambda text: text.replace("secret", "***"))
    assert home.kept() == []
    again = home.asked()
    assert not any(b"secret" in path.read_bytes() for path in home.kept())
    assert home.store.log(1_000) == again[0]  # of a process that had read what it was


def test_what_is_kept_of_another_history_is_not_believed(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    grow(home, 40, 1)
    grow(other, 45, 2)
    expected = home.asked()
    other.asked()
    for path in other.kept():
        (home.store.repository.path / path.name).write_bytes(path.read_bytes())
    assert home.asked() == expected


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_ages_of_lines_are_those_that_all_versions_tell(home: Home, seed: int) -> None:
    times = LineTimes(home.store)
    for count in (1, 5, 40, 2, 40):
        grow(home, count, seed + count)
        for path in (FILE, OTHER):
            assert times.of(path) == LineTimes(home.new()).of(path)
            assert times.of(path) == expected_times(home.store, path)
    home.write("")
    assert times.of(FILE) == {}


def test_ages_of_lines_follow_an_erasure(home: Home) -> None:
    times = LineTimes(home.store)
    for text in ("- oats\n- rye\n", "- oats\n- rye\n- jam\n"):
        home.write(text)
    before = times.of(FILE)
    home.store.rewrite(lambda text: text.replace("rye", "***"))
    assert times.of(FILE) == expected_times(home.store, FILE) != before
