"""The prompt: what the model reads, built so that providers can cache it.

The system prompt and the tools of a session are frozen for an *epoch*: until the day changes,
`/new`, or the messages already sent change (consolidation, `/undo`, a person's editor). Within an
epoch each request extends the one before byte for byte; what changes meanwhile in memory travels in
the header of the newest message. Messages are rendered once and kept, so a turn costs what is new
in it, however long the conversation.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Protocol

from nanobot.agent.headers import Timestamps, header, memory_notice
from nanobot.clock import Clock
from nanobot.messages import Message
from nanobot.providers.port import (
    Image,
    Prompt,
    PromptMessage,
    Toolset,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from nanobot.session.session import Session
from nanobot.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, estimate_tokens

SEPARATOR = "\n\n---\n\n"
_MAX_EPOCHS = 256


class SystemPrompt(Protocol):
    """Where the text of the system prompt comes from."""

    def parts(self) -> Sequence[Part]:
        """Its parts, most stable first."""
        ...

    def memory_text(self) -> str:
        """The long-term memory as it is now, to tell what changed since."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system prompt. `source` is the file it came from, empty for built-in text."""

    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """About one rendered message: its number, its estimated tokens, whether a person sent it."""

    seq: int
    cost: int
    from_person: bool


@dataclass(slots=True)
class Epoch:
    """A session's frozen prompt and the messages rendered so far, each with its mark.

    `memory` is what the conversation has been told of memory, `offered` what it will have been once
    the running turn is stored; `remembered` is whether the journal has the system prompt; `skipped`
    is the seq up to which messages are left out because they did not fit.
    """

    session: Session
    label: str
    revision: int
    today: date
    system: PromptMessage
    system_id: str
    parts: tuple[Part, ...]
    memory: str
    offered: str
    fixed_tokens: int
    skipped: int = 0
    remembered: bool = False
    rendered: list[PromptMessage] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    tokens: int = 0


