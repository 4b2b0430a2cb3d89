"""Cutting a message into parts that a channel can send: pure, linear, loses no visible character.

Platforms count UTF-16 code units. A cut falls, in this order of preference, between paragraphs,
lines, words, or characters, and removes the blank lines around it. A code fence that is open at a
cut is closed there and opened again in the next part. A channel that converts the text (to
entities, for example) also checks whether the result fits. A part that does not fit is cut
again."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import Media, MediaKind, OutboundMessage

_FENCE = r"(?m)^ {0,3}(?:(`{3,16})(?!`)([^`\n]*)|(~{3,16})(?!~)([^\n]*))$"
_INFO = 24
_FENCE_ROOM = 16 + 2 * _INFO + 1 + 1 + 16
"""UTF-16 units that closing and reopening a fence may add to a part: the marks, the language,
and two line ends."""

Fits = Callable[[str, int], bool]
"""Returns True if the channel's conversion of a text has at most that many UTF-16 units and the
platform accepts it."""


class Limits(Struct, frozen=True):
    """The limits of one part on this platform. 0 means no limit.

    `text` and `caption` are in UTF-16 code units. A text of more than `parts` parts is sent as its
    beginning and a file. A part has at most `files` files, and several only if one set in
    `together` has all their kinds. A file has at most `file_bytes`. `fits` checks a source text
    whose converted length may differ, against `text` or `caption`. `closing`: the client waits for
    the end of each answer, so an empty one is sent too. `voice`: the platform plays voice messages.
    `shown_once`: a part sent again under the same key is not shown again. `drafts`: the text of an
    incomplete reply disappears at its end, so that of a stopped turn is sent. `tells_writing`: the
    channel calls `nanobot.channel.WRITING` before it writes a request, so that a part is not in
    doubt if the process dies before that."""

    text: int = 0
    caption: int = 0
    parts: int = 20
    files: int = 1
    file_bytes: int = 0
    together: tuple[frozenset[MediaKind], ...] = ()
    fits: Fits | None = None
    closing: bool = False
    voice: bool = False
    shown_once: bool = False
    drafts: bool = False
    tells_writing: bool = False


def utf16_length(text: str) -> int:
    """Return the length of `text` in UTF-16 code units."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_text(text: str, limit: int, fits: Fits | None = None) -> list[str]:
    """Cut a text into parts of at most `limit` UTF-16 units (0: no limit). Keep a text that fits.

    `fits` gets that limit. A part of one character passes even if `fits` returns False. If `limit`
    leaves no room to repeat fences (fewer than 200 units), fences are cut like any line."""
    length = utf16_length(text)
    most = limit or length
    if length <= most and (fits is None or fits(text, limit or sys.maxsize)):
        return [text]

    def passes(part: str) -> bool:
        return fits is None or fits(part, limit or sys.maxsize)

    fenced = most >= 200 and re.search(_FENCE, text) is not None
    return list(_cut(text, most, passes, fenced=fenced)) or [""]


def split_message(message: OutboundMessage, limits: Limits) -> tuple[OutboundMessage, ...]:
    """Split a message into the parts to send, in order.

    If possible, the text is the caption of the first files. Otherwise it comes before them. The
    reply mark is on the first part. Buttons are under the text, or under the last file if there is
    no text. Files in a group have no buttons, because platforms don't support them."""
    groups = _groups(message, limits)
    has_text = bool(message.content.strip())
    is_caption = bool(groups) and has_text and _is_caption(message, groups[0], limits)
    texts: list[str] = []
    if not groups or (has_text and not is_caption):
        texts = split_text(message.content, limits.text, limits.fits)
    bare = replace(message, content="", media=(), reply_to="", buttons=())
    parts = [replace(bare, content=text) for text in texts]
    parts += [replace(bare, media=group) for group in groups]
    if is_caption:
        parts[0] = replace(parts[0], content=message.content)
    buttons_at = 0 if is_caption else len(texts) - 1
    parts[0] = replace(parts[0], reply_to=message.reply_to)
    parts[buttons_at] = replace(parts[buttons_at], buttons=message.buttons)
    return tuple(parts)


def _groups(message: OutboundMessage, limits: Limits) -> list[tuple[Media, ...]]:
    """Group neighbouring files for one part each. A last file with the buttons is separate."""
    groups: list[tuple[Media, ...]] = []
    for file in message.media:
        if groups and _may_join(groups[-1], file, limits):
            groups[-1] = (*groups[-1], file)
        else:
            groups.append((file,))
    if message.buttons and not message.content.strip() and groups and len(groups[-1]) > 1:
        groups[-1:] = [groups[-1][:-1], groups[-1][-1:]]
    return groups


def _may_join(group: Sequence[Media], file: Media, limits: Limits) -> bool:
    if limits.files and len(group) >= limits.files:
        return False
    kinds = {other.kind for other in group} | {file.kind}
    return not limits.together or any(kinds <= allowed for allowed in limits.together)


def _is_caption(message: OutboundMessage, group: Sequence[Media], limits: Limits) -> bool:
    return (
        utf16_length(message.content) <= limits.caption
        and (not message.buttons or len(group) == 1)
        and (limits.fits is None or limits.fits(message.content, limits.caption))
    )


def _cut(text: str, limit: int, passes: Callable[[str], bool], *, fenced: bool) -> Iterator[str]:
    """Yield the parts. The size grows by a third after a part that passes and shrinks by a quarter
    after a failure, so `passes` reads only a few times the length of the text in total."""
    most = limit - _FENCE_ROOM if fenced else limit
    size, start, opening = most, 0, ""
    while start < len(text):
        end = _reach(text, start, size)
        if end < len(text):
            end = _good_end(text, start, end)
        part = text[start:end].strip("\n")
        closing = ""
        if part and not part.isspace():
            if fenced:
                part, closing = close_fence(f"{opening}{part}")
            if end - start > 1 and not passes(part):
                size = max(1, min(size, utf16_length(text[start:end])) * 3 // 4)
                continue
            yield part
            opening = closing
        start, size = end, min(size + size // 3 + 1, most)


def _reach(text: str, start: int, limit: int) -> int:
    """Return the furthest end within `limit` units of `start`, but at least one character."""
    window = text[start : start + limit]
    excess = utf16_length(window) - limit
    end = start + len(window)
    while excess > 0 and end > start + 1:
        end -= 1
        excess -= 2 if text[end] > "\uffff" else 1
    return end


def _good_end(text: str, start: int, end: int) -> int:
    for separator in ("\n\n", "\n", " "):
        at = text.rfind(separator, start + (end - start) // 2, end)
        if at > start:
            return at + len(separator)
    if (
        end > start + 1
        and "\ud800" <= text[end - 1] <= "\udbff"
        and "\udc00" <= text[end] <= "\udfff"
    ):
        return end - 1  # keep an unjoined surrogate pair together
    return end


def close_fence(part: str) -> tuple[str, str]:
    """Close a fence that is open at the end of `part`. Return also the line that opens it again."""
    mark = info = ""
    for fence in re.finditer(_FENCE, part):
        found = fence[1] or fence[3]
        after = fence[2] or fence[4] or ""
        if not mark:
            mark, info = found, _language_of(after)
        elif found.startswith(mark) and not after.strip():
            mark = info = ""
    return (f"{part}\n{mark}", f"{mark}{info}\n") if mark else (part, "")


def _language_of(info: str) -> str:
    word = info.split(maxsplit=1)[:1]
    return word[0] if word and len(word[0]) <= _INFO else ""  # a language, not a sentence
