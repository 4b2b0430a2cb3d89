"""Which messages leave the prompt when room must be made, and how the model reads them. Pure.

A conversation is a row of messages, each with a cost in tokens. What leaves is always its oldest
part, so a plan is one number: how many messages go. Two rules say where the row may be parted:

- A *joint* is a place where no call stands on one side and its result on the other: a model's API
  refuses either without the other.
- A *turn* begins at a joint in front of a user message that does not belong to the turn before it
  (a message that a person sent into a running turn does).

`pick_consolidation_boundary` takes the first turn at which enough tokens have left. Enough is what
was wanted, but at least `least` (a tenth of the budget): many small consolidations would cost a
call and a new prompt prefix each. Where no turn begins late enough, the newest turn is too large by
itself: what is before it goes first if that is enough to be worth a call, and otherwise the turn is
parted at a joint inside. Where there is no joint either, everything goes. So there is always
progress, and a caller that plans again after each step ends.

`pick_window_boundary` is the rule by count, which makes a large context window not mean "never".

`request_text` shows a stretch to the consolidating model, one line a message: `[2026-03-10T18:00]
USER: …`, `ASSISTANT [tools: a, b]: …`, `TOOL: …`, with `?` where no time is known. Further lines
are indented, so that nothing inside a message can pass for a message of its own. The request must
fit the model's window: a long message is shown by its head and tail, a tool's result more briefly
than the person's words, and where a stretch is still too long its longest messages are shortened to
one length that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

from msgspec import Struct

from nanobot.memory.taint import origins_of
from nanobot.messages import Message
from nanobot.providers.port import estimate_tokens
from nanobot.session.session import Session
from nanobot.text import counted, shortened


def pick_consolidation_boundary(
    messages: Sequence[Message], costs: Sequence[int], wanted: int, least: int = 1
) -> int:
    """How many of the oldest messages go so that `wanted` tokens leave, and at least `least`.

    `costs` are tokens, one for each message. 0 only where there are no messages.
    """
    if not messages:
        return 0
    needed = max(wanted, least, 1)
    gone = [0, *accumulate(costs)]
    joints = joints_of(messages)
    turns = _turns_of(messages)
    for index in turns:
        if gone[index] >= needed:
            return index
    if turns and gone[turns[-1]] >= max(least, 1):
        return turns[-1]
    return next((index for index in joints if gone[index] >= needed), len(messages))


def pick_window_boundary(messages: Sequence[Message], window: int, chunk: int) -> int:
    """How many of the oldest messages go once there are `window` of them: about `chunk`.

    The number is rounded down to a turn, or up where none begins that early. 0 where there are
    fewer than `window`, where `window` is 0 (no limit), and where there is but one turn.
    """
    if window <= 0 or len(messages) < window:
        return 0
    turns = _turns_of(messages)
    early = [index for index in turns if index <= chunk]
    return early[-1] if early else next(iter(turns), 0)


def newest_turn(messages: Sequence[Message]) -> int:
    """Where the newest turn begins; 0 where there is but one."""
    return next(reversed(_turns_of(messages)), 0)


def _turns_of(messages: Sequence[Message]) -> list[int]:
    """Where turns begin, in order, but for the first."""
    return [index for index in joints_of(messages) if begins_turn(messages, index)]


def joints_of(messages: Sequence[Message]) -> list[int]:
    """The places inside the row, in order, where it may be parted."""
    called = dict[str, int]()
    open_until = list(range(len(messages)))
    for index, message in enumerate(messages):
        if message.role == "tool" and (at := called.get(message.tool_call_id)) is not None:
            open_until[at] = index
        for call in message.tool_calls:
            called[call.id] = index
    joints = list[int]()
    reach = 0
    for index in range(1, len(messages)):
        reach = max(reach, open_until[index - 1])
        if reach < index:
            joints.append(index)
    return joints


def begins_turn(messages: Sequence[Message], index: int) -> bool:
    """Whether the message at `index` (not the first) begins a turn."""
    message, before = messages[index], messages[index - 1]
    if message.role != "user":
        return False
    if message.turn_id:
        return message.turn_id != before.turn_id
    return message.origin != "nanobot"


class PromptSize(Protocol):
    """How large a session's prompt is. All numbers are estimates in tokens, before correction."""

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """Of the whole prompt, with the `coming` messages after it."""
        ...

    def fixed_tokens(self, session: Session) -> int:
        """Of the system prompt and the tools."""
        ...

    def cost(self, session: Session, message: Message) -> int:
        """Of one message."""
        ...

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        """The prompt's text, for an exact count."""
        ...


class Limits(Struct, frozen=True):
    """When consolidation sets in.

    `budget` is how many tokens a prompt may have, `window` how many messages may wait before the
    oldest `chunk` go (0: any number), `idle_minutes` after how long a resting session is put away
    (0: never). `model` overrides the configured model.
    """

    budget: int
    window: int = 100
    chunk: int = 50
    idle_minutes: int = 0
    model: str = ""


EMPTY = "(empty)"

_MOST_CHARACTERS = {"user": 24_000, "assistant": 6_000, "tool": 2_000}
_SHARE_OF_ROOM = {"user": 0.5, "assistant": 0.25, "tool": 0.125}
_LEAST_TOKENS = 24
_RAW_CHARACTERS = 1_200
_RAW_LINE = 160


