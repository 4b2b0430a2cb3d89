"""A stretch of conversation as the consolidating model reads it.

One line a message that has content: `[2026-03-10T18:00] USER: …`, `ASSISTANT [tools: a, b]: …`,
`TOOL: …`, with `?` where no time is known. Further lines of a message are indented, so that nothing
inside a message can pass for a message of its own; what is not the person's own words says so.
What nanobot itself put into the conversation is left out.

The request must fit the model's window: a long message is shown by its head and tail, a tool's
result more briefly than the person's words, and where a stretch is still too long its longest
messages are shortened to one length that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanobot.memory.grounds.marks import origins_of
from nanobot.messages import Message
from nanobot.tokens import estimate_tokens

EMPTY = "(empty)"

_MOST_CHARACTERS = {"user": 24_000, "assistant": 6_000, "tool": 2_000}
_SHARE_OF_ROOM = {"user": 0.5, "assistant": 0.25, "tool": 0.125}
_LEAST_TOKENS = 24
_LINE_OVERHEAD = 14
"""About the tokens of a line's time, role and end."""

_RAW_CHARACTERS = 1_200
_RAW_LINE = 160


@dataclass(frozen=True, slots=True)
class Chunk:
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
    texts = [shortened(_content(message), _limit(message, room)) for message in messages]
    costs = [estimate_tokens(text) for text in texts]
    left = room - sum(estimate_tokens(_head(message)) + 2 for message in messages)
    if sum(costs) > left:
        level = _level(costs, left)
        texts = [
            shortened(text, level) if cost > level else text
            for text, cost in zip(texts, costs, strict=True)
        ]
    return "\n".join(
        f"{_head(message)} {_indented(text)}".rstrip()
        for message, text in zip(messages, texts, strict=True)
    )


def line_cost(message: Message, room: int) -> int:
    """About how many tokens the line of a message takes where a stretch may take `room`."""
    if not is_shown(message):
        return 0
    return _LINE_OVERHEAD + min(estimate_tokens(_content(message)), _limit(message, room))


def shortened(text: str, tokens: int) -> str:
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
    lines = list[str]()
    left = _RAW_CHARACTERS
    for text in said:
        line = " ".join(text[: 4 * _RAW_LINE].split())
        line = line if len(line) <= _RAW_LINE else f"{line[: _RAW_LINE - 1]}…"
        if len(line) > left:
            lines.append("…")
            break
        lines.append(line)
        left -= len(line)
    told = " / ".join(lines)
    count = len(chunk.messages)
    kept = f"{count} message{'s' * (count != 1)}, not summarised; the full text is in the archive."
    return f"{kept} Excerpt: {told}" if told else kept


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
