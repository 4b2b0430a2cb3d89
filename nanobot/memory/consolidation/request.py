"""What the consolidating model is asked, and what its answer means. Pure.

The request shows a stretch one line a message: `[2026-03-10T18:00] USER: …`, `ASSISTANT [tools: a,
b]: …`, `TOOL: …`, with `?` where no time is known. Further lines are indented, so that nothing
inside a message can pass for a message of its own. It must fit the model's window: a long message
is shown by its head and tail, a tool's result more briefly than the person's words, and where a
stretch is still too long its longest messages are shortened to one length that fits.

The answer is a call of `save_memory`. Models send arguments as a JSON string in a string, as a
list, with objects where text is due, with fields missing, in a code fence, cut off, or as text
instead of a call. What can be understood is taken; for the rest there is a reason that the model
can act on.

What the answer may change is decided in `changes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from nanobot.memory.answers import json_object
from nanobot.memory.cleaning import MOST_ANSWER, clean_line, without_thinking
from nanobot.memory.history import STAMP
from nanobot.memory.taint import origins_of
from nanobot.messages import Message
from nanobot.providers.port import Reply, ToolSpec, estimate_tokens
from nanobot.text import counted, shortened

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
SAVE_MEMORY = ToolSpec(
    name="save_memory",
    description="Save the consolidation of the conversation to memory.",
    parameters={
        "type": "object",
        "properties": {
            "history_entry": _TEXT
            | {
                "description": (
                    "A paragraph of 2 to 5 sentences on key events, decisions and topics. Starts "
                    "with [YYYY-MM-DD HH:MM]. With detail that a text search would look for."
                ),
            },
            "memory_update": _TEXT
            | {
                "description": (
                    "The full updated long-term memory as Markdown: all existing facts and the new "
                    "ones. Unchanged if nothing is new."
                ),
            },
            "key_facts": _TEXTS | {"description": "Facts of one line each, with dates resolved."},
            "quotes": _TEXTS
            | {"description": "First words of lines of USER's that are kept whole, as written."},
        },
        "required": ["history_entry", "memory_update"],
    },
)

KEPT = "[marked to keep]"
"""Before what the person said is important."""

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
        """Those that have content which memory is about."""
        spoken = (message for message in self.messages if message.origin != "nanobot")
        return tuple(message for message in spoken if message.content.strip() or message.media)

    @property
    def origins(self) -> tuple[str, ...]:
        """Where content came from that is neither the person's own nor nanobot's."""
        return tuple(sorted(origins_of(self.messages)))


_HEAD = "Process this conversation and call the save_memory tool with your consolidation."
_MEMORY, _CONVERSATION = "## Current Long-term Memory", "## Conversation to Process"


def own_words() -> list[str]:
    """The texts of a request that are ours, which a model may copy."""
    described = SAVE_MEMORY.parameters["properties"].values()
    return [_HEAD, _MEMORY, _CONVERSATION, *(str(one.get("description", "")) for one in described)]


def request_text(memory: str, chunk: Chunk, room: int, again: str = "") -> str:
    """The user message of a consolidation.

    `memory` is the long-term memory as it is shown, empty where nothing was learned yet; `room` is
    how many tokens the conversation may take. `again` says what was wrong with the last answer.
    """
    head = _HEAD
    if again:
        head += f"\n\nYour last answer could not be used: {again}."
    return (
        f"{head}\n\n{_MEMORY}\n{memory.strip() or '(empty)'}\n\n"
        f"{_CONVERSATION}\n{conversation(chunk.shown, room)}"
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
    indented = ("\n  ".join(text.splitlines()) for text in texts)
    rows = zip(messages, indented, strict=True)
    return "\n".join(f"{_head(message)} {text}".rstrip() for message, text in rows)


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
    parts = [_mark(message), KEPT if message.kept else "", message.content.strip()]
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


_MOST_FACTS, _MOST_LISTED = 40, 400
_LONGEST_FACT = 500
_LONGEST_ENTRY = 8_000
_TRANSCRIPT = re.compile(
    r"(?P<mark>\s*(?:[-*]\s+)?)[\[\]\dT:?.,+ -]{0,32}"
    r"(?:(?P<who>USER|ASSISTANT|TOOL)(?: \[[^\]\n]*\])?|\[tools: [^\]\n]*\]):\s*"
)
"""A line of the shown conversation, also as small models copy it, with or without its time."""
_TEXT_FIELDS = ("text", "content", "summary", "entry", "markdown", "fact", "value")


class Saved(Struct, frozen=True):
    """A consolidation. `memory_update` None: there is nothing to change. `quotes` are words of
    lines of the person's to be remembered as they stand."""

    history_entry: str
    memory_update: str | None = None
    key_facts: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()


