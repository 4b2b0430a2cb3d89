"""The state of Telegram: people, chats with their messages, and files.

Message ids are counted like in the real server: private chats and small groups share one sequence,
and each supergroup has its own. Nothing here checks a request. That has been done before."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from nanobot.clock import Clock
from tests.doubles.server import Changes
from tests.doubles.telegram.values import (
    Draft,
    Json,
    Refusal,
    Sent,
    Toast,
    Upload,
    bad_request,
)

PERSON = 7
"""The default person of a test, known to the bot from the start."""

_SUPERGROUPS_BELOW = -1_000_000_000_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on the server. `size` is the reported size, and the content may differ."""

    file_id: str
    path: str
    size: int
    upload: Upload

    @property
    def json(self) -> Json:
        """Return the fields of every kind of file."""
        return {
            "file_id": self.file_id,
            "file_unique_id": self.file_id.removeprefix("file-"),
            "file_size": self.size,
        }


@dataclass(slots=True)
class ChatState:
    """A chat. `posts` has every message in it as JSON, `sent` the bot's, `reactions` the bot's own
    by message, `unseen` the messages visible to only one person."""

    id: int
    type: str
    names: Json
    forum: bool = False
    topics: set[int] = field(default_factory=set)
    posts: dict[int, Json] = field(default_factory=dict)
    sent: dict[int, Sent] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    unseen: list[Sent] = field(default_factory=list)
    reactions: dict[int, str] = field(default_factory=dict)
    allows_reactions: bool = True
    blocked: str = ""
    moved_to: int | None = None

    @property
    def json(self) -> Json:
        """Return the `Chat` object."""
        forum: Json = {"is_forum": True} if self.forum else {}
        return {"id": self.id, "type": self.type, **self.names, **forum}


class World:
    """Holds the state, and gives out ids and dates."""

    def __init__(self, bot: Json, clock: Clock, changes: Changes) -> None:
        self.bot = bot
        self.changes = changes
        self._clock = clock
        self.people: dict[int, Json] = {}
        self.chats: dict[int, ChatState] = {}
        self.files: dict[str, StoredFile] = {}
        self.queries: dict[str, Toast | None] = {}
        self.commands: dict[str, dict[str, str]] = {}
        self._numbers = count(1)
        self._messages = count(1)
        self._own_messages: dict[int, count[int]] = {}

    @property
    def date(self) -> int:
        """Return the time in seconds since 1970."""
        return int(self._clock.now().timestamp())

    def number(self) -> int:
        """Return an unused number."""
        return next(self._numbers)

    def next_message_id(self, chat: ChatState) -> int:
        """Return the id of the next message in `chat`."""
        if chat.type != "supergroup":
            return next(self._messages)
        return next(self._own_messages.setdefault(chat.id, count(1)))

    def meet(self, user: int, **names: object) -> Json:
        """Return the `User` object of a person, who is known from now on."""
        known = self.people.setdefault(
            user, {"id": user, "is_bot": False, "first_name": f"Person {user}"}
        )
        known.update(names)
        return known

    def open_private(self, user: int) -> ChatState:
        """Return the private chat with a person."""
        person = self.meet(user)
        names = {key: person[key] for key in _CHAT_NAMES if key in person}
        chat = self.chats.setdefault(user, ChatState(user, "private", names))
        chat.names = names
        return chat

    def open_group(self, chat_id: int, title: str, *, forum: bool = False) -> ChatState:
        """Create a group. It is a supergroup if it is a forum or has such an id."""
        supergroup = forum or chat_id <= _SUPERGROUPS_BELOW
        chat = ChatState(chat_id, "supergroup" if supergroup else "group", {"title": title}, forum)
        return self.chats.setdefault(chat_id, chat)

    def chat(self, chat_id: int) -> ChatState:
        """Return the chat for a test or a person, created if it is unknown."""
        if chat_id in self.chats:
            return self.chats[chat_id]
        return self.open_private(chat_id) if chat_id > 0 else self.open_group(chat_id, "Group")

    def reachable(self, chat_id: int | None) -> ChatState:
        """Return the chat for the bot, which may write only to known and open chats."""
        chat = self.chats.get(chat_id or 0)
        if chat is None:
            raise bad_request("chat not found")
        if chat.moved_to is not None:
            raise Refusal(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                {"migrate_to_chat_id": chat.moved_to},
            )
        if chat.blocked:
            raise Refusal(403, f"Forbidden: {chat.blocked}")
        return chat

    def store(self, upload: Upload, *, size: int | None = None) -> StoredFile:
        """Store a file. `size` (bytes) is the reported size if it differs."""
        number = self.number()
        length = len(upload.content) if size is None else size
        path = f"files/{number}-{upload.name.replace('/', '_')}"
        stored = StoredFile(f"file-{number:06}", path, length, upload)
        self.files[stored.file_id] = stored
        return stored

    def file_at(self, path: str) -> StoredFile | None:
        """Return the file at a download path, or None."""
        return next((one for one in self.files.values() if one.path == path), None)

    def show(self, chat: ChatState, sent: Sent, post: Json) -> Json:
        """Add a message of the bot to `chat`, or replace its older form."""
        chat.posts[sent.message_id] = post
        chat.sent[sent.message_id] = sent
        self.changes.tell()
        return post

    def remove(self, chat: ChatState, message_id: int) -> None:
        """Delete a message for everyone."""
        del chat.posts[message_id]
        chat.sent.pop(message_id, None)
        self.changes.tell()


def quote(post: Json) -> Json:
    """Return a message in the form of an answered one: without its own answered message."""
    return {name: value for name, value in post.items() if name != "reply_to_message"}


_CHAT_NAMES = ("first_name", "last_name", "username")
