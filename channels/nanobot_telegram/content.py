"""The content of a Bot API message: its text, at most one file, and notes about the rest. Pure.

A file becomes a reference that `fetch` understands. Other content (a place, a contact, a poll, or
content that this version does not know) becomes a note of one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

from msgspec import Struct
from telegram import (
    ChecklistTask,
    ExternalReplyInfo,
    Location,
    Message,
    MessageEntity,
    PhotoSize,
    Sticker,
)

from nanobot.bus.events import Media, MediaKind
from nanobot.text import one_line, valid_unicode

Content = Message | ExternalReplyInfo
"""The types that hold the same kinds of content."""


class Me(Struct, frozen=True):
    """The bot. `username` has no `@`. `commands` are the names of its slash commands."""

    id: int
    username: str
    commands: frozenset[str] = frozenset()


# --- text: mentions and links come from Telegram's entities, never from a search

_COMMAND = re.compile(r"\s*/([A-Za-z0-9_-]{1,64})(?:@([A-Za-z0-9_]{1,64}))?(?!\S)(.*)", re.DOTALL)
_START = "start"  # sent by the app's button that opens a chat, possibly with a referrer


class ParsedText(Struct, frozen=True):
    """The text for the agent. `addressed`: it mentions or commands the bot. `links` are notes about
    addresses behind link texts, because the person did not type them."""

    text: str
    addressed: bool = False
    links: tuple[str, ...] = ()


class _Span(Struct, frozen=True):
    """An entity and its range in characters."""

    entity: MessageEntity
    start: int
    end: int


def parse_text(
    text: str, entities: Sequence[MessageEntity], me: Me, *, own: bool
) -> ParsedText | None:
    """Return the text, or None for a command to another bot.

    `own`: the sender wrote it. Forwarded text neither mentions nor commands the bot, and has its
    links written out."""
    text = valid_unicode(text)
    spans = locate_entities(text, entities) if entities else []
    mentions = [span for span in spans if own and is_mention(text, span, me)]
    if not own:
        return ParsedText(write_out_links(text, spans))
    links = tuple(note("link", *one) for one in find_links(text, spans))
    text = text[skip_mention(text, mentions) :]
    command = _COMMAND.fullmatch(text)
    if command is None:
        return ParsedText(text, bool(mentions), links)
    name, bot, rest = command.groups()
    if bot and bot.casefold() != me.username.casefold():
        return None
    if name.lower() == _START:  # in a group, it is for all bots
        return ParsedText("/help", bool(mentions or bot))
    known = name.lower().replace("_", "-") in me.commands
    return ParsedText(f"/{name}{rest}" if bot else text, bool(mentions or bot or known), links)


def words_of(message: Message, *, links: bool = True) -> str:
    """Return the text, the caption, or the text of a rich message, without entities. With `links`,
    a rich message's addresses are written out."""
    rich = message.api_kwargs.get("rich_message")
    return message.text or message.caption or read_rich_text(rich, links=links)


def rich_links(message: Message) -> tuple[str, ...]:
    """Return notes about the addresses behind link texts in a rich message."""
    if message.text or message.caption:
        return ()
    found = find_rich_links(message.api_kwargs.get("rich_message"), 2 * _DEPTH)
    return tuple(note("link", *one) for one in islice(found, _MOST_LINKS))


def find_links(text: str, spans: Sequence[_Span]) -> Iterator[tuple[str, str]]:
    """Yield the text and address of each link whose text hides its address."""
    for span in spans:
        words, url = text[span.start : span.end], valid_unicode(span.entity.url or "")
        hidden = span.entity.type == MessageEntity.TEXT_LINK and url
        if hidden and url.rstrip("/") != words.rstrip("/"):
            yield words, url


def is_mention(text: str, span: _Span, me: Me) -> bool:
    if span.entity.type == MessageEntity.MENTION:
        return text[span.start : span.end].casefold() == f"@{me.username}".casefold()
    user = span.entity.user
    return span.entity.type == MessageEntity.TEXT_MENTION and user is not None and user.id == me.id


def skip_mention(text: str, mentions: Sequence[_Span]) -> int:
    """Return the offset after a leading mention of the bot. 0 if there is none or nothing follows:
    a bare mention is a message too."""
    first = next((span for span in mentions if not text[: span.start].strip()), None)
    if first is None:
        return 0
    rest = text[first.end :].lstrip()
    if rest[:1] in {",", ":"}:
        rest = rest[1:].lstrip()
    return len(text) - len(rest) if rest else 0


