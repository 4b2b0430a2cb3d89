"""The board of one chat: what is shown when, whatever happens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nanobot.bus.events import (
    Notice,
    Progress,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot_telegram.preview import PreviewBoard, Step, Text, Typing

Event = tuple[str, str, float]
"""What happens, to which turn, and how many seconds pass after it."""

EVENTS = st.tuples(
    st.sampled_from(["started", "wrote", "ran_tool", "printed", "ended", "notice", "fails"]),
    st.sampled_from(["t1", "t2"]),
    st.floats(0.0, 6.0),
)


class Play:
    """Plays events to a board and takes its steps. `texts` are the times of those with text."""

    def __init__(self, *, crowd: int = 1) -> None:
        self.board = PreviewBoard()
        self.crowd, self.now = crowd, 0.0
        self.running: set[str] = set()
        self.texts: list[float] = []

    def play(self, events: Sequence[Event]) -> None:
        """One after the other."""
        for kind, turn, seconds in events:
            self._happen(kind, turn)
            until = self.now + seconds
            self.work(until, fails=kind == "fails")
            self.now = until

    def work(self, until: float, *, fails: bool = False) -> None:
        """Take all steps that are due by then."""
        while (due := self.board.due()) <= until and due < math.inf:
            self.now = max(self.now, due)
            step = self.board.next(self.now)
            assert step is not None
            self._take(step, fails)

    def _happen(self, kind: str, turn: str) -> None:
        match kind:
            case "started":
                self.running.add(turn)
                self.note(TurnStarted("telegram", "7", turn))
            case "wrote":
                self.note(TextDelta("telegram", "7", turn, "word "))
            case "ran_tool":
                self.note(ToolStarted("telegram", "7", turn, "tool"))
            case "printed":
                self.note(ToolOutput("telegram", "7", turn, "a line\n"))
            case "ended":
                self.running.discard(turn)
                self.note(TurnEnded("telegram", "7", turn, (), "done"))
            case "notice":
                self.note(Notice("telegram", "7", "words"))

    def note(self, event: Progress) -> None:
        """Tell the board now."""
        self.board.note(event, self.now)

    def _take(self, step: Step, fails: bool) -> None:
        if isinstance(step, Text | Typing):
            assert step.turn_id in self.running
        if isinstance(step, Text):
            self.texts.append(self.now)
        if fails:
            self.board.failed(step, self.now, wait=float(len(self.texts) % 3))
        else:
            self.board.done(step, self.now, crowd=self.crowd)


@given(events=st.lists(EVENTS, max_size=30))
def test_whatever_happens_texts_keep_their_distance_and_end_with_their_turn(
    events: list[Event],
) -> None:
    play = Play()
    play.play([*events, ("ended", "t1", 0.0), ("ended", "t2", 0.0)])
    play.work(math.inf)
    assert all(later - earlier > 0.5 - 1e-6 for earlier, later in pairwise(play.texts))
    assert play.board.is_idle(play.now + 61)


def test_all_chats_together_show_at_most_fifteen_texts_a_second() -> None:
    crowd = [Play(crowd=90) for _ in range(90)]
    for play in crowd:
        play.play([("started", "t1", 0.0), *[("wrote", "t1", 0.25)] * 160])
        assert len(play.texts) >= 4
    seconds = [math.ceil(at) for play in crowd for at in play.texts if at > 10]
    assert len(seconds) <= 15 * 30


def test_a_turn_of_which_nothing_is_heard_is_given_up_after_an_hour() -> None:
    play = Play()
    play.play([("started", "t1", 0.0)])
    play.work(math.inf)
    assert play.now == 3600


def test_the_draft_of_a_turn_keeps_its_number_which_is_never_zero() -> None:
    numbers = [Text(f"turn-{n}", "", "x", "", 1).draft_id for n in range(1000)]
    assert numbers == [Text(f"turn-{n}", "", "y", "", 2).draft_id for n in range(1000)]
    assert all(0 < number < 2**31 for number in numbers)
    assert len(set(numbers)) == 1000


def test_the_end_of_a_tools_output_is_shown_until_the_turn_goes_on() -> None:
    board = PreviewBoard()
    lines = "".join(f"line {number}\n" for number in range(500))
    progress = "20%\n" + "x" * 500
    board.note(TurnStarted("telegram", "7", "t1"), 0.0)
    board.note(ToolStarted("telegram", "7", "t1", "exec make"), 0.0)
    board.note(ToolOutput("telegram", "7", "t1", lines), 0.0)
    board.note(ToolOutput("telegram", "7", "t1", progress), 0.0)
    shown = _text(board, 10.0)
    assert shown.output.splitlines()[:2] == ["line 496", "line 497"]
    assert shown.output.splitlines()[-2:] == ["20%", "x" * 99 + "…"]
    board.note(TextDelta("telegram", "7", "t1", "It is built."), 20.0)
    shown = _text(board, 30.0)
    assert (shown.text, shown.hint, shown.output) == ("It is built.", "", "")


def _text(board: PreviewBoard, now: float) -> Text:
    while not isinstance(step := board.next(now), Text):
        assert step is not None
        board.done(step, now)
    board.done(step, now)
    return step
