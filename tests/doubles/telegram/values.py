"""The values of `FakeTelegram`: requests, and messages in chats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of a multipart request."""

    name: str
    mime: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the bot with decoded parameters. `files` are by the name of their part.

    A download is a call of the method "file" with the parameter `file_path`."""

    method: str
    params: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, Upload] = field(default_factory=dict)

    @property
    def chat_id(self) -> int | None:
        """The target chat, if any."""
        value = self.params.get("chat_id")
        if isinstance(value, str) and value.removeprefix("-").isdigit():
            return int(value)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str:
        """Return the parameter `name`, or "" if it is missing."""
        value = self.params.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        """Return the parameter `name`, or None if it is missing."""
        value = self.params.get(name)
        return value if isinstance(value, int) else None

    def objects(self, name: str) -> tuple[Json, ...]:
        """Return the objects in the array `name`."""
        return objects(self.params.get(name))

    def object(self, name: str) -> Json:
        """Return the object `name`, or an empty one if it is missing."""
        return as_object(self.params.get(name))


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a message. `data` comes back when it is pressed. `url` opens instead."""

    label: str
    data: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the bot as people see it now, edits included.

    `kind` is "text", "rich", "photo", "document", "voice", "video", "audio" or "animation". `text`
    is the caption if there is a file, or the visible text of the `blocks` of a rich message.
    `entities` are as sent. `file` is the upload (None for text). `buttons` are the rows from the
    top. `group_id` identifies the items of an album. `only` is the only viewer of an ephemeral
    message, which has the id 0."""

    message_id: int
    chat_id: int
    kind: str
    text: str
    entities: tuple[Json, ...] = ()
    file: Upload | None = None
    file_id: str = ""
    buttons: tuple[tuple[Button, ...], ...] = ()
    reply_to: int | None = None
    thread: int | None = None
    silent: bool = False
    previews: bool = True
    group_id: str = ""
    edited: bool = False
    blocks: tuple[Json, ...] = ()
    only: int | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all buttons, row by row."""
        return tuple(button.label for row in self.buttons for button in row)


@dataclass(frozen=True, slots=True)
class Draft:
    """One `sendMessageDraft`."""

    draft_id: int
    text: str
    entities: tuple[Json, ...] = ()
    thread: int | None = None


@dataclass(frozen=True, slots=True)
class Toast:
    """One `answerCallbackQuery`: the text shown to the person who pressed, or ""."""

    query_id: str
    text: str
    alert: bool


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that Telegram rejects in any state."""

    call: Call
    description: str

    def __str__(self) -> str:
        return f"{self.call.method}: {self.description}"


class Refusal(Exception):
    """The answer is an error, in the words of the real server.

    `parameters` are sent with it (`retry_after`, `migrate_to_chat_id`)."""

    def __init__(self, code: int, description: str, parameters: Json | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters or {}


def bad_request(description: str) -> Refusal:
    """Return a 400."""
    return Refusal(400, f"Bad Request: {description}")


def as_object(value: object) -> Json:
    """Return `value` if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> tuple[Json, ...]:
    """Return the objects in `value` if it is a JSON array."""
    return tuple(one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()