def write_out_links(text: str, spans: Sequence[_Span]) -> str:
    """Return the text with the addresses of its links."""
    pieces, at = [], 0
    for span in spans:
        url = valid_unicode(span.entity.url or "")
        if span.start < at or span.entity.type != MessageEntity.TEXT_LINK or not url:
            continue
        pieces.append(text[at : span.end])
        if url.rstrip("/") != text[span.start : span.end].rstrip("/"):
            pieces.append(f" ({url})")
        at = span.end
    return "".join([*pieces, text[at:]])


def locate_entities(text: str, entities: Sequence[MessageEntity]) -> list[_Span]:
    """Return the entities on whole characters, in text order. Telegram's offsets are in UTF-16 code
    units."""
    units = accumulate((1 + (ord(char) > 0xFFFF) for char in text), initial=0)
    index = {unit: at for at, unit in enumerate(units)}
    found = []
    for entity in entities:
        start, end = index.get(entity.offset), index.get(entity.offset + entity.length)
        if start is not None and end is not None and start < end:
            found.append(_Span(entity, start, end))
    return sorted(found, key=lambda span: span.start)


# --- rich messages: a tree of blocks, unparsed by the library

_DEPTH = 32  # levels that are read. People don't write deeper ones.
_MOST_LINKS = 100
_NAMED = ("animation", "audio", "photo", "video", "voice_note", "location")


def read_rich_text(message: object, *, links: bool) -> str:
    """Return the text of a `RichMessage`. Skips unknown shapes and never raises."""
    blocks = _field(message, "blocks")
    if not links:
        blocks = strip_links(blocks, 2 * _DEPTH)
    return valid_unicode("\n".join(read_blocks(blocks, _DEPTH)))


def strip_links(value: object, depth: int) -> object:
    """Return the tree without addresses, to the same depth."""
    if isinstance(value, list):
        return [strip_links(one, depth - 1) for one in value] if depth else []
    if not isinstance(value, Mapping):
        return value
    fields = {name: one for name, one in value.items() if name != "url" or "text" not in value}
    return {name: strip_links(one, depth - 1) for name, one in fields.items()} if depth else {}


def find_rich_links(value: object, depth: int) -> Iterator[tuple[str, str]]:
    inside = value if isinstance(value, list) else []
    if isinstance(value, Mapping):
        inside, url = list(value.values()), value.get("url")
        words = read_inline(strip_links(value.get("text"), depth), _DEPTH)
        if isinstance(url, str) and "text" in value and url.rstrip("/") != words.rstrip("/"):
            yield valid_unicode(words), valid_unicode(url)
    for one in inside if depth else ():
        yield from find_rich_links(one, depth - 1)


def read_blocks(blocks: object, depth: int) -> Iterator[str]:
    for block in _list(blocks) if depth else ():
        if isinstance(block, Mapping) and block.get("type") != "thinking":
            yield from read_block(block, depth - 1)


def read_block(block: Mapping[str, object], depth: int) -> Iterator[str]:
    """Yield the lines of a block of any type: the types differ only in their fields."""
    yield from (f"[{kind.replace('_', ' ')}]" for kind in _NAMED if kind in block)
    own = (read_inline(block.get(name), depth) for name in ("summary", "text", "expression"))
    yield from filter(None, own)
    yield from read_blocks(block.get("blocks"), depth)
    for item in _list(block.get("items")):
        lines = "\n  ".join(read_blocks(_field(item, "blocks"), depth))
        yield f"{read_inline(_field(item, 'label'), depth)} {lines}".strip()
    for row in _list(block.get("cells")):
        yield " | ".join(read_inline(_field(cell, "text"), depth) for cell in _list(row))
    caption = block.get("caption")
    below = (caption, _field(caption, "credit"), block.get("credit"))
    yield from filter(None, (read_inline(value, depth) for value in below))


def read_inline(value: object, depth: int) -> str:
    """Return the text of a `RichText`: a string, a list of them, or one with attributes."""
    if isinstance(value, str):
        return value
    if not depth:
        return ""
    if isinstance(value, list):
        return "".join(read_inline(part, depth - 1) for part in value)
    if not isinstance(value, Mapping):
        return ""
    text = read_inline(value.get("text"), depth - 1)
    url = value.get("url")
    if isinstance(url, str) and url.rstrip("/") != text.rstrip("/"):
        return f"{text} ({url})"
    return text or read_inline(value.get("alternative_text") or value.get("expression"), depth - 1)


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


# --- files

_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
"""Images sent as files. Other images (drawings, raw) are documents."""
_FILES: tuple[tuple[str, MediaKind, str], ...] = (
    ("voice", "voice", "audio/ogg"),
    ("audio", "audio", ""),
    ("live_photo", "video", "video/mp4"),
    ("animation", "video", "video/mp4"),
    ("video", "video", "video/mp4"),
    ("video_note", "video", "video/mp4"),
    ("document", "document", ""),
)
"""Field, kind, usual MIME type. Telegram repeats some kinds under an older name (an animation as a
document), so the first present field counts."""


