"""Delivers one part by the Graph API: mostly as one message, or as two if no message carries all of
it (sound can't have a text, a file no buttons).

A chat is a phone number, or the user id of a person whose number is hidden (`US.1349…`). Up to
three buttons with short labels go under a text. Others become lines of it.

The progress of a part is remembered while the process lives, so that a retry continues after the
last message. If another form avoids a refusal (Meta does not know the quoted message, or cannot
read a picture), it is sent at once: the refused request sent nothing. Other failures become a
`SendError`, and the core decides when to retry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.bus.events import Media, MediaKind, OutboundPart, Receipt
from nanobot.bus.split import utf16_length
from nanobot.channel.documents import file_facts
from nanobot.channel.http import HttpFault
from nanobot.errors import SendLater, SendRefused, SendUnknown
from nanobot.text import one_line
from nanobot_whatsapp.cloud.graph import Graph, Refused, as_send_error
from nanobot_whatsapp.ingest import OURS, RecentMessages
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits, render, with_choices
from nanobot_whatsapp.people import People, is_number, is_person
from nanobot_whatsapp.transport import plain_mime, playable_as

Json = Mapping[str, object]

MAX_FILE_BYTES = 100_000_000
"""The size limit of a document."""
_MAX_BYTES = {"image": 5_000_000, "audio": 16_000_000, "voice": 16_000_000, "video": 16_000_000}
_DEFAULT_MIMES: Mapping[MediaKind, str] = {
    "image": "image/jpeg",
    "voice": "audio/ogg",
    "video": "video/mp4",
}
"""Used if the type of the file is unknown."""
_TEXTS = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml"}
    | {"application/toml", "application/javascript", "application/x-sh", "application/sql"}
)
"""Sent as plain text, like all text types: the Cloud API accepts no others."""

_PARTS_REMEMBERED = 256
_BAD_REQUEST = frozenset({100, 131008, 131009})
"""Meta's codes for an unknown quoted message, among other problems."""
_BAD_FILE = 131053

_TEXT_WITH_BUTTONS = 1024  # UTF-16 units of a text with buttons
_BUTTONS, _BUTTON_LABEL = 3, 20


class _Upload(Struct, frozen=True):
    """A file on disk, its display name, and the kind it is sent as."""

    path: Path
    name: str
    kind: MediaKind
    mime: str

    @property
    def takes_caption(self) -> bool:
        """True if it can have a caption."""
        return self.kind not in {"audio", "voice"}

    def as_document(self) -> _Upload:
        """Return the same file as a document."""
        mime = self.mime
        if mime.startswith("text/") or mime in _TEXTS:
            mime = "text/plain"
        return replace(self, kind="document", mime=mime or "application/octet-stream")

    def message(self, media_id: str, caption: str) -> Json:
        """Return the message with this file, uploaded as `media_id`."""
        kind = "audio" if self.kind == "voice" else self.kind
        media: dict[str, object] = {"id": media_id}
        if self.kind == "voice":
            media["voice"] = True
        if caption and self.takes_caption:
            media["caption"] = caption
        if self.kind == "document":
            media["filename"] = self.name
        return {"type": kind, kind: media}


class _Step(Struct, frozen=True):
    """One message: `content`, or a `file` with `text` as its caption. `text` also represents the
    message when it is quoted."""

    text: str
    content: Json | None = None
    file: _Upload | None = None


class _Progress(Struct):
    """The progress of a part: the ids of its sent messages and of its uploaded files."""

    sent: list[str] = field(default_factory=list)
    uploaded: dict[_Upload, str] = field(default_factory=dict)


