"""Markdown as the text and entities of a message, whole or as a preview of one being written."""

from __future__ import annotations

from dataclasses import dataclass

from telegram import LinkPreviewOptions, MessageEntity

from nanobot.bus.split import split_text, utf16_length
from nanobot.channel.text import valid_unicode
from nanobot_telegram.markdown import ENTITY_LIMIT, TEXT_LIMIT, Rendered, render

NO_LINK_PREVIEW = LinkPreviewOptions(is_disabled=True)


@dataclass(frozen=True, slots=True)
class Saying:
    """What a message says, ready to be sent."""

    text: str
    entities: tuple[MessageEntity, ...]

    @classmethod
    def of(cls, markdown: str, limit: int, *, plain: bool = False) -> Saying:
        """The text rendered. `plain`: without entities, as the source where that is short enough
        (`limit`, in UTF-16 units), since it still shows where links lead."""
        markdown = valid_unicode(markdown)
        if plain and utf16_length(markdown) <= limit:
            return cls(markdown, ())
        rendered = render(markdown)
        return cls(rendered.text, () if plain else _entities(rendered, ENTITY_LIMIT))

    @classmethod
    def preview(cls, markdown: str, hint: str = "", output: str = "") -> Saying:
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
        rendered = _last_that_fits(markdown, TEXT_LIMIT - utf16_length(gap + below))
        entities = list(_entities(rendered, ENTITY_LIMIT - len(notes)))
        offset = utf16_length(rendered.text + gap)
        for kind, note in notes:
            entities.append(MessageEntity(kind, offset, utf16_length(note)))
            offset += utf16_length(note + "\n")
        return cls(rendered.text + gap + below, tuple(entities))


def _entities(rendered: Rendered, most: int) -> tuple[MessageEntity, ...]:
    return tuple(
        MessageEntity(
            entity.type,
            entity.offset,
            entity.length,
            url=entity.url or None,
            language=entity.language or None,
        )
        for entity in rendered.entities[:most]
    )


def _last_that_fits(markdown: str, room: int) -> Rendered:
    limit = room
    rendered = render(split_text(markdown, limit)[-1])
    while utf16_length(rendered.text) > room and limit > 1:
        limit //= 2
        rendered = render(split_text(markdown, limit)[-1])
    return rendered