def file_of(content: Content) -> Media | None:
    """Return the file of a message, or None."""
    photos: Sequence[PhotoSize] = content.photo or ()
    if not photos and content.live_photo is not None:
        photos = content.live_photo.photo or ()
    if photos:
        best = max(photos, key=lambda photo: photo.width * photo.height)
        return as_media(best, "image", "image/jpeg")
    for name, kind, mime in _FILES:
        if (item := getattr(content, name)) is not None:
            return as_media(item, kind, mime)
    sticker = content.sticker
    return as_media(sticker, "image", "image/webp") if sticker and is_still(sticker) else None


def as_media(item: Any, kind: MediaKind, mime: str) -> Media:
    fields: dict[str, str] = item.to_dict()
    title = " - ".join(filter(None, (fields.get("performer"), fields.get("title"))))
    mime = one_line(fields.get("mime_type") or mime).lower()
    name = one_line(fields.get("file_name") or title)
    kind = "image" if kind == "document" and mime in _PICTURES else kind
    return Media(item.file_id, kind, mime, name, item.file_size or 0)


def is_still(sticker: Sticker) -> bool:
    return not (sticker.is_animated or sticker.is_video)


# --- notes

_SILENT = frozenset({"community_chat_added", "community_chat_removed"})
"""Service messages without content that the library does not know yet."""
_LONGEST = 10_000  # characters of a detail. A full checklist has half as many.


def note(kind: str, *details: str | None) -> str:
    """Return `kind: detail, detail`, or `kind` without details."""
    lines = (one_line(detail, _LONGEST) for detail in details if detail)
    known = ", ".join(filter(None, lines))
    return f"{kind}: {known}" if known else kind


def note_of(content: Content) -> str:
    """Return the note about content that is neither text nor a file, or empty."""
    for name, describe in _NOTES.items():
        if (value := getattr(content, name)) is not None:
            return describe(value)
    return ""


def label_of(content: Content) -> str:
    """Return the kind of a quoted message's content, in brackets, or empty if it has only text."""
    file = file_of(content)
    label = note_of(content) or (f"{file.kind} {file.name}".rstrip() if file else "")
    return label and f"[{label}]"


def unknown_in(message: Message) -> str:
    """Return a note about content that this version or its library does not know, or empty."""
    for name, value in message.api_kwargs.items():
        if isinstance(value, dict | list) and name not in _SILENT:
            return note("unsupported message", name.replace("_", " "))
    return ""


def format_coordinates(location: Location) -> str:
    """Format latitude and longitude in degrees, to about a decimetre."""
    numbers = (f"{degrees:.6f}" for degrees in (location.latitude, location.longitude))
    return ", ".join(number.rstrip("0").rstrip(".") for number in numbers)


def describe_location(location: Location) -> str:
    # As a dictionary: reading the attribute emits a deprecation warning.
    moves = location.to_dict().get("live_period")
    return note("live location" if moves else "location", format_coordinates(location))


def describe_task(task: ChecklistTask) -> str:
    done = task.completed_by_user or task.completed_by_chat
    return f"{'done' if done else 'to do'}: {task.text}"


_NOTES: Mapping[str, Callable[[Any], str]] = {
    "sticker": lambda sticker: f"sticker {one_line(sticker.emoji or '')}".rstrip(),
    "venue": lambda venue: note(
        "venue", venue.title, venue.address, format_coordinates(venue.location)
    ),
    "location": describe_location,
    "contact": lambda contact: note(
        "contact",
        " ".join(filter(None, (contact.first_name, contact.last_name))),
        contact.phone_number,
    ),
    "poll": lambda poll: note(
        "poll", f"{poll.question} ({' / '.join(option.text for option in poll.options)})"
    ),
    "checklist": lambda checklist: note(
        "checklist", f"{checklist.title} ({'; '.join(map(describe_task, checklist.tasks))})"
    ),
    "dice": lambda dice: note("dice", f"{dice.emoji} {dice.value}"),
    "game": lambda game: note("game", game.title),
    "invoice": lambda invoice: note("invoice", invoice.title),
    "paid_media": lambda paid: note("paid media", f"{paid.star_count} stars"),
    "giveaway": lambda giveaway: note("giveaway", giveaway.prize_description),
    "giveaway_winners": lambda _: "giveaway winners",
    "story": lambda _: "story",
}
"""The description of each field. A venue also has a location, so it comes first."""