class Outbound:
    """Sender of parts. `media_path` returns the path of an outbound file (see `ChannelHost`)."""

    def __init__(
        self,
        graph: Graph,
        people: People,
        media_path: Callable[[Media], Path],
        recent: RecentMessages,
    ) -> None:
        self._graph, self._people, self._media_path, self._recent = (
            graph,
            people,
            media_path,
            recent,
        )
        self._begun: OrderedDict[str, _Progress] = OrderedDict()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part. Raises a `SendError`."""
        target = find_target(self._people.address(part.chat_id))
        uploads = [choose_upload(file, self._media_path(file)) for file in part.media]
        steps = plan_steps(part, uploads)
        if not steps:
            raise SendRefused("there is nothing to send")
        progress = self._begun.setdefault(part.key, _Progress())
        if len(self._begun) > _PARTS_REMEMBERED:
            self._begun.popitem(last=False)
        for step in steps[len(progress.sent) :]:
            reply_to = "" if progress.sent else part.reply_to
            try:
                if step.file is not None:
                    id = await self._send_file(step.file, step.text, target, reply_to, progress)
                else:
                    id = await self._send(target, step.content or {}, reply_to)
            except Exception as error:  # noqa: BLE001 - the boundary: the core decides
                failure = as_send_error(error)
                if progress.sent and isinstance(failure, SendLater):
                    # After a crash the whole part is sent again, although some of it arrived.
                    failure = SendUnknown(str(failure))
                raise failure from None
            progress.sent.append(id)
            shown = step.text or (step.file and f"{step.file.kind} {step.file.name}") or ""
            self._recent.remember(id, OURS, shown)
        self._begun.pop(part.key, None)
        return Receipt(progress.sent[-1], is_final=False)

    async def _send_file(
        self, upload: _Upload, caption: str, target: Json, reply_to: str, progress: _Progress
    ) -> str:
        for form in dict.fromkeys((upload, upload.as_document())):
            try:
                if form not in progress.uploaded:
                    id = await self._graph.upload(form.path, form.name, form.mime)
                    progress.uploaded[form] = id
            except HttpFault as error:
                if not isinstance(error, Refused) or error.kind != "no":
                    raise as_send_error(error, is_idempotent=True) from None
                logger.info("whatsapp: {} is not accepted as {}: {}", form.name, form.mime, error)
                continue
            message = form.message(progress.uploaded[form], caption)
            try:
                return await self._send(target, message, reply_to)
            except Refused as error:
                if error.code != _BAD_FILE:
                    raise
                logger.info("whatsapp: {} is not accepted as {}: {}", form.name, form.kind, error)
        raise SendRefused(
            f"WhatsApp does not accept this type of file: {upload.name} ({upload.mime})",
            hint="It accepts JPEG, PNG, MP4, Ogg, MP3, PDF, text, and office documents.",
        )

    async def _send(self, target: Json, content: Json, reply_to: str) -> str:
        """Send a message that quotes `reply_to`, if Meta knows it. Return its id."""
        message = {"messaging_product": "whatsapp", **target, **content}
        if reply_to:
            try:
                return await self._graph.send({**message, "context": {"message_id": reply_to}})
            except Refused as error:
                if error.code not in _BAD_REQUEST:
                    raise
                logger.info("whatsapp: sent without quoting: {}", error)
        return await self._graph.send(message)


def find_target(address: str) -> Json:
    """Return the address fields of a request (see `People.address`). Raises `SendRefused`."""
    if is_number(address):
        return {"recipient_type": "individual", "to": address}
    if is_person(address) and not address.endswith("@lid"):
        return {"recipient_type": "individual", "recipient": address}
    raise SendRefused(
        f"{one_line(address)!r} is not a WhatsApp chat",
        hint="Use a phone number with the country code, without a plus sign.",
    )


def choose_upload(media: Media, path: Path) -> _Upload:
    """Choose how to send a file. Raises `SendRefused` if it is missing, empty or too large."""
    name, mime, size = file_facts(media, path, MAX_FILE_BYTES, "WhatsApp")
    mime = plain_mime(mime or _DEFAULT_MIMES.get(media.kind, ""))
    kind = playable_as(media.kind, mime)
    upload = _Upload(path, name, kind, mime)
    if kind == "document" or size > _MAX_BYTES[kind]:
        return upload.as_document()
    return upload


def plan_steps(part: OutboundPart, uploads: Sequence[_Upload]) -> list[_Step]:
    """Return the messages of a part, in order."""
    content, files = part.content, [_Step("", file=each) for each in uploads]
    if (question := build_question(part)) is not None:
        return [*files, question]
    if part.buttons and fits(longer := with_choices(content, part.buttons), TEXT_LIMIT):
        content = longer
    text = render(content) if content.strip() else ""
    if uploads and uploads[0].takes_caption and fits(content, CAPTION_LIMIT):
        return [replace(files[0], text=text), *files[1:]]
    # Don't fetch linked pages for a preview.
    words = {"type": "text", "text": {"body": text, "preview_url": False}}
    return [_Step(text, words), *files] if text.strip() else files


def build_question(part: OutboundPart) -> _Step | None:
    """Return the text with buttons, or None if the buttons don't fit."""
    pressed, more = part.buttons[:_BUTTONS], part.buttons[_BUTTONS:]
    labels = {one_line(each.label): each.id for each in pressed}
    if not labels or len(labels) < len(pressed):
        return None
    if not all(id and 0 < utf16_length(label) <= _BUTTON_LABEL for label, id in labels.items()):
        return None
    content = with_choices(part.content, more)
    # Without a text, the labels are the text.
    shown = (render(content) if content.strip() else "").strip() or " / ".join(labels)
    if utf16_length(shown) > _TEXT_WITH_BUTTONS:
        return None
    return _Step(shown, {"type": "interactive", "interactive": build_choice(shown, labels)})


def build_choice(text: str, labels: Mapping[str, str]) -> Json:
    """Return a text with buttons. `labels` maps labels to ids."""
    replies = [
        {"type": "reply", "reply": {"id": id, "title": label}} for label, id in labels.items()
    ]
    return {"type": "button", "body": {"text": text}, "action": {"buttons": replies}}
