"""The parts of a message as Telegram takes them: text with entities, and files.

Telegram shows photos, voice notes, videos and music only in some formats and sizes; everything else
goes as a document, which always works. No file is read into memory whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from telegram import InputFile, LinkPreviewOptions, MessageEntity

from nanobot.bus.events import Media
from nanobot.bus.split import split_text, utf16_length
from nanobot.channel.outgoing import file_facts
from nanobot.errors import SendRefused
from nanobot.text import valid_unicode
from nanobot_telegram.markdown import ENTITY_LIMIT, TEXT_LIMIT, render

NO_LINK_PREVIEW = LinkPreviewOptions(is_disabled=True)
"""Link previews are off: a reply that quotes ten pages is no page of pictures, and a page that a
model was talked into naming is not fetched on anybody's behalf."""

Shape = Literal["photo", "animation", "voice", "audio", "video", "document"]
"""What a file is sent as, by the method `send_…` of the Bot API."""

LARGEST_FILE = 50_000_000
"""Bytes that a bot may upload."""
_LARGEST_PHOTO = 10_000_000
_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_MUSIC = frozenset({"audio/mpeg", "audio/mp3", "audio/mp4", "audio/m4a", "audio/x-m4a"})
_VOICES = _MUSIC | {"audio/ogg", "audio/opus"}


def number(text: str) -> int | None:
    """The id of a message or topic; None for what is none, which then is left out."""
    return int(text) if text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class MessageText:
    """The text of a message, ready to be sent."""

    text: str = ""
    entities: tuple[MessageEntity, ...] = ()

    @classmethod
    def of(cls, markdown: str, limit: int, *, plain: bool = False) -> MessageText:
        """The text rendered. `plain`: without entities, as the source where that is short enough
        (`limit`, in UTF-16 units), since it still shows where links lead."""
        markdown = valid_unicode(markdown)
        if plain and utf16_length(markdown) <= limit:
            return cls(markdown)
        rendered = render(markdown)
        return cls(rendered.text, () if plain else rendered.entities[:ENTITY_LIMIT])

    @classmethod
    def preview(cls, markdown: str, hint: str = "", output: str = "") -> MessageText:
        """The last part of `markdown` that fits in a message, and under it `hint` in italics and
        `output` as it is."""
        markdown = valid_unicode(markdown)
        notes = [
            (kind, valid_unicode(note))
            for kind, note in ((MessageEntity.ITALIC, hint), (MessageEntity.PRE, output))
            if note
        ]
        below = "\n".join(note for _, note in notes)
        gap = "\n\n" if markdown.strip() and below else ""
        room = limit = TEXT_LIMIT - utf16_length(gap + below)
        rendered = render(split_text(markdown, limit)[-1])
        while utf16_length(rendered.text) > room and limit > 1:
            limit //= 2
            rendered = render(split_text(markdown, limit)[-1])
        entities = list(rendered.entities[: ENTITY_LIMIT - len(notes)])
        offset = utf16_length(rendered.text + gap)
        for kind, note in notes:
            entities.append(MessageEntity(kind, offset, utf16_length(note)))
            offset += utf16_length(note + "\n")
        return cls(rendered.text + gap + below, tuple(entities))


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on disk, the name that people see, and what it is sent as."""

    path: Path
    name: str
    shape: Shape


def uploads_of(files: Sequence[tuple[Media, Path]]) -> tuple[Upload, ...]:
    """How to send files: one album may mix photos with videos, else only one kind.

    Raises `SendRefused` where a file is gone, empty or too large.
    """
    uploads = tuple(_upload(media, path) for media, path in files)
    shapes = {upload.shape for upload in uploads}
    if len(uploads) == 1 or shapes <= {"photo", "video"} or shapes == {"audio"}:
        return uploads
    return as_documents(uploads)


def as_documents(uploads: Sequence[Upload]) -> tuple[Upload, ...]:
    """The same files as plain documents."""
    return tuple(replace(upload, shape="document") for upload in uploads)


@contextmanager
def opened(uploads: Sequence[Upload]) -> Iterator[list[InputFile]]:
    """Open for one request; raises `SendRefused` where a file is gone meanwhile."""
    with ExitStack() as stack:
        files = []
        for upload in uploads:
            try:
                handle = stack.enter_context(upload.path.open("rb"))
            except OSError as error:
                raise SendRefused(f"the file {upload.name} is gone") from error
            attach = len(uploads) > 1
            files.append(InputFile(handle, upload.name, attach=attach, read_file_handle=False))
        yield files


def _upload(media: Media, path: Path) -> Upload:
    name, mime, size = file_facts(media, path, LARGEST_FILE, "Telegram")
    return Upload(path, name, _shape(media, mime, size))


def _shape(media: Media, mime: str, size: int) -> Shape:
    match media.kind:
        case "image" if mime == "image/gif":
            return "animation"
        case "image" if size <= _LARGEST_PHOTO and (mime in _PHOTOS or not mime):
            return "photo"
        case "voice" if mime in _VOICES or not mime:
            return "voice"
        case "audio" | "voice" if mime in _MUSIC:
            return "audio"
        case "video" if mime in {"video/mp4", ""}:
            return "video"
    return "document"
