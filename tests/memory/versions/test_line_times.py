"""When each line of a file was written, from its versions."""

from __future__ import annotations

import random
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from nanobot.memory.gitstore import GitStore
from nanobot.memory.importance import without_importance
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from nanobot.testing.clock import FakeClock

FILE, OTHER = "memory/MEMORY.md", "USER.md"
WORDS = ("tea", "rye", "jam", "oats", "mint", "plum")


class Home:
    """A workspace and its versions. `new` returns the store of a new process."""

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


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def grow(home: Home, count: int, seed: int) -> None:
    """Add versions of two files whose lines come, go, come twice, and change in importance."""
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


def lines_in(text: str) -> set[str]:
    return {line.strip() for line in without_importance(text).split("\n") if line.strip()}


def read_expected_times(store: GitStore, path: str) -> dict[str, datetime]:
    """Return the times by reading every version."""
    left, found, is_first = set[str](), dict[str, datetime](), True
    for one in store.lineage(path):
        left, is_first = lines_in(one.after) if is_first else left, False
        found |= dict.fromkeys(left - lines_in(one.before), one.version.when)
        left &= lines_in(one.before)
    return found


def test_the_times_of_lines_are_those_that_all_versions_tell(home: Home) -> None:
    for count in (1, 5, 20, 2):
        grow(home, count, count)
        for path in (FILE, OTHER):
            assert home.store.line_times(path) == home.new().line_times(path)
            assert home.store.line_times(path) == read_expected_times(home.store, path)
    home.write("")
    assert home.store.line_times(FILE) == {}


def test_the_times_of_lines_follow_an_erasure(home: Home) -> None:
    for text in ("- oats\n- rye\n", "- oats\n- rye\n- jam\n"):
        home.write(text)
    before = home.store.line_times(FILE)
    home.store.rewrite(lambda text: text.replace("rye", "***"))
    assert home.store.line_times(FILE) == read_expected_times(home.store, FILE) != before
