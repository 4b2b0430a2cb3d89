"""What to show in one chat while turns run, and when: a pure state machine under `preview`.

Events of turns go in; `next` gives the step that is due, `due` the time to ask again. Only the
newest text counts: what came while a call was under way, or too soon after one, is in the next
step. So the number of calls depends on time and never on how many pieces a reply arrives in.

Two calls that show text keep a distance, counted from the end of the first: however long the
network takes, they do not bunch up. Telegram counts what a bot does in all. Most of that is for
replies, so previews slow down where many chats show text at once. A call that fails ends that way
of showing for its turn; when Telegram asks to wait, the whole chat is left alone until then.
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
_TEXTS_A_SECOND = 15
"""Of about 30 calls that Telegram takes from a bot, in all chats."""
_DRAFT_LIVES = 20.0
"""A draft vanishes after 30 seconds unless it is sent again."""
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
    """Show `text`, and below it `hint` and the end of a tool's `output`, as a draft. `version`
    tells this content from what comes later."""

    turn_id: str
    thread_id: str
    text: str
    hint: str
    version: int
    output: str = ""

    @property
    def draft_id(self) -> int:
        """The same for the whole turn, never 0."""
        return int.from_bytes(sha256(self.turn_id.encode()).digest()[:4], "big") % 0x7FFFFFFF + 1


@dataclass(frozen=True, slots=True)
class PostNotice:
    """Send a notice."""

    text: str
    thread_id: str


Step = Typing | Text | PostNotice
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
        return Text(self.id, self.thread_id, text, self.hint, self.version, output)


class PreviewBoard:
    """One chat. Times are seconds of one monotonic clock; `texts`: replies are shown while they are
    written."""

    def __init__(self, *, texts: bool = True) -> None:
        self._texts = texts
        self.turns: dict[str, _Turn] = {}
        """The turns that run, by id."""
        self._notices: list[PostNotice] = []
        self._noticed: dict[PostNotice, float] = {}
        self._quiet_until = -math.inf
        self._text_due = -math.inf

    def note(self, event: Progress, now: float) -> None:
        """Something happened. What belongs to a turn that is not running is ignored."""
        match event:
            case TurnStarted():
                thread = event.thread_id
                self.turns[event.turn_id] = _Turn(event.turn_id, thread, now, now, self._texts)
            case TurnEnded():
                self.turns.pop(event.turn_id, None)
            case Notice():
                self._add_notice(PostNotice(event.text, event.thread_id), now)
            case _:
                if turn := self.turns.get(event.turn_id):
                    turn.note(event, now)

    def hold(self, now: float, seconds: float) -> None:
        """Show nothing for that long, and nothing more of the turns that run."""
        self._quiet_until = max(self._quiet_until, now + seconds)
        for turn in self.turns.values():
            turn.shows_text = turn.shows_typing = False

    @property
    def is_showing(self) -> bool:
        """Whether text of a turn that runs is shown, or soon will be."""
        return any(turn.shows_text and turn.has_content for turn in self.turns.values())

    def is_idle(self, now: float) -> bool:
        """Whether there is nothing here that needs to be remembered."""
        if self.turns or self._quiet_until > now or self.due() < math.inf:
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

    def done(self, step: Step, now: float, *, crowd: int = 1) -> None:
        """A step was taken. `crowd`: so many chats show text, including this one."""
        match step:
            case Text():
                self._text_due = now + max(_DRAFT_PACE, crowd / _TEXTS_A_SECOND)
                if turn := self.turns.get(step.turn_id):
                    turn.shown, turn.shown_at = step.version, now
                    if turn.version != turn.shown:
                        turn.changed_at = now
            case Typing():
                if turn := self.turns.get(step.turn_id):
                    turn.typing_due = now + _TYPING_PACE
            case PostNotice():
                self._notices.remove(step)

    def failed(self, step: Step, now: float, *, wait: float = 0.0) -> None:
        """A step was refused or not answered; Telegram asked to wait that many seconds."""
        if wait > 0:
            self.hold(now, wait)
        match step:
            case Text():
                self._text_due = now + _DRAFT_PACE
                if turn := self.turns.get(step.turn_id):
                    turn.shows_text = False
                    turn.typing_due = now
            case Typing():
                if turn := self.turns.get(step.turn_id):
                    turn.shows_typing = False
            case PostNotice():
                self._notices.remove(step)

    def _add_notice(self, notice: PostNotice, now: float) -> None:
        """The same notice is posted once a minute."""
        self._noticed = {one: at for one, at in self._noticed.items() if at > now - _NOTICE_PACE}
        if notice not in self._noticed and len(self._notices) < _NOTICES:
            self._noticed[notice] = now
            self._notices.append(notice)

    def _possible(self) -> Iterator[tuple[float, Typing | PostNotice | _Turn]]:
        """Steps that may be taken, each with the time from which on; a turn stands for its text."""
        if self._notices:
            yield -math.inf, self._notices[0]
        for turn in self.turns.values():
            is_seen = turn.shows_text and turn.shown > 0
            is_lost = turn.typing_due > turn.heard_at + _SILENT
            if turn.shows_typing and not is_seen and not is_lost:
                yield turn.typing_due, Typing(turn.id, turn.thread_id)
            if (due := self._due_for_text(turn)) < math.inf:
                yield due, turn

    def _due_for_text(self, turn: _Turn) -> float:
        if not turn.shows_text or not turn.has_content:
            return math.inf
        if turn.version == turn.shown:
            is_lost = turn.shown_at > turn.heard_at + _SILENT
            return math.inf if is_lost else turn.shown_at + _DRAFT_LIVES
        return max(self._text_due, turn.changed_at)


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
