"""Dialogue: adapts a conversation to the server that receives it. Pure.

Conversations are stored as they happened: models write nonsense, people interrupt, crashes cut
turns off. Servers enforce rules, and a conversation that breaks one would be refused in every later
request too. So every request passes here. Valid messages stay byte for byte the same. The output
for a longer conversation begins with the output for its beginning, up to the text of the last
message there, because provider caches match on that.

The rules:

1. The arguments of a tool call are the text of a JSON object.
2. Ids of tool calls are unique. The server that made a call gets its own id, others get ours, in
   the dialect's form.
3. Each call has one result, right after it, in the order of the calls; a result without a call is
   left out.
4. In strict form user and assistant take turns, messages in a row become one, and an assistant
   message separates a tool's result from the next user message.
5. The system message is first, and the only one. A user message follows it. If the dialect fills
   empty messages, every message has content."""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from nanobot.messages import TURN_FAILED, TURN_STOPPED, ProviderData, ToolCall
from nanobot.providers.dialect import CallIds, Dialect
from nanobot.providers.port import (
    PromptMessage,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)

NO_RESULT = "Error: this call has no result; nothing is known of what it did"
CONTINUED = "[nanobot: the conversation goes on here]"
"""User message before a conversation that begins with an assistant message."""
NOTED = "(continued)"
"""Assistant message between a tool's result and a user message, in strict form. It is never stored
or shown. Small models imitate it, so it promises nothing."""
_ENDS = {TURN_STOPPED: "(stopped)", TURN_FAILED: "(no answer)"}
"""Notes after a turn without a complete answer, as the answer or its end in strict form. Joined to
the next question, they would make small models answer the note."""
_MOST_RECENT = 32  # conversations
_MOST_FORMS = 4  # of one message
_NO_THINKING = " "  # Kimi treats an empty text as a missing one
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Gemini's documented placeholder for calls that it did not make."""


class Dialogue:
    """Adapted requests of many conversations. A request that extends an earlier one costs only its
    new messages: the latest conversations are cached by their message objects."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, _WireConversation] = OrderedDict()

    def wire_messages(
        self, messages: Sequence[PromptMessage], dialect: Dialect, source: str
    ) -> list[bytes]:
        """Return the messages for Chat Completions, each as JSON. `source` is the receiving server
        and model."""
        messages = tuple(messages)
        key = id(messages[1]) if len(messages) > 1 else 0
        wiring = self._recent.pop(key, None)
        if wiring is None or not wiring.begins(messages, dialect, source):
            wiring = _WireConversation(dialect, source)
        if wiring.extend(messages):
            if not wiring.has_images:  # too large to cache
                self._recent[key] = wiring
            if len(self._recent) > _MOST_RECENT:
                self._recent.popitem(last=False)
        else:
            messages = tuple(well_formed(messages, dialect))
            wiring = _WireConversation(dialect, source)
            wiring.extend(messages)
        wires = wiring.wires
        if dialect.cache_marks and "cache_control" not in dialect.dropped:
            wires = list(wires)
            for position in anthropic_cache_breakpoints(messages):
                wires[position] = add_cache_breakpoint(wires[position])
        return wires


class _WireConversation:
    """A conversation for one server: the messages so far, and each as JSON."""

    def __init__(self, dialect: Dialect, source: str) -> None:
        self._dialect, self._source = dialect, source
        self._messages: tuple[PromptMessage, ...] = ()
        self._before, self._bad_predecessors = "", list_bad_predecessors(dialect)
        self._open: list[tuple[str, str]] = []
        """Calls without a result, in reverse: our ids and the ids on the wire."""
        self._ids = WireIds(dialect.call_ids)
        self.wires: list[bytes] = []
        self.has_images = False

    def begins(self, messages: tuple[PromptMessage, ...], dialect: Dialect, source: str) -> bool:
        """Return True if a request for this server begins with the messages so far."""
        same = self._dialect == dialect and self._source == source
        return same and messages[: len(self._messages)] == self._messages

    def extend(self, messages: tuple[PromptMessage, ...]) -> bool:
        """Add the messages after those so far. Return False if they break one of the rules 3 to
        5."""
        for message in messages[len(self._messages) :]:
            if not self._may_follow(message):
                return False
            self.wires.append(self._encode(message))
            self._before = message.role
            self.has_images = self.has_images or bool(message.images)
        self._messages = messages
        return not self._open

    def _may_follow(self, message: PromptMessage) -> bool:
        if self._dialect.fills_empty and is_empty(message):
            return False
        if self._open or message.role == "tool":
            wanted = self._open[-1][0] if self._open else None
            return message.role == "tool" and message.tool_call_id == wanted
        return self._before not in self._bad_predecessors[message.role]

    def _encode(self, message: PromptMessage) -> bytes:
        """Apply rule 2 and the dialect's form of assistant messages."""
        if message.role == "tool":
            return replace_id(message, self._open.pop()[1])
        if not message.tool_calls:
            return message.wire
        data = message.provider_data
        own = data if data is not None and data.source == self._source else None
        wire_ids = self._ids.of(message.tool_calls, own)
        pairs = zip(message.tool_calls, wire_ids, strict=True)
        self._open = [(call.id, wire_id) for call, wire_id in pairs][::-1]
        return encode_calls(message, wire_ids, own, self._dialect)