def read_reply(reply: Reply) -> Saved | str:
    """What a model's reply saves, or why it saves nothing, told to the model."""
    try:
        return _read_reply(reply)
    except RecursionError:
        return "the arguments of save_memory are nested too deeply"


def _read_reply(reply: Reply) -> Saved | str:
    call = next((call for call in reply.tool_calls if call.name == SAVE_MEMORY.name), None)
    text = (call.malformed or call.arguments) if call else reply.text
    if len(text) > MOST_ANSWER:
        return f"the answer has more than {MOST_ANSWER:,} characters"
    fields = json_object(text, () if call else {"history_entry"})
    if fields is not None:
        return _read_fields(fields)
    if call:
        cut = reply.finish == "length"
        problem = "were cut off: be shorter" if cut else "are no JSON object"
        return f"the arguments of save_memory {problem}"
    return _problem_without_call(reply)


def _problem_without_call(reply: Reply) -> str:
    if reply.tool_calls:
        return f"{reply.tool_calls[0].name[:60]!r} was called instead of save_memory"
    from nanobot.providers.refusals import is_filter  # a start does without

    if is_filter(reply.finish):
        return f"the provider's filter withheld the answer ({reply.finish})"
    came = "text came instead of a call" if reply.text.strip() else "no call came"
    return f"{came}; save_memory must be called"


def _read_fields(fields: Mapping[str, object]) -> Saved | str:
    entry = clean_line(without_thinking(_text(fields.get("history_entry"))))[:_LONGEST_ENTRY]
    if not STAMP.sub("", entry, count=1).strip():
        return "history_entry is missing or empty; it must be a paragraph of text"
    update = _text(fields.get("memory_update"), "\n")
    update = _without_transcript(without_thinking(update))
    key_facts, quotes = (_lines(fields.get(key)) for key in ("key_facts", "quotes"))
    return Saved(entry, update.strip("\n") if update.strip() else None, key_facts, quotes)


def _without_transcript(update: str) -> str:
    """Return a memory update without fences and lines of the conversation, which models copy.
    The person's own words stay, without the time and name in front of them."""
    lines = ((line, _TRANSCRIPT.match(line)) for line in update.split("\n"))
    kept = (
        f"{found['mark']}{line[found.end() :]}" if found else line
        for line, found in lines
        if (not found or found["who"] == "USER") and not line.lstrip().startswith("```")
    )
    return "\n".join(kept)


def _text(value: object, between: str = " ") -> str:
    """The text of a value that should be a string."""
    match value:
        case str():
            return value
        case list():
            return between.join(filter(None, (_text(item, between) for item in value)))
        case dict():
            texts = (_text(value.get(name), between) for name in _TEXT_FIELDS)
            return next(filter(None, texts), "")
    return ""


def _lines(value: object) -> tuple[str, ...]:
    """Each fact once, on one line."""
    listed = value.splitlines() if isinstance(value, str) else value
    if not isinstance(listed, list):
        return ()
    texts = (clean_line(_text(item)).removeprefix("- ") for item in listed[:_MOST_LISTED])
    return tuple(dict.fromkeys(text[:_LONGEST_FACT] for text in texts if text))[:_MOST_FACTS]
