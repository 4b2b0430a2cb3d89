"""Delivers one part: mostly with one message, with two where WhatsApp has no message that carries
all of it (sound takes no words, a file no buttons).

What a part has got through already is remembered for as long as the process lives, so that a part
that is tried again goes on where it stopped. A refusal that can be mended (a quoted message that
Meta does not know, a picture that it cannot read) is mended and tried at once: nothing was sent by
what was refused. Everything else becomes a `SendError`, and the core decides when to try again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loguru import logger

from nanobot.bus.events import Media, OutboundPart, Receipt
from nanobot.errors import SendRefused
from nanobot_whatsapp.cloud.failures import Fault, MaybeSent, Refused, as_send_error
from nanobot_whatsapp.cloud.files import Upload, as_document, upload_of
from nanobot_whatsapp.cloud.graph import Graph
from nanobot_whatsapp.cloud.messages import (
    Json,
    Target,
    can_be_pressed,
    choice_message,
    envelope,
    file_message,
    takes_caption,
    target_of,
    text_message,
)
from nanobot_whatsapp.cloud.recent import Recent
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits, render, with_choices
from nanobot_whatsapp.people import People
from nanobot_whatsapp.values import OURS

_REMEMBERED = 256
_BAD_REQUEST = frozenset({100, 131008, 131009})
"""What Meta says of a quoted message that it does not know, among other things."""
_BAD_FILE = 131053


class Files(Protocol):
    """Where outbound files lie; the host of the adapter knows."""

    def path_of(self, media: Media) -> Path:
        """On disk; raises `SendRefused` where it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """A message without a file."""

    message: Json
    text: str

    @property
    def shown(self) -> str:
        """What stands for it where it is quoted."""
        return self.text


@dataclass(frozen=True, slots=True)
class File:
    """A message with a file, and what stands under it."""

    upload: Upload
    caption: str

    @property
    def shown(self) -> str:
        """What stands for it where it is quoted."""
        return self.caption or f"{self.upload.shape} {self.upload.name}"


Step = Words | File


@dataclass(slots=True)
class _Progress:
    """How far a part got: the ids of what was sent, and of the files that Meta has."""

    sent: list[str] = field(default_factory=list)
    uploaded: dict[Upload, str] = field(default_factory=dict)


class Outbound:
    """Sends parts."""

    def __init__(self, graph: Graph, people: People, files: Files, recent: Recent) -> None:
        self._graph, self._people, self._files, self._recent = graph, people, files, recent
        self._begun: OrderedDict[str, _Progress] = OrderedDict()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part; raises one of the `SendError`s."""
        target = target_of(self._people.address(part.chat_id))
        uploads = [upload_of(file, self._files.path_of(file)) for file in part.media]
        steps = steps_of(part, uploads, target)
        if not steps:
            raise SendRefused("there is nothing to send")
        progress = self._progress(part.key)
        for step in steps[len(progress.sent) :]:
            reply_to = "" if progress.sent else part.reply_to
            id = await self._do(step, target, reply_to, progress)
            progress.sent.append(id)
            self._recent.remember(id, OURS, step.shown)
        self._begun.pop(part.key, None)
        return Receipt(progress.sent[-1])

    def _progress(self, key: str) -> _Progress:
        progress = self._begun.setdefault(key, _Progress())
        if len(self._begun) > _REMEMBERED:
            self._begun.popitem(last=False)
        return progress

    async def _do(self, step: Step, target: Target, reply_to: str, progress: _Progress) -> str:
        try:
            if isinstance(step, Words):
                return await self._send(target, step.message, reply_to)
            return await self._send_file(step, target, reply_to, progress)
        except Exception as error:  # noqa: BLE001 - the boundary: the core decides
            raise as_send_error(error) from None

    async def _send_file(
        self, step: File, target: Target, reply_to: str, progress: _Progress
    ) -> str:
        upload = step.upload
        for form in dict.fromkeys((upload, as_document(upload))):
            try:
                media_id = await self._media_id(form, progress)
            except Refused as error:
                if error.kind != "no":
                    raise
                logger.info("whatsapp: {} is not taken as {}: {}", form.name, form.mime, error)
                continue
            message = file_message(form.shape, media_id, form.name, step.caption)
            try:
                return await self._send(target, message, reply_to)
            except Refused as error:
                if error.code != _BAD_FILE:
                    raise
                logger.info("whatsapp: {} is not taken as {}: {}", form.name, form.shape, error)
        raise SendRefused(
            f"WhatsApp takes no such file from a business: {upload.name} ({upload.mime})",
            hint="It takes JPEG, PNG, MP4, Ogg, MP3, PDF, text and office documents.",
        )

    async def _media_id(self, form: Upload, progress: _Progress) -> str:
        """What Meta calls a file that it was given."""
        if form not in progress.uploaded:
            try:
                id = await self._graph.upload(form.path, form.name, form.mime)
            except (MaybeSent, Fault) as error:
                raise as_send_error(error, harmless=True) from None
            progress.uploaded[form] = id
        return progress.uploaded[form]

    async def _send(self, target: Target, message: Json, reply_to: str) -> str:
        try:
            return await self._graph.send(envelope(target, message, reply_to))
        except Refused as error:
            if not reply_to or error.code not in _BAD_REQUEST:
                raise
            logger.info("whatsapp: sent without quoting: {}", error)
        return await self._graph.send(envelope(target, message, ""))


def steps_of(part: OutboundPart, uploads: Sequence[Upload], target: Target) -> list[Step]:
    """The messages that a part becomes, in order."""
    content = part.content
    pressed = can_be_pressed(part.buttons, target)
    if part.buttons and not pressed:
        longer = with_choices(content, part.buttons)
        content = longer if fits(longer, TEXT_LIMIT) else content
    text = render(content) if content.strip() else ""
    if pressed:
        return [
            *(File(each, "") for each in uploads),
            Words(choice_message(text, part.buttons), text),
        ]
    if uploads and takes_caption(uploads[0].shape) and fits(content, CAPTION_LIMIT):
        return [File(each, "" if at else text) for at, each in enumerate(uploads)]
    words = [Words(text_message(text), text)] if text.strip() else []
    return [*words, *(File(each, "") for each in uploads)]