class Chunk(Struct, frozen=True):
    """The messages `first` to `last` of a conversation; `messages` lacks retracted ones."""

    session: str
    first: int
    last: int
    messages: tuple[Message, ...]

    @property
    def shown(self) -> tuple[Message, ...]:
        """Those that a model is shown."""
        return tuple(message for message in self.messages if is_shown(message))

    @property
    def is_unattended(self) -> bool:
        """Whether its turns are all begun by nanobot itself and no person said anything.

        The rest of a turn whose beginning is put away already is not.
        """
        has_turn = any(message.role == "user" for message in self.messages)
        return has_turn and not any(message.role == "user" for message in self.shown)

    @property
    def origins(self) -> tuple[str, ...]:
        """Where content came from that is neither the person's own nor nanobot's."""
        return tuple(sorted(origins_of(self.messages)))


def is_shown(message: Message) -> bool:
    """Whether a message has content that memory is about."""
    return message.origin != "nanobot" and bool(message.content.strip() or message.media)


def request_text(memory: str, chunk: Chunk, room: int, again: str = "") -> str:
    """The user message of a consolidation.

    `memory` is the long-term memory as it is shown, empty where nothing was learned yet; `room` is
    how many tokens the conversation may take. `again` says what was wrong with the last answer.
    """
    head = "Process this conversation and call the save_memory tool with your consolidation."
    if again:
        head += f"\n\nYour last answer could not be used: {again}."
    return (
        f"{head}\n\n## Current Long-term Memory\n{memory.strip() or EMPTY}\n\n"
        f"## Conversation to Process\n{conversation(chunk.shown, room)}"
    )


def conversation(messages: Sequence[Message], room: int) -> str:
    """The lines of these messages, shortened to about `room` tokens in all."""
    texts = [head_and_tail(_content(message), _limit(message, room)) for message in messages]
    costs = [estimate_tokens(text) for text in texts]
    left = room - sum(estimate_tokens(_head(message)) + 2 for message in messages)
    if sum(costs) > left:
        level = _level(costs, left)
        texts = [
            head_and_tail(text, level) if cost > level else text
            for text, cost in zip(texts, costs, strict=True)
        ]
    return "\n".join(
        f"{_head(message)} {_indented(text)}".rstrip()
        for message, text in zip(messages, texts, strict=True)
    )


def head_and_tail(text: str, tokens: int) -> str:
    """`text`, or its head and tail where it takes more than about `tokens`."""
    cost = estimate_tokens(text)
    if cost <= tokens:
        return text
    keep = max(0, int(len(text) * tokens / cost) - 48)
    head = keep * 3 // 4
    tail = text[len(text) - (keep - head) :]
    return f"{text[:head]} [… {len(text) - keep} characters left out …] {tail}".strip()


def raw_summary(chunk: Chunk) -> str:
    """What an entry says for a stretch that no model summarised: how it began, in its own words."""
    said = [words for message in chunk.shown if (words := message.own_words.strip())]
    said = said or [_content(message) for message in chunk.shown if message.role == "assistant"]
    lines = [shortened(text, _RAW_LINE) for text in said]
    fitting = sum(size <= _RAW_CHARACTERS for size in accumulate(map(len, lines)))
    excerpt = " / ".join([*lines[:fitting], *(["…"] if fitting < len(lines) else [])])
    count = counted(len(chunk.messages), "message")
    kept = f"{count}, not summarised; the full text is in the archive."
    return f"{kept} Excerpt: {excerpt}" if excerpt else kept


def _head(message: Message) -> str:
    time = message.timestamp.strftime("%Y-%m-%dT%H:%M") if message.timestamp else "?"
    used = message.role == "assistant" and message.tools_used
    tools = f" [tools: {', '.join(message.tools_used)}]" if used else ""
    return f"[{time}] {message.role.upper()}{tools}:"


def _content(message: Message) -> str:
    parts = [_mark(message), message.content.strip()]
    if message.media:
        parts.append(f"[sent: {', '.join(path.rpartition('/')[2] for path in message.media)}]")
    return " ".join(filter(None, parts))


def _mark(message: Message) -> str:
    """What says that these are not the person's own words."""
    kind, _, name = message.origin.partition(":")
    match kind:
        case "":
            return ""
        case "attached":
            own = message.role == "assistant"
            return "" if own else "[what stands in brackets is not the person's own words]"
        case "forwarded":
            return "[forwarded: not the person's own words]"
        case "person":
            return f"[said by another person, {name}]"
        case "tool":
            return f"[untrusted content from {name}]"
        case _:
            return f"[untrusted content from {message.origin}]"


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines())


def _limit(message: Message, room: int) -> int:
    """How many tokens a message may take by itself."""
    text = min(_MOST_CHARACTERS[message.role] // 3, int(room * _SHARE_OF_ROOM[message.role]))
    return max(text, _LEAST_TOKENS)


def _level(costs: Sequence[int], room: int) -> int:
    """The length to which all longer ones must be cut so that the sum is within `room`."""
    left, waiting = room, len(costs)
    for cost in sorted(costs):
        if cost * waiting >= left:
            break
        left -= cost
        waiting -= 1
    return max(left // max(waiting, 1), _LEAST_TOKENS)
