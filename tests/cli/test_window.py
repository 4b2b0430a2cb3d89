"""The chat in a window that wraps lines and changes its size: nothing is shown twice or lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.window import HAS_TMUX, Window, open_window

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not HAS_TMUX, reason="tmux is not installed"),
]

LONG = "word " * 30
ANSWER = (
    f"# Title\n\n{LONG}\n\n- item **one**\n- item two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nlast"
)

Chat = Callable[..., AbstractContextManager[Window]]


@pytest.fixture
def chat(gateway: Any, environment: dict[str, str], tmp_path: Path) -> Chat:
    @contextmanager
    def start(columns: int = 80, **variables: str) -> Iterator[Window]:
        command = [sys.executable, "-m", "nanobot", "agent"]
        with open_window(tmp_path, command, environment | variables, columns=columns) as window:
            window.wait_for("tiny-1 ·")
            yield window

    return start


def text_of(lines: list[str]) -> str:
    """Return the text without its line breaks."""
    return " ".join(" ".join(lines).split())


def test_an_answer_streams_in_blocks_and_is_there_once(chat: Chat, gateway: Any) -> None:
    gateway.streams["it"] = [ANSWER[at : at + 7] for at in range(0, len(ANSWER), 7)]
    gateway.texts["it"] = ANSWER
    with chat() as window:
        window.type("stream it")
        window.press("Enter")
        window.wait_for("last")
        shown = [line for line in window.wait_until_still() if line]
    at = shown.index("▌ stream it")
    assert shown[at + 1] == "Title"
    assert shown[at + 4 :] == [
        "• item one", "• item two", "a | b", "--+--", "1 | 2", "last", ">",
        "tiny-1 · context 31 % · 12.4k tokens today",
    ]  # fmt: skip


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("still", [False, True])
def test_a_window_that_becomes_narrower_and_wider_shows_nothing_twice(
    chat: Chat, gateway: Any, busy: bool, still: bool
) -> None:
    gateway.texts["fill"] = "\n\n".join(f"paragraph {number}" for number in range(20))
    gateway.streams["it"] = [ANSWER]
    # A program learns of the new size after the terminal has wrapped its lines. On a machine that
    # is too busy, it may draw in between.
    for attempt in range(3):
        with chat() as window:
            shown = resize_during_talk(window, busy=busy, still=still)
        once = [f"paragraph {number} " for number in range(20)]
        once += ["Title", "item one", "last"] if busy else ["▌ say less", "typed word"]
        wrong = {part: shown.count(part) for part in once if shown.count(part) != 1}
        if not wrong and shown.count("typed word") == (not busy):
            break
        assert attempt < 2, f"{wrong}: {shown}"


def resize_during_talk(window: Window, *, busy: bool, still: bool) -> str:
    """Change the width during an answer, or after one, with typed words in the prompt. Return all
    shown text."""
    window.type("fill")
    window.press("Enter")
    window.wait_for("paragraph 19")
    window.type("stream it" if busy else "say less")
    window.press("Enter")
    window.wait_for("writing" if busy else "less")
    window.type(f"typed {LONG}end")
    window.wait_for("end")
    window.wait_until_still()
    for columns in (40, 80, 33, 100, 60):
        window.resize(columns)
        if still:
            window.wait_until_still()
    window.wait_until_still()
    if busy:
        window.press("C-c", "C-c")
    return text_of(window.wait_for("stopped" if busy else "end", history=True))


def test_a_narrow_window_without_colour(chat: Chat, gateway: Any) -> None:
    gateway.streams["it"] = [ANSWER]
    with chat(columns=40, NO_COLOR="1") as window:
        window.type("stream it")
        window.press("Enter")
        window.wait_for("writing")
        for number in range(5):
            window.type(f"message {number} {LONG}")
            window.press("Enter")
        window.wait_for("+2")
        lines, everything = [line for line in window.lines() if line], window.lines(history=True)
    assert lines[-1] == "tiny-1 · context 31 %"
    assert lines[-2] == ">"
    assert [line[:17] for line in lines[-6:-2]] == [
        "queued: message 0", "queued: message 1", "queued: message 2", "+2",
    ]  # fmt: skip
    assert "> stream it" in everything
    assert max(map(len, lines)) <= 40
