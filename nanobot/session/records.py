"""The lines of a session file: JSON objects, one per line, UTF-8, append-only.

There are five kinds: a message (it has a `role`), `_type: metadata` (a later line replaces an
earlier line), `_type: epoch`, which seals everything up to its `seq` (`/new`), `_type: retract`,
which removes a turn from the window but not from the file (`/undo`), and `_type: mark`, which sets
or clears a person's wish to keep a message.

Encoding is strict and decoding is lenient: other programs write this format without `seq`, with
naive timestamps (read as local time), with content in parts and tool arguments as objects. A line
that is not a JSON object decodes to None, never to an exception.

File names of sessions are readable, reversible, and never outside the folder.

`telegram:123` is `telegram_123`: the first colon becomes the underscore, and every character other
than `[A-Za-z0-9.@+-]` is percent-encoded, including underscores and further colons, so no two keys
share a name. A leading dot is encoded too: no name is hidden, `.` or `..`. A key that is too long
for a file name is cut and gets a hash. The metadata in the file then holds the whole key."""

from __future__ import annotations

import hashlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from msgspec import DecodeError, Struct, ValidationError, convert, to_builtins
from msgspec.json import Decoder
from msgspec.structs import replace

from nanobot.io import json_line
from nanobot.messages import Attachment, Message, ProviderData, Role, ToolCall

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


class Metadata(Struct, frozen=True):
    """Facts about the whole session.

    `last_consolidated` is the seq up to which memory holds the conversation. `first_seq` is the
    first seq in the file (earlier messages are archived), or 0 if the writer did not set it.
    `epoch` repeats the id of the newest epoch, so that reading it doesn't require a search."""

    key: str
    created_at: datetime | None
    updated_at: datetime | None
    last_consolidated: int = 0
    first_seq: int = 0
    metadata: Mapping[str, Any] | None = None
    epoch: str = ""


class Epoch(Struct, frozen=True):
    """A fresh start: messages up to `seq` left the window. `inbox_id` identifies the request."""

    seq: int
    inbox_id: str
    timestamp: datetime | None

    @property
    def id(self) -> str:
        """An id that is unique in the session."""
        return f"{self.seq}/{self.inbox_id}"


def seq_of_epoch(epoch_id: str) -> int:
    """Return the seq up to which this epoch sealed the conversation, or 0."""
    seq = epoch_id.partition("/")[0]
    return int(seq) if seq.isdecimal() else 0


class Retraction(Struct, frozen=True):
    """The messages `first` to `last` of a turn left the window and memory. With an empty `turn_id`,
    they may be of any turn (`/discard`, `/forget`)."""

    turn_id: str
    first: int
    last: int
    timestamp: datetime | None

    @property
    def seq(self) -> int:
        """The last affected message."""
        return self.last

    def covers(self, message: Message) -> bool:
        """Return True if this removes `message` from the window."""
        return self.turn_id in {"", message.turn_id} and self.first <= message.seq <= self.last


class Mark(Struct, frozen=True):
    """A person's wish to keep the message `seq`, or a withdrawal of it. The last mark of a message
    counts. `by` is the sender's id, `via` the way it was requested."""

    seq: int
    kept: bool
    by: str
    via: str
    timestamp: datetime | None


def with_marks(messages: Iterable[Message], marks: Iterable[Mark]) -> list[Message]:
    """Return the messages with `kept` set by their marks."""
    kept = {mark.seq: mark.kept for mark in marks}
    return [
        message
        if kept.get(message.seq, message.kept) == message.kept
        else replace(message, kept=not message.kept)
        for message in messages
    ]


class Foreign(Struct, frozen=True):
    """An object of an unknown kind. `numbered`: it replaces a message and takes a number."""

    numbered: bool


Record = Message | Metadata | Epoch | Retraction | Mark | Foreign


_NUMBERED = re.compile(
    rb'\{"role":"(?:user|assistant|tool)","content":"[^"\\]*+(?:\\.[^"\\]*+)*+","seq":(\d{1,15})[,}]'
)


# These decode most lines ten times as fast: messages without tool calls, and metadata.
_PLAIN_MESSAGE, _PLAIN_METADATA = Decoder(Message), Decoder(Metadata)
IS_METADATA = b'{"_type":"metadata",'


def encode(record: Message | Metadata | Epoch | Retraction | Mark) -> str:
    """Return the line of a record, with its newline. Fields without a value are left out."""
    return encode_fields(as_fields(record))


def encode_step(message: Message) -> str:
    """Return the line of a message in a running turn. It includes the provider's data for later
    requests, which a session file does not keep."""
    fields = as_fields(message)
    if message.provider_data is not None:
        fields["provider_data"] = to_builtins(message.provider_data)
    return encode_fields(fields)


