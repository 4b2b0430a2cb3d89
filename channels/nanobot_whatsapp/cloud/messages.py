"""The messages that the Cloud API takes, as JSON: pure.

A chat is a phone number, a user id of somebody whose number is hidden (`US.1349…`), or a group of
the Groups API, which takes texts and files alone. Buttons go under a text: up to three as buttons,
up to ten as a list that opens; there are none in groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nanobot.bus.events import Button, MediaKind
from nanobot.bus.split import utf16_length
from nanobot.channel.text import one_line
from nanobot.errors import SendRefused
from nanobot_whatsapp.ids import is_group, is_number, is_person

Json = Mapping[str, object]

_UNDER_TEXT = 1024
"""What a text with reply buttons may have; one with a list may be as long as any."""
_BUTTONS = 3
_ROWS = 10
_TITLE, _ROW, _ABOUT = 20, 24, 72
"""Lengths of the label of a button, of a row and of what stands below a row."""
_OPEN = "Choose"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes: `fields` are those of the request."""

    fields: Json
    is_group: bool = False


def target_of(address: str) -> Target:
    """Where `address` (see `People.address`) is. Raises `SendRefused` for what is nowhere."""
    if is_number(address):
        return Target({"recipient_type": "individual", "to": address})
    if is_person(address) and not address.endswith("@lid"):
        return Target({"recipient_type": "individual", "recipient": address})
    if is_group(address):
        return Target({"recipient_type": "group", "to": address}, is_group=True)
    raise SendRefused(
        f"{one_line(address)!r} is no chat of WhatsApp",
        hint="People have numbers with a country code and without a plus sign.",
    )


def envelope(target: Target, content: Json, reply_to: str) -> dict[str, object]:
    """A whole request for one message; `reply_to` is the id of the message that it quotes."""
    request: dict[str, object] = {"messaging_product": "whatsapp", **target.fields, **content}
    if reply_to:
        request["context"] = {"message_id": reply_to}
    return request


def text_message(text: str) -> Json:
    """Words. Pages that they name are not fetched for a preview on anybody's behalf."""
    return {"type": "text", "text": {"body": text, "preview_url": False}}


def file_message(shape: MediaKind, media_id: str, name: str, caption: str) -> Json:
    """A file that was handed over before. Sound takes no caption."""
    kind = "audio" if shape == "voice" else shape
    media: dict[str, object] = {"id": media_id}
    if shape == "voice":
        media["voice"] = True
    if caption and kind != "audio":
        media["caption"] = caption
    if shape == "document":
        media["filename"] = name
    return {"type": kind, kind: media}


def takes_caption(shape: MediaKind) -> bool:
    """Whether words can go under such a file."""
    return shape not in {"audio", "voice"}


def can_be_pressed(buttons: Sequence[Button], target: Target) -> bool:
    """Whether WhatsApp has a message for them; otherwise they have to be lines of the text."""
    known = all(button.id for button in buttons)
    return known and 0 < len(buttons) <= _ROWS and not target.is_group


def choice_message(text: str, buttons: Sequence[Button]) -> Json:
    """A text with choices under it; where there is none, the choices are the text."""
    body = {"text": text if text.strip() else " / ".join(button.label for button in buttons)}
    short = all(utf16_length(button.label.strip()) <= _TITLE for button in buttons)
    if short and len(buttons) <= _BUTTONS and utf16_length(body["text"]) <= _UNDER_TEXT:
        labels = _labels(buttons, _TITLE)
        actions = [
            {"type": "reply", "reply": {"id": button.id, "title": label}}
            for button, label in zip(buttons, labels, strict=True)
        ]
        action: Json = {"buttons": actions}
        return {
            "type": "interactive",
            "interactive": {"type": "button", "body": body, "action": action},
        }
    rows = [
        _row(button, label) for button, label in zip(buttons, _labels(buttons, _ROW), strict=True)
    ]
    action = {"button": _OPEN, "sections": [{"title": _OPEN, "rows": rows}]}
    return {"type": "interactive", "interactive": {"type": "list", "body": body, "action": action}}


def _row(button: Button, label: str) -> Json:
    row = {"id": button.id, "title": label}
    whole = one_line(button.label, _ABOUT)
    return row if whole == label else {**row, "description": whole}


def _labels(buttons: Sequence[Button], most: int) -> list[str]:
    """What stands on each: at most that long, never empty and never the same twice."""
    labels: list[str] = []
    for at, button in enumerate(buttons, 1):
        label = _cut(one_line(button.label, 200), most) or str(at)
        labels.append(label if label not in labels else f"{at}. {_cut(label, most - 4)}")
    return labels


def _cut(text: str, most: int) -> str:
    """As many whole characters as `most` UTF-16 units hold, with a sign where some are missing."""
    if utf16_length(text) <= most:
        return text
    while utf16_length(text) > most - 1:
        text = text[:-1]
    return f"{text.rstrip()}…"
