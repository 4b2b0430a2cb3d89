"""What to show in one chat while turns run, and when: a pure state machine under `preview`.

Events of turns go in; `next` gives the step that is due, `due` the time to ask again. Only the
newest text counts: what came while a call was under way, or too soon after one, is in the next
step. So the number of calls depends on time and never on how many pieces a reply arrives in.

Two calls that show text keep a distance, counted from the end of the first: however long the
network takes, they do not bunch up. Telegram counts what a bot does in all, and what it does in a
group within a minute. Most of that is for replies, so previews give way: all slow down where many
chats show text at once, and those of a group after some edits. A call that fails ends that way of
showing for its turn; when Telegram asks to wait, the whole chat is left alone until then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from operator import itemgetter

from nanobot.bus.events import (
    Notice,
    Progress,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

_TYPING_PACE = 4.0
_DRAFT_PACE = 0.5
_EDIT_PACE = 3.0
_SLOW_EDIT_PACE = 6.0
_QUICK_EDITS = 5
"""So many edits within a minute are followed by a short pause, the others by a long one. With that
at most 13 of the 20 messages that a group takes in a minute are previews."""
_MINUTE = 60.0
_TEXTS_A_SECOND = 15
"""Of about 30 calls that Telegram takes from a bot, in all chats."""
_POST_AFTER = 1.0
"""A reply that is complete within that many seconds needs no preview in a group, where one is a
message that comes and goes before everybody's eyes."""
_DRAFT_LIVES = 20.0
"""A draft vanishes after 30 seconds unless it is sent again."""
_REMOVE_AFTER = 10.0
"""How long the preview of a turn that ended stays where no reply takes its place."""
_REMOVAL_TRIES = 5
_REMOVAL_PAUSE = 5.0
_NOTICE_PACE = 60.0
_NOTICES = 10
_SILENT = 3600.0
"""A turn of which nothing was heard for that long is not typing any more."""

_OUTPUT_KEPT = 4_000
_OUTPUT_LINES = 6
_OUTPUT_COLUMNS = 100
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


