"""What to show in one chat, and when: a pure state machine under `preview`.

Events of turns go in; `next` gives the step that is due, or when to ask again. Only the newest text
counts: whatever came while a call was under way, or too soon after one, is in the next step. So the
number of calls depends on time and never on how many pieces a reply arrives in.

Two calls that show text keep a distance, counted from the end of the first: however long the
network takes, they do not bunch up (`pacing`). A call that fails ends that way of showing for its
turn; when Telegram asks to wait, the whole chat is left alone until then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from nanobot_telegram.actions import Remove, Say, Step, Text, Typing
from nanobot_telegram.pacing import Pace
from nanobot_telegram.printed import kept, last_lines

_TYPING_PACE = 4.0
_POST_AFTER = 1.0
"""A reply that is complete within that many seconds needs no preview in a group, where one is a
message that comes and goes before everybody's eyes."""

_DRAFT_LIVES = 20.0
"""A draft vanishes after 30 seconds unless it is sent again."""

_REMOVE_AFTER = 10.0
"""How long the preview of a turn that ended stays where no reply takes its place."""

_MOST_REMOVALS = 5
_REMOVAL_PAUSE = 5.0
_NOTICE_PACE = 60.0
_MOST_NOTICES = 10
_SILENT = 3600.0
"""A turn of which nothing was heard for that long is not typing any more."""


@dataclass(slots=True)
class _Turn:
    """`is_aside`: what was said so far came before a tool, and the reply itself begins anew."""

    id: str
    thread_id: str
    typing_due: float
    heard_at: float
    pieces: list[str] = field(default_factory=list)
    hint: str = ""
    output: str = ""
    has_text: bool = False
    is_aside: bool = False
    changed_at: float = 0.0
    shown_at: float = 0.0
    version: int = 0
    shown: int = 0
    message_id: int = 0
    shows_text: bool = True
    shows_typing: bool = True

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    @property
    def has_words(self) -> bool:
        return self.has_text or bool(self.hint) or bool(self.output.strip())

    def changed(self, now: float) -> None:
        if self.version == self.shown:
            self.changed_at = now
        self.version += 1


@dataclass(frozen=True, slots=True)
class _Removal:
    step: Remove
    due: float