class ContextBuilder:
    """Builds prompts. `load_image` gives base64 data and MIME type of a stored image, or None;
    `max_message_tokens` is where a single message is shortened in the prompt (never in storage)."""

    def __init__(
        self,
        system: SystemPrompt,
        tools: Toolset,
        clock: Clock,
        *,
        timestamps: Timestamps = "relative",
        load_image: Callable[[str], Image | None] | None = None,
        max_message_tokens: int = 30_000,
    ) -> None:
        self._system = system
        self._tools = tools
        self._clock = clock
        self._timestamps = timestamps
        self._load_image = load_image
        self._max_characters = max_message_tokens * 2
        self._tool_tokens = estimate_tokens(tools.wire.decode())
        self._epochs: OrderedDict[str, Epoch] = OrderedDict()

    def build(self, session: Session, new: Sequence[Message] = ()) -> Prompt:
        """The prompt for a turn: system, history, and the turn's own messages so far."""
        epoch = self.epoch(session)
        history = self._catch_up(epoch)
        own = [self.render(epoch, message) for message in new]
        return Prompt((epoch.system, *history, *own), self._tools)

    def epoch(self, session: Session) -> Epoch:
        """The session's current epoch; a new one where the old no longer holds."""
        today = self._clock.now().date()
        label = str(session.epoch)
        epoch = self._epochs.get(session.key)
        if (
            epoch is None
            or epoch.session is not session
            or epoch.revision != session.revision
            or epoch.label != label
            or epoch.today != today
        ):
            skipped = epoch.skipped if epoch is not None and epoch.label == label else 0
            epoch = self._new_epoch(session, label, today)
            epoch.skipped = skipped
            self._epochs[session.key] = epoch
            if len(self._epochs) > _MAX_EPOCHS:
                self._epochs.popitem(last=False)
        self._epochs.move_to_end(session.key)
        return epoch

    def news(self, session: Session) -> str:
        """What changed in memory since the conversation was told, for the newest message's header.

        The same until `told`: a turn that has to wait says it when it runs.
        """
        epoch = self.epoch(session)
        epoch.offered = self._system.memory_text()
        return "" if epoch.offered == epoch.memory else memory_notice(epoch.memory, epoch.offered)

    def told(self, session: Session) -> None:
        """The news are in the conversation now."""
        epoch = self._epochs.get(session.key)
        if epoch is not None and epoch.session is session:
            epoch.memory = epoch.offered

    def render(self, epoch: Epoch, message: Message) -> PromptMessage:
        """A message in the form it is sent; the same bytes every time within an epoch."""
        text = shorten(message.content, self._max_characters)
        if message.role == "assistant":
            return assistant_message(text, message.tool_calls)
        if message.role == "tool":
            return tool_message(message.tool_call_id, text)
        lines = [message.notice, text]
        if message.from_person:
            stamp = header(message.timestamp, epoch.session.key, epoch.today, self._timestamps)
            lines.insert(0, stamp)
        return user_message("\n".join(filter(None, lines)), self._images(message))

    def left_out(self, message: Message) -> int:
        """How many characters of a message the prompt leaves out because it is too long."""
        return max(0, len(message.content) - self._max_characters)

    def fixed_tokens(self, session: Session) -> int:
        """About how many tokens the system prompt and the tools take."""
        return self.epoch(session).fixed_tokens

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """About how many tokens the session's prompt takes now, with these messages after it."""
        epoch = self.epoch(session)
        self._catch_up(epoch)
        return epoch.fixed_tokens + epoch.tokens + sum(self._cost(epoch, m) for m in coming)

    def first_seq(self, session: Session) -> int:
        """The number of the oldest message in the prompt; where there is none, of the next one."""
        epoch = self.epoch(session)
        self._catch_up(epoch)
        return epoch.marks[0].seq if epoch.marks else session.next_seq

    def leave_out(self, session: Session, wanted: int, needed: int = 1) -> int:
        """Leave the oldest messages out of the prompt (see `pick_cut`); how many there were."""
        epoch = self.epoch(session)
        self._catch_up(epoch)
        marks = epoch.marks
        cut = pick_cut([m.cost for m in marks], [m.from_person for m in marks], wanted, needed)
        if cut:
            epoch.skipped = marks[cut - 1].seq
            epoch.tokens -= sum(mark.cost for mark in marks[:cut])
            del epoch.rendered[:cut], marks[:cut]
        return cut

    def _new_epoch(self, session: Session, label: str, today: date) -> Epoch:
        parts = tuple(self._system.parts())
        text = SEPARATOR.join(part.text for part in parts)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass") + self._tools.wire)
        memory = self._system.memory_text()
        return Epoch(
            session,
            label,
            session.revision,
            today,
            system_message(text),
            digest.hexdigest()[:16],
            parts,
            memory,
            memory,
            estimate_tokens(text) + self._tool_tokens,
        )

    def _catch_up(self, epoch: Epoch) -> list[PromptMessage]:
        """Render what was added since the last time."""
        last = epoch.marks[-1].seq if epoch.marks else epoch.skipped
        if epoch.session.next_seq == last + 1:
            return epoch.rendered
        history = epoch.session.get_history(max_messages=0, max_tokens=0)
        for message in history[bisect.bisect_right(history, last, key=lambda m: m.seq) :]:
            rendered = self.render(epoch, message)
            cost = message_tokens(rendered)
            epoch.rendered.append(rendered)
            epoch.marks.append(Mark(message.seq, cost, message.from_person))
            epoch.tokens += cost
        return epoch.rendered

    def _cost(self, epoch: Epoch, message: Message) -> int:
        """What a message will take, without loading its images for that."""
        bare = replace(message, media=()) if message.media else message
        return message_tokens(self.render(epoch, bare)) + IMAGE_TOKENS * len(message.media)

    def _images(self, message: Message) -> tuple[Image, ...]:
        if self._load_image is None:
            return ()
        return tuple(filter(None, map(self._load_image, message.media)))


def message_tokens(message: PromptMessage) -> int:
    """About how many tokens a message takes, calls and images included."""
    calls = sum(estimate_tokens(call.arguments) + 8 for call in message.tool_calls)
    images = IMAGE_TOKENS * len(message.images)
    return MESSAGE_OVERHEAD + estimate_tokens(message.text) + calls + images


def pick_cut(
    costs: Sequence[int], from_person: Sequence[bool], wanted: int, needed: int = 1
) -> int:
    """How many messages to drop from the front so that at least `wanted` tokens go.

    A cut falls in front of a person's message, so that no call is parted from its result. Where no
    such cut lets that much go, the last one that lets `needed` go is taken, and where there is none
    of these either, everything goes: the message to be answered comes after these.
    """
    if wanted <= 0:
        return 0
    gone, best = 0, 0
    for index, cost in enumerate(costs):
        if index and from_person[index] and gone >= needed:
            best = index
            if gone >= wanted:
                break
        gone += cost
    return best or len(costs)


def shorten(text: str, limit: int) -> str:
    """`text`, or its head and tail with a note between them where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    head = limit * 3 // 4
    note = f"\n[… {left_out} characters left out here to fit; the whole text is stored …]\n"
    return text[:head] + note + text[head + left_out :]