def list_bad_predecessors(dialect: Dialect) -> Mapping[str, Collection[str]]:
    """Return the roles that a message of each role may not follow. "" is the beginning."""
    strict = dialect.strict_roles
    return {
        "assistant": ("", "system", *(["assistant"] if strict or dialect.joins_answers else [])),
        "user": ("user", "tool") if strict else (),
        "system": ("system", "user", "assistant", "tool", *([] if dialect.system_role else [""])),
    }


def is_empty(message: PromptMessage) -> bool:
    return not (message.text.strip() or message.tool_calls or message.images)


def well_formed(messages: Sequence[PromptMessage], dialect: Dialect) -> list[PromptMessage]:
    """Return a conversation that keeps rules 3 to 5, with as few changes as possible."""
    said = list(with_results(messages))
    said = list(map(fill_empty, said)) if dialect.fills_empty else said
    if said and said[0].role != "user":
        said.insert(0, user_message(CONTINUED))
    said = join_runs(said, dialect)
    system = "\n\n".join(one.text for one in messages if one.role == "system")
    if system and dialect.system_role:
        said.insert(0, system_message(system))
    elif system:
        said[:1] = [join_messages(user_message(system), *said[:1])]
    return said


def with_results(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    """Apply rule 3 and drop system messages. A result is searched up to the next assistant
    message."""
    at = 0
    while at < len(messages):
        first, at = messages[at], at + 1
        if first.role in ("tool", "system"):
            continue
        yield first
        if not first.tool_calls:
            continue
        end = next(
            (n for n in range(at, len(messages)) if messages[n].role == "assistant"), len(messages)
        )
        group, at = messages[at:end], end
        yield from find_results(first.tool_calls, [one for one in group if one.role == "tool"])
        yield from (one for one in group if one.role == "user")


def find_results(
    calls: Iterable[ToolCall], results: list[PromptMessage]
) -> Iterator[PromptMessage]:
    for call in calls:
        found = next((one for one in results if one.tool_call_id == call.id), None)
        if found is not None:
            results.remove(found)
        yield found or tool_message(call.id, NO_RESULT)


def join_runs(messages: Iterable[PromptMessage], dialect: Dialect) -> list[PromptMessage]:
    """Apply rule 4. Outside strict form, only assistant messages in a row become one."""
    strict = dialect.strict_roles
    joined = {"user": strict, "assistant": strict or dialect.joins_answers}
    runs: list[list[PromptMessage]] = []
    for message in insert_answers(messages) if strict else messages:
        if runs and runs[-1][-1].role == message.role and joined.get(message.role):
            runs[-1].append(message)
        else:
            runs.append([message])
    return [join_messages(*run) for run in runs]


def insert_answers(messages: Iterable[PromptMessage]) -> Iterator[PromptMessage]:
    """Insert the answers that strict servers require."""
    before = ""
    for message in messages:
        ends = message.role == "user" and message.text in _ENDS
        if before == "tool" and message.role == "user" and not ends:
            yield assistant_message(NOTED)
        yield assistant_message(_ENDS[message.text]) if ends else message
        before = "assistant" if ends else message.role


def join_messages(*run: PromptMessage) -> PromptMessage:
    """Join messages of one role, with a blank line between them. Linear, because a client may send
    thousands."""
    last = run[-1]
    if len(run) == 1:
        return last
    text = "\n\n".join(one.text for one in run if one.text)
    if last.role == "user":
        return user_message(text, tuple(chain.from_iterable(one.images for one in run)))
    return assistant_message(text, last.tool_calls, last.provider_data)


def fill_empty(message: PromptMessage) -> PromptMessage:
    """Apply rule 5: no message is empty."""
    if not is_empty(message):
        return message
    match message.role:
        case "tool":
            return tool_message(message.tool_call_id, "(no output)")
        case "assistant":
            return assistant_message("(no text)")
        case _:
            return user_message("(empty)")


class WireIds:
    """Ids on the wire for the calls of one request, each used once."""

    def __init__(self, form: CallIds) -> None:
        self._form, self._fits = form, _FORMS[form]
        self._used: set[str] = set()
        self._count = 0

    def of(self, calls: Sequence[ToolCall], own: ProviderData | None) -> tuple[str, ...]:
        """Return the ids of a message's calls: the server's own if it made the calls."""
        given = own.call_ids if own is not None and len(own.call_ids) == len(calls) else ()
        # Encrypted reasoning contains the id of its call.
        bound = own is not None and "reasoning_details" in own.fields
        return tuple(
            self._next(call, given[position] if given else "", bound)
            for position, call in enumerate(calls)
        )

    def _next(self, call: ToolCall, own: str, bound: bool) -> str:
        number, self._count = self._count, self._count + 1
        kimi = self._form == "kimi"
        wire_id, attempt = own, 0
        if not own or not (bound or self._fits.fullmatch(own)):  # some servers refuse their own ids
            wire_id = f"functions.{call.name}:{number}" if kimi else call.id
            bound = False
        while wire_id in self._used or not (bound or self._fits.fullmatch(wire_id)):
            bound = False
            if kimi:
                wire_id = f"functions.{call.name}:{number + attempt}"
            else:
                seed = f"{call.id}\0{attempt}".encode("utf-8", "surrogatepass")
                wire_id = hashlib.sha256(seed).hexdigest()[:9]
            attempt += 1
        self._used.add(wire_id)
        return wire_id


_FORMS: Mapping[CallIds, re.Pattern[str]] = {
    "any": re.compile(r"[A-Za-z0-9_-]{1,40}"),  # at most 40 for OpenAI, these letters for Anthropic
    "nine": re.compile(r"[A-Za-z0-9]{9}"),
    "kimi": re.compile(r"functions\..+:\d+"),
}
_CALLS_ONLY = b'{"role":"assistant","content":null,'  # how `assistant_message` begins without text
_NO_TEXT = b'{"role":"assistant","content":"",'


def encode_calls(
    message: PromptMessage, ids: tuple[str, ...], own: ProviderData | None, dialect: Dialect
) -> bytes:
    """Return an assistant message with calls as JSON. Cached per message and form."""
    wishes = dialect.reasoning_content, dialect.reads_reasoning, dialect.signatures
    form = (ids, own is not None, dialect.strict_roles, *wishes)
    if (known := message.forms.get(form)) is not None:
        return known
    fields, call_fields = select_fields(own, dialect, len(ids))
    wire = message.wire
    if fields or any(call_fields) or ids != tuple(call.id for call in message.tool_calls):
        body: dict[str, Any] = json.loads(wire)
        for call, wire_id, more in zip(body["tool_calls"], ids, call_fields, strict=True):
            call |= {"id": wire_id, **more}
        wire = json.dumps(body | fields, separators=(",", ":")).encode()
    if dialect.strict_roles and wire.startswith(_CALLS_ONLY):  # templates fail on null
        wire = _NO_TEXT + wire[len(_CALLS_ONLY) :]
    if len(message.forms) == _MOST_FORMS:  # Kimi's ids change when a conversation is shortened
        message.forms.clear()
    message.forms[form] = wire
    return wire


_THINKING = ("reasoning_content", "reasoning")


def select_fields(
    own: ProviderData | None, dialect: Dialect, calls: int
) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    """Return the fields that the server gets back in a message, and in each of its calls."""
    reads = dialect.reasoning_content or dialect.reads_reasoning
    known, call_fields = (own.fields, own.call_fields) if own else ({}, ())
    fields = {name: value for name, value in known.items() if reads or name not in _THINKING}
    if dialect.reasoning_content:
        fields.setdefault("reasoning_content", _NO_THINKING)
    given = list(call_fields) if len(call_fields) == calls else [{}] * calls
    if dialect.signatures and not given[0].get("extra_content"):
        given[0] = {**given[0], "extra_content": _UNSIGNED}
    return fields, given


def replace_id(message: PromptMessage, wire_id: str) -> bytes:
    """Return a tool's result for the call `wire_id`. Its text may be long, so it is not encoded
    again."""
    if wire_id == message.tool_call_id:
        return message.wire
    head = b'{"role":"tool","tool_call_id":'
    old = len(json.dumps(message.tool_call_id))
    return head + json.dumps(wire_id).encode() + message.wire[len(head) + old :]


_BREAKPOINTS = 3  # in the messages; Anthropic accepts four in all


def anthropic_cache_breakpoints(messages: Sequence[PromptMessage]) -> tuple[int, ...]:
    """Return the positions of the messages whose last part gets a breakpoint of Claude's prompt
    cache, in order: never an assistant message.

    Anthropic caches a prompt up to each block marked with `cache_control`. A later request reads an
    entry if it has a mark on the same block, or less than 20 blocks after it. Each request ends
    right before the newest assistant message of the next one. So the marks are on the system prompt
    (the tools come before it), on the newest message, for the next request, and on the ends of the
    last two requests, for this one. They hit exactly, however many blocks a step adds.

    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    ends: list[int] = []
    is_end = True
    for position in range(len(messages) - 1, -1, -1):
        role = messages[position].role
        if is_end and role in ("user", "tool"):
            ends.append(position)
            if len(ends) == _BREAKPOINTS:
                break
        is_end = role == "assistant" or (is_end and role == "system")
    system = (0,) if messages and messages[0].role == "system" else ()
    return (*system, *reversed(ends))


def add_cache_breakpoint(wire: bytes) -> bytes:
    """Return a message of Chat Completions with a breakpoint on its last part.

    OpenRouter forwards it to Claude. An assistant message cannot have one and stays unchanged.

    Source: https://openrouter.ai/docs/features/prompt-caching"""
    body = json.loads(wire)
    content = body.get("content")
    if body["role"] == "assistant" or not content:
        return wire
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts = [*parts[:-1], parts[-1] | {"cache_control": {"type": "ephemeral"}}]
    return json.dumps(body | {"content": parts}, separators=(",", ":")).encode()
