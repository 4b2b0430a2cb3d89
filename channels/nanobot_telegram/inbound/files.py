"""The file that a message brings, as a reference that `fetch` understands. At most one each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from telegram import ExternalReplyInfo, Message, PhotoSize

from nanobot.bus.events import Media, MediaKind
from nanobot.channel.text import one_line

Content = Message | ExternalReplyInfo
"""What can hold the same kinds of content."""

_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
"""Sent as files these are still pictures to look at; other images (drawings, raw) are documents."""


def file_of(content: Content) -> Media | None:
    """The file of a message, or None. Telegram repeats some kinds under an older name (an animation
    as a document, a live photo as a photo): the first that is there counts."""
    return next(filter(None, (read(content) for read in _READERS)), None)


def _voice(content: Content) -> Media | None:
    item = content.voice
    if item is None:
        return None
    return Media(item.file_id, "voice", _mime(item.mime_type, "audio/ogg"), "", item.file_size or 0)


def _audio(content: Content) -> Media | None:
    item = content.audio
    if item is None:
        return None
    title = " - ".join(filter(None, (item.performer, item.title)))
    name = one_line(item.file_name or title)
    return Media(item.file_id, "audio", _mime(item.mime_type), name, item.file_size or 0)


def _photo(content: Content) -> Media | None:
    return _largest(content.photo)


def _live_photo(content: Content) -> Media | None:
    """The picture, or where there is none the short video that it comes with."""
    item = content.live_photo
    if item is None:
        return None
    still = _largest(item.photo)
    return still or Media(
        item.file_id, "video", _mime(item.mime_type, "video/mp4"), "", item.file_size or 0
    )


def _largest(sizes: Sequence[PhotoSize] | None) -> Media | None:
    if not sizes:
        return None
    best = max(sizes, key=lambda size: size.width * size.height)
    return Media(best.file_id, "image", "image/jpeg", "", best.file_size or 0)


def _video(content: Content) -> Media | None:
    item = content.animation or content.video
    if item is None:
        return None
    mime, name = _mime(item.mime_type, "video/mp4"), one_line(item.file_name or "")
    return Media(item.file_id, "video", mime, name, item.file_size or 0)


def _video_note(content: Content) -> Media | None:
    item = content.video_note
    if item is None:
        return None
    return Media(item.file_id, "video", "video/mp4", "", item.file_size or 0)


def _document(content: Content) -> Media | None:
    item = content.document
    if item is None:
        return None
    mime, name = _mime(item.mime_type), one_line(item.file_name or "")
    kind: MediaKind = "image" if mime in _PICTURES else "document"
    return Media(item.file_id, kind, mime, name, item.file_size or 0)


def _sticker(content: Content) -> Media | None:
    item = content.sticker
    if item is None or item.is_animated or item.is_video:
        return None
    return Media(item.file_id, "image", "image/webp", "", item.file_size or 0)


def _mime(given: str | None, usual: str = "") -> str:
    return one_line(given or usual).lower()


_READERS: tuple[Callable[[Content], Media | None], ...] = (
    _voice,
    _audio,
    _photo,
    _live_photo,
    _video,
    _video_note,
    _document,
    _sticker,
)