@dataclass(frozen=True, slots=True)
class Typing:
    """The bot is seen typing, for five seconds."""

    turn_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Text:
    """Show `text`, and below it `hint` and the end of a tool's `output`: as a draft in a private
    chat, else in message `message_id` (0: in a new one). `version` tells this content from what
    comes later."""

    turn_id: str
    thread_id: str
    message_id: int
    text: str
    hint: str
    version: int
    output: str = ""

    @property
    def draft_id(self) -> int:
        """The same for the whole turn, never 0."""
        return int.from_bytes(sha256(self.turn_id.encode()).digest()[:4], "big") % 0x7FFFFFFF + 1


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a preview that is no longer needed."""

    message_id: int
    tries: int = 1


@dataclass(frozen=True, slots=True)
class PostNotice:
    """Send a notice."""

    text: str
    thread_id: str


Step = Typing | Text | Remove | PostNotice
"""Each becomes one call of the Bot API."""


@dataclass(slots=True)
class _Turn:
    """A turn that runs. `is_aside`: the text so far came before a tool, and the reply itself starts
    over. `version` counts changes, `shown` is the one last shown."""

    id: str
    thread_id: str
    typing_due: float
    heard_at: float
    shows_text: bool
    shows_typing: bool = True
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

    def note(self, event: TextDelta | ToolStarted | ToolOutput, now: float) -> None:
        """More of what the turn does."""
        match event:
            case TextDelta():
                if event.restart or self.is_aside:
                    self.pieces, self.hint, self.output = [], "", ""
                    self.is_aside = self.has_text = False
                self.pieces.append(event.text)
                self.has_text = self.has_text or bool(event.text.strip())
            case ToolStarted():
                self.hint, self.output, self.is_aside = event.hint, "", True
            case ToolOutput():
                self.output = (self.output + event.text)[-_OUTPUT_KEPT:]
                self.is_aside = True
        self.heard_at = now
        if self.version == self.shown:
            self.changed_at = now
        self.version += 1

    @property
    def has_content(self) -> bool:
        """Whether there is anything to show but typing."""
        return self.has_text or bool(self.hint) or bool(self.output.strip())

    def step(self) -> Text:
        """What shows the present content."""
        text = "".join(self.pieces)
        self.pieces = [text]
        output = _last_lines(self.output)
        return Text(self.id, self.thread_id, self.message_id, text, self.hint, self.version, output)


class PreviewBoard:
    """One chat. Times are seconds of one monotonic clock; `texts`: replies are shown while they are
    written."""

    def __init__(self, *, is_group: bool, texts: bool = True) -> None:
        self.is_group, self._texts = is_group, texts
        self._turns: dict[str, _Turn] = {}
        self._removals: dict[Remove, float] = {}
        self._notices: list[PostNotice] = []
        self._noticed: dict[PostNotice, float] = {}
        self._quiet_until = -math.inf
        self._text_due = -math.inf
        self._edits: list[float] = []

    def note(self, event: Progress, now: float) -> None:
        """Something happened. What belongs to a turn that is not running is ignored."""
        match event:
            case TurnStarted():
                self._end(event.turn_id, now)
                self.note_reply(now)  # previews of earlier turns do not survive that
                thread = event.thread_id
                self._turns[event.turn_id] = _Turn(event.turn_id, thread, now, now, self._texts)
            case TurnEnded():
                self._end(event.turn_id, now)
            case Notice():
                self._add_notice(PostNotice(event.text, event.thread_id), now)
            case _:
                if turn := self._turns.get(event.turn_id):
                    turn.note(event, now)

    def note_reply(self, now: float) -> None:
        """Something was sent to stay: previews of turns that are over have no use any more."""
        self._removals = {step: min(due, now) for step, due in self._removals.items()}

    def remove(self, message_id: int, due: float) -> None:
        """A preview of no running turn is to be deleted at `due`."""
        self._removals[Remove(message_id)] = due

    def hold(self, now: float, seconds: float) -> None:
        """Show nothing for that long, and nothing more of the turns that run."""
        self._quiet_until = max(self._quiet_until, now + seconds)
        for turn in self._turns.values():
            turn.shows_text = turn.shows_typing = False

    def is_running(self, turn_id: str) -> bool:
        """Whether this turn is not over."""
        return turn_id in self._turns

    @property
    def is_showing(self) -> bool:
        """Whether text of a turn that runs is shown, or soon will be."""
        return any(turn.shows_text and turn.has_content for turn in self._turns.values())

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
        """The step to take now, if any. Report `done` or `failed` before asking again."""
        possible = [(due, step) for due, step in self._possible() if due <= now]
        if not possible or self._quiet_until > now:
            return None
        _, step = min(possible, key=itemgetter(0))
        return step.step() if isinstance(step, _Turn) else step

    def done(self, step: Step, now: float, *, message_id: int = 0, crowd: int = 1) -> None:
        """A step was taken; `message_id` of the message that a new text is. `crowd`: so many chats
        show text, including this one."""
        match step:
            case Text():
                self._text_due = now + self._text_pause(now, crowd)
                turn = self._turns.get(step.turn_id)
                if turn is None and message_id:
                    self.remove(message_id, now)
                elif turn is not None:
                    turn.message_id = message_id or turn.message_id
                    turn.shown, turn.shown_at = step.version, now
                    if turn.version != turn.shown:
                        turn.changed_at = now
            case Typing():
                if turn := self._turns.get(step.turn_id):
                    turn.typing_due = now + _TYPING_PACE
            case Remove():
                self._removals.pop(step, None)
            case PostNotice():
                self._notices.remove(step)

    def failed(self, step: Step, now: float, *, wait: float = 0.0) -> None:
        """A step was refused or not answered; Telegram asked to wait that many seconds."""
        if wait > 0:
            self.hold(now, wait)
        match step:
            case Text():
                self._text_due = now + self._text_pause(now, 1)
                if turn := self._turns.get(step.turn_id):
                    turn.shows_text = False
                    turn.typing_due = now
            case Typing():
                if turn := self._turns.get(step.turn_id):
                    turn.shows_typing = False
            case Remove():
                self._removals.pop(step, None)
                if step.tries < _REMOVAL_TRIES:
                    again = Remove(step.message_id, step.tries + 1)
                    self._removals[again] = now + _REMOVAL_PAUSE * step.tries
            case PostNotice():
                self._notices.remove(step)

    def _end(self, turn_id: str, now: float) -> None:
        turn = self._turns.pop(turn_id, None)
        if turn is not None and turn.message_id:
            self.remove(turn.message_id, now + _REMOVE_AFTER)

    def _add_notice(self, notice: PostNotice, now: float) -> None:
        """The same notice is posted once a minute."""
        self._noticed = {one: at for one, at in self._noticed.items() if at > now - _NOTICE_PACE}
        if notice not in self._noticed and len(self._notices) < _NOTICES:
            self._noticed[notice] = now
            self._notices.append(notice)

    def _possible(self) -> Iterator[tuple[float, Typing | Remove | PostNotice | _Turn]]:
        """Steps that may be taken, each with the time from which on; a turn stands for its text."""
        for removal, due in self._removals.items():
            yield due, removal
        if self._notices:
            yield -math.inf, self._notices[0]
        for turn in self._turns.values():
            if (due := self._typing_due(turn)) < math.inf:
                yield due, Typing(turn.id, turn.thread_id)
            if (due := self._due_for_text(turn)) < math.inf:
                yield due, turn

    def _typing_due(self, turn: _Turn) -> float:
        is_seen = turn.shows_text and turn.shown > 0
        is_lost = turn.typing_due > turn.heard_at + _SILENT
        return math.inf if is_seen or is_lost or not turn.shows_typing else turn.typing_due

    def _due_for_text(self, turn: _Turn) -> float:
        if not turn.shows_text or not turn.has_content:
            return math.inf
        if turn.version == turn.shown:
            is_lost = turn.shown_at > turn.heard_at + _SILENT
            return math.inf if self.is_group or is_lost else turn.shown_at + _DRAFT_LIVES
        wait = _POST_AFTER if self.is_group and not turn.message_id else 0.0
        return max(self._text_due, turn.changed_at + wait)

    def _text_pause(self, now: float, crowd: int) -> float:
        """Seconds until text may be shown again after a call that ended now."""
        usual = _DRAFT_PACE
        if self.is_group:
            self._edits = [*(at for at in self._edits if at > now - _MINUTE), now]
            usual = _EDIT_PACE if len(self._edits) <= _QUICK_EDITS else _SLOW_EDIT_PACE
        return max(usual, crowd / _TEXTS_A_SECOND)


def _last_lines(output: str) -> str:
    """The last lines with content, as a terminal would show them: a line that was written over
    (`\\r`) counts as it is now, and colours are left out."""
    lines = []
    for line in output.split("\n"):
        plain = _SEQUENCE.sub("", line).rstrip("\r").rpartition("\r")[2]
        plain = plain.translate(_CONTROLS).rstrip()
        if len(plain) > _OUTPUT_COLUMNS:
            plain = plain[: _OUTPUT_COLUMNS - 1] + "…"
        lines.append(plain)
    return "\n".join([line for line in lines if line.strip()][-_OUTPUT_LINES:])