def as_fields(record: Message | Metadata | Epoch | Retraction | Mark) -> dict[str, JsonValue]:
    match record:
        case Message():
            fields = message_fields(record)
        case Metadata():
            fields = {"_type": "metadata", "key": record.key}
            times = {"created_at": record.created_at, "updated_at": record.updated_at}
            fields |= {name: time.isoformat() for name, time in times.items() if time is not None}
            fields["last_consolidated"] = record.last_consolidated
            fields["first_seq"] = record.first_seq
            if record.epoch:
                fields["epoch"] = record.epoch
            return fields | {"metadata": dict(record.metadata or {})}
        case Epoch():
            fields = {"_type": "epoch", "seq": record.seq, "inbox_id": record.inbox_id}
        case Retraction():
            fields = {"_type": "retract", "turn_id": record.turn_id}
            fields |= {"first": record.first, "last": record.last}
        case Mark():
            fields = {"_type": "mark", "seq": record.seq, "mark": "keep" if record.kept else ""}
            fields |= {"by": record.by, "via": record.via}
    if record.timestamp is not None:
        fields["timestamp"] = record.timestamp.isoformat()
    return fields


def encode_fields(fields: Mapping[str, JsonValue]) -> str:
    """Return the line of an object, with its newline."""
    return json_line(fields) + "\n"


def seq_of(line: bytes) -> int:
    """Return the number in a message line written by `encode`, without parsing the rest. 0 for any
    other line."""
    found = _NUMBERED.match(line)
    return int(found[1]) if found else 0


def decode_fields(line: bytes) -> dict[str, JsonValue] | None:
    """Return the object on a line, or None."""
    try:
        # An editor may have put a byte order mark in front of the first line.
        value = json.loads(line.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, JsonValue]", value) if isinstance(value, dict) else None


def decode(line: bytes) -> Record | None:
    """Return the record on a line, or None if it is broken."""
    try:
        if b'"tool_calls"' not in line and b'"_type"' not in line:
            message = _PLAIN_MESSAGE.decode(line)
            if message.seq >= 0 and (message.timestamp is None or message.timestamp.tzinfo):
                return message
        elif line.startswith(IS_METADATA):
            facts = _PLAIN_METADATA.decode(line)
            naive = any(one and not one.tzinfo for one in (facts.created_at, facts.updated_at))
            if not naive and facts.last_consolidated >= 0 <= facts.first_seq:
                return facts
    except (DecodeError, UnicodeDecodeError, RecursionError):
        pass  # decoded leniently below
    fields = decode_fields(line)
    return None if fields is None else record_of(fields)


def record_of(fields: Mapping[str, JsonValue]) -> Record:
    """Return the record of an object. A message without a number has seq 0."""
    match fields.get("_type"):
        case None:
            return parse_message(fields)
        case "metadata":
            return parse_metadata(fields)
        case "epoch":
            return Epoch(
                natural_number(fields.get("seq")),
                as_text(fields.get("inbox_id")),
                timestamp_of(fields),
            )
        case "retract":
            first, last = natural_number(fields.get("first")), natural_number(fields.get("last"))
            return Retraction(as_text(fields.get("turn_id")), first, last, timestamp_of(fields))
        case "mark":
            by, via = as_text(fields.get("by")), as_text(fields.get("via"))
            is_kept = fields.get("mark") == "keep"
            return Mark(natural_number(fields.get("seq")), is_kept, by, via, timestamp_of(fields))
        case _:
            return Foreign(numbered=False)


def moment(value: JsonValue) -> datetime | None:
    """Parse an aware time, or return None. A naive time is local."""
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
        return parsed.astimezone() if parsed and parsed.tzinfo is None else parsed
    except (ValueError, OverflowError, OSError):
        return None