class Board:
    """One chat. Times are seconds of one monotonic clock; `texts`: replies are shown while they are
    written."""

    def __init__(self, *, is_group: bool, texts: bool = True) -> None:
        self.is_group, self._texts = is_group, texts
        self._turns: dict[str, _Turn] = {}
        self._removals: list[_Removal] = []
        self._notices: list[Say] = []
        self._noticed: dict[Say, float] = {}
        self._quiet_until = -math.inf
        self._text_due = -math.inf
        self._pace = Pace(is_group=is_group)

    def started(self, turn_id: str, thread_id: str, now: float) -> None:
        """A turn began. Previews of earlier ones do not survive that."""
        self.ended(turn_id, now)
        self.replied(now)
        turn = _Turn(turn_id, thread_id, typing_due=now, heard_at=now)
        turn.shows_text = self._texts
        self._turns[turn_id] = turn

    def wrote(self, turn_id: str, text: str, now: float, *, restart: bool = False) -> None:
        """More text of a turn; that of a turn which is not running is ignored."""
        if (turn := self._turns.get(turn_id)) is None:
            return
        if restart or turn.is_aside:
            turn.pieces, turn.hint, turn.is_aside, turn.has_text = [], "", False, False
            turn.output = ""
        turn.pieces.append(text)
        turn.has_text = turn.has_text or bool(text.strip())
        turn.heard_at = now
        turn.changed(now)

    def ran_tool(self, turn_id: str, hint: str, now: float) -> None:
        """A tool of a turn runs; ignored likewise."""
        if (turn := self._turns.get(turn_id)) is None:
            return
        turn.hint, turn.output, turn.is_aside = hint, "", True
        turn.heard_at = now
        turn.changed(now)

    def printed(self, turn_id: str, text: str, now: float) -> None:
        """The tool of a turn prints something; ignored likewise."""
        if (turn := self._turns.get(turn_id)) is None:
            return
        turn.output, turn.is_aside = kept(turn.output, text), True
        turn.heard_at = now
        turn.changed(now)

    def ended(self, turn_id: str, now: float) -> None:
        """A turn is over: nothing of it is shown from now on."""
        turn = self._turns.pop(turn_id, None)
        if turn is not None and turn.message_id:
            self.stands(turn.message_id, now + _REMOVE_AFTER)

    def replied(self, now: float) -> None:
        """Something was sent to stay: previews of turns that are over have no use any more."""
        self._removals = [_Removal(one.step, min(one.due, now)) for one in self._removals]

    def stands(self, message_id: int, due: float) -> None:
        """A preview of no running turn stands there, to be deleted at `due`."""
        self._removals.append(_Removal(Remove(message_id), due))

    def notice(self, text: str, thread_id: str, now: float) -> None:
        """Something to say; the same only once in a minute."""
        say = Say(text, thread_id)
        self._noticed = {one: at for one, at in self._noticed.items() if at > now - _NOTICE_PACE}
        if say not in self._noticed and len(self._notices) < _MOST_NOTICES:
            self._noticed[say] = now
            self._notices.append(say)

    def is_running(self, turn_id: str) -> bool:
        """Whether this turn is not over."""
        return turn_id in self._turns

    @property
    def is_showing(self) -> bool:
        """Whether text of a turn that runs is shown, or soon will be."""
        return any(turn.shows_text and turn.has_words for turn in self._turns.values())

    def is_idle(self, now: float) -> bool:
        """Whether there is nothing here that needs to be remembered."""
        if self._turns or self._quiet_until > now or self.due() < math.inf:
            return False
        return all(at <= now - _NOTICE_PACE for at in self._noticed.values())

    def due(self) -> float:
        """When `next` has a step, unless something happens before; infinite: never."""
        first = min((due for due, _ in self._possible()), default=math.inf)
        return max(first, self._quiet_until)

    def next(self, now: float) -> Step | None:
        """The step to take now, if any. Tell `done` or `failed` before asking again."""
        possible = [(due, make) for due, make in self._possible() if due <= now]
        if not possible or self._quiet_until > now:
            return None
        _, make = min(possible, key=itemgetter(0))
        return make()

    def done(self, step: Step, now: float, *, message_id: int = 0, crowd: int = 1) -> None:
        """A step was taken; `message_id` of the message that a new text is. `crowd`: so many chats
        show text, this one with them."""
        match step:
            case Text():
                self._text_due = self._pace.next(now, crowd)
                self._text_shown(step, now, message_id)
            case Typing() if step.turn_id in self._turns:
                self._turns[step.turn_id].typing_due = now + _TYPING_PACE
            case Remove():
                self._forget(step)
            case Say():
                self._notices.remove(step)

    def failed(self, step: Step, now: float, *, wait: float = 0.0) -> None:
        """A step was refused or not answered; Telegram asked to wait that many seconds."""
        if wait > 0:
            self.hold(now, wait)
        match step:
            case Text():
                self._text_due = self._pace.next(now)
                if turn := self._turns.get(step.turn_id):
                    turn.shows_text = False
                    turn.typing_due = now
            case Typing():
                if turn := self._turns.get(step.turn_id):
                    turn.shows_typing = False
            case Remove():
                self._forget(step)
                if step.tries < _MOST_REMOVALS:
                    again = Remove(step.message_id, step.tries + 1)
                    due = now + _REMOVAL_PAUSE * step.tries
                    self._removals.append(_Removal(again, due))
            case Say():
                self._notices.remove(step)

    def hold(self, now: float, seconds: float) -> None:
        """Show nothing for that long, and nothing more of the turns that run."""
        self._quiet_until = max(self._quiet_until, now + seconds)
        for turn in self._turns.values():
            turn.shows_text = turn.shows_typing = False

    def _text_shown(self, step: Text, now: float, message_id: int) -> None:
        turn = self._turns.get(step.turn_id)
        if turn is None:
            if message_id:
                self.stands(message_id, now)
            return
        turn.message_id = message_id or turn.message_id
        turn.shown, turn.shown_at = step.version, now
        if turn.version != turn.shown:
            turn.changed_at = now

    def _forget(self, step: Remove) -> None:
        self._removals = [one for one in self._removals if one.step != step]

    def _possible(self) -> Iterator[tuple[float, Callable[[], Step]]]:
        """Steps that may be taken, each with the time from which on."""
        for removal in self._removals:
            yield removal.due, partial(_as_it_is, removal.step)
        if self._notices:
            yield -math.inf, partial(_as_it_is, self._notices[0])
        for turn in self._turns.values():
            if (due := self._typing_due(turn)) < math.inf:
                yield due, partial(Typing, turn.id, turn.thread_id)
            if (due := self._due_for_text(turn)) < math.inf:
                yield due, partial(_text_of, turn)

    def _typing_due(self, turn: _Turn) -> float:
        is_seen = turn.shows_text and turn.shown > 0
        is_lost = turn.typing_due > turn.heard_at + _SILENT
        return math.inf if is_seen or is_lost or not turn.shows_typing else turn.typing_due

    def _due_for_text(self, turn: _Turn) -> float:
        if not turn.shows_text or not turn.has_words:
            return math.inf
        if turn.version == turn.shown:
            is_lost = turn.shown_at > turn.heard_at + _SILENT
            return math.inf if self.is_group or is_lost else turn.shown_at + _DRAFT_LIVES
        wait = _POST_AFTER if self.is_group and not turn.message_id else 0.0
        return max(self._text_due, turn.changed_at + wait)


def _text_of(turn: _Turn) -> Text:
    return Text(
        turn.id,
        turn.thread_id,
        turn.message_id,
        turn.text,
        turn.hint,
        turn.version,
        last_lines(turn.output),
    )


def _as_it_is(step: Step) -> Step:
    return step