def natural_number(value: JsonValue) -> int:
    """Return a positive integer from JSON, or 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def message_fields(message: Message) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {"role": message.role, "content": message.content}
    fields["seq"] = message.seq
    if message.tool_calls:
        fields["tool_calls"] = [
            call.as_api() | ({"malformed": call.malformed} if call.malformed else {})
            for call in message.tool_calls
        ]
    texts = ("tool_call_id", "name", "turn_id", "origin", "notice", "about")
    fields |= {name: value for name in texts if (value := getattr(message, name))}
    lists = ("tools_used", "replaces")
    fields |= {name: list(value) for name in lists if (value := getattr(message, name))}
    if message.media:
        fields["media"] = to_builtins(message.media)
    return fields


def parse_message(fields: Mapping[str, JsonValue]) -> Message | Foreign:
    role, provider_data = fields.get("role"), None
    if role not in ("user", "assistant", "tool"):
        return Foreign(numbered=True)
    with suppress(ValidationError):
        provider_data = convert(fields.get("provider_data"), ProviderData | None)
    return Message(
        role=cast("Role", role),
        content=flatten_content(fields.get("content")),
        timestamp=timestamp_of(fields),
        seq=natural_number(fields.get("seq")),
        tool_calls=parse_calls(fields["tool_calls"]) if "tool_calls" in fields else (),
        tool_call_id=as_text(fields.get("tool_call_id")),
        name=as_text(fields.get("name")),
        tools_used=as_texts(fields["tools_used"]) if "tools_used" in fields else (),
        turn_id=as_text(fields.get("turn_id")),
        media=parse_files(fields["media"]) if "media" in fields else (),
        origin=as_text(fields.get("origin")),
        notice=as_text(fields.get("notice")),
        about=as_text(fields.get("about")),
        replaces=as_texts(fields["replaces"]) if "replaces" in fields else (),
        provider_data=provider_data,
    )


def parse_metadata(fields: Mapping[str, JsonValue]) -> Metadata:
    extra = fields.get("metadata")
    return Metadata(
        key=as_text(fields.get("key")),
        created_at=moment(fields.get("created_at")),
        updated_at=moment(fields.get("updated_at")),
        last_consolidated=natural_number(fields.get("last_consolidated")),
        first_seq=natural_number(fields.get("first_seq")),
        metadata=extra if isinstance(extra, dict) else {},
        epoch=as_text(fields.get("epoch")),
    )


def timestamp_of(fields: Mapping[str, JsonValue]) -> datetime | None:
    return moment(fields.get("timestamp"))


def as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def parse_files(value: JsonValue) -> tuple[Attachment, ...]:
    """Return the attached files. A text is the name of a file."""
    found = list[Attachment]()
    for item in value if isinstance(value, list) else ():
        with suppress(ValidationError):
            found.append(Attachment(item) if isinstance(item, str) else convert(item, Attachment))
    return tuple(found)


def flatten_content(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    texts = list[str]()
    for part in value:
        if not isinstance(part, dict):
            texts.append(as_text(part))
        elif part.get("type") in ("image_url", "image", "input_image"):
            texts.append("[image]")
        else:
            texts.append(as_text(part.get("text")))
    return "\n".join(filter(None, texts))


def parse_calls(value: JsonValue) -> tuple[ToolCall, ...]:
    calls = [parse_call(item) for item in value] if isinstance(value, list) else []
    return tuple(call for call in calls if call is not None)


def parse_call(item: JsonValue) -> ToolCall | None:
    if not isinstance(item, dict):
        return None
    function = item.get("function")
    named = function if isinstance(function, dict) else item
    arguments = named.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    malformed = as_text(item.get("malformed"))
    return ToolCall(as_text(item.get("id")), as_text(named.get("name")), arguments, malformed)


SUFFIX = ".jsonl"
_LONGEST = 200
_EMPTY = "%"
_HASH_MARK = "%%"
_UNSAFE = re.compile(rb"[^A-Za-z0-9.@+-]")
_SAFE = re.compile("[A-Za-z0-9@+-][A-Za-z0-9.@+-]*:[A-Za-z0-9.@+-]*")
_FOREIGN_UNSAFE = re.compile(r'[<>:"/\\|?*]')


def is_internal(key: str) -> bool:
    """Return True for nanobot's own conversations: they are scheduled, start empty each time, and
    don't enter memory."""
    return key.startswith(("cron:", "heartbeat:"))


def stem_of(key: str) -> str:
    """Return the file name of a key without the suffix: at most 200 bytes, no `/`."""
    if not key:
        return _EMPTY
    head, colon, tail = key.partition(":")
    if _SAFE.fullmatch(key) and len(key) <= _LONGEST:  # the usual case
        return f"{head}_{tail}"
    stem = percent_encode(head) + ("_" if colon else "") + percent_encode(tail)
    if stem.startswith("."):
        stem = "%2E" + stem[1:]
    if len(stem) <= _LONGEST:
        return stem
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    return f"{stem[: _LONGEST - len(digest) - len(_HASH_MARK)].rstrip('%')}{_HASH_MARK}{digest}"


def key_of(stem: str) -> str:
    """Return the key for a file name. For a name with a hash or a foreign name, it is the likeliest
    key."""
    if stem == _EMPTY:
        return ""
    readable = stem.partition(_HASH_MARK)[0].replace("_", ":", 1)
    # A name that is not UTF-8 has lone surrogates, which become escapes here.
    raw = unquote_to_bytes(readable.encode("utf-8", "backslashreplace"))
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def foreign_stem_of(key: str) -> str:
    """Return the file name that other programs with this format use for a key, or empty if it can't
    be a file name. Several keys may share it."""
    stem = _FOREIGN_UNSAFE.sub("_", key).strip()
    return stem if len(stem) <= _LONGEST and stem.isascii() and stem.isprintable() else ""


def percent_encode(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    return _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], raw).decode("ascii")
