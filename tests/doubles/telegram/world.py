"""What Telegram knows: people, chats with their messages, and files.

Message ids are counted as the real server does: private chats and small groups share one sequence,
each supergroup has its own. Nothing here checks a request; that has been done before.
"""

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
"""The person who speaks where a test names nobody; known to the bot from the start."""

_SUPERGROUPS_BELOW = -1_000_000_000_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on the server. `size` is what the server claims; the content may differ."""

    file_id: str
    path: str
    size: int
    upload: Upload

    @property
    def json(self) -> Json:
        """What every kind of file has in common."""
        return {
            "file_id": self.file_id,
            "file_unique_id": self.file_id.removeprefix("file-"),
            "file_size": self.size,
        }


@dataclass(slots=True)
class ChatState:
    """A chat. `posts` has every message in it as JSON, `sent` those of the bot, `reactions` the
    bot's own by message, `unseen` what only one person in the chat sees."""

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
        """The `Chat` object."""
        forum: Json = {"is_forum": True} if self.forum else {}
        return {"id": self.id, "type": self.type, **self.names, **forum}


class World:
    """Holds all of it and hands out ids and dates."""

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
        """Now, in seconds since 1970."""
        return int(self._clock.now().timestamp())

    def number(self) -> int:
        """A number that was not used before."""
        return next(self._numbers)

    def next_message_id(self, chat: ChatState) -> int:
        """The id of the next message in `chat`."""
        if chat.type != "supergroup":
            return next(self._messages)
        return next(self._own_messages.setdefault(chat.id, count(1)))

    def meet(self, user: int, **names: object) -> Json:
        """The `User` object of a person, who is known from now on."""
        known = self.people.setdefault(
            user, {"id": user, "is_bot": False, "first_name": f"Person {user}"}
        )
        known.update(names)
        return known

    def open_private(self, user: int) -> ChatState:
        """The private chat with a person."""
        person = self.meet(user)
        names = {key: person[key] for key in _CHAT_NAMES if key in person}
        chat = self.chats.setdefault(user, ChatState(user, "private", names))
        chat.names = names
        return chat

    def open_group(self, chat_id: int, title: str, *, forum: bool = False) -> ChatState:
        """A group; a supergroup if it is a forum or its id has the form of one."""
        supergroup = forum or chat_id <= _SUPERGROUPS_BELOW
        chat = ChatState(chat_id, "supergroup" if supergroup else "group", {"title": title}, forum)
        return self.chats.setdefault(chat_id, chat)

    def chat(self, chat_id: int) -> ChatState:
        """The chat for a test or a person, opened where it was not known."""
        if chat_id in self.chats:
            return self.chats[chat_id]
        return self.open_private(chat_id) if chat_id > 0 else self.open_group(chat_id, "Group")

    def reachable(self, chat_id: int | None) -> ChatState:
        """The chat for the bot, which may write only where it is welcome."""
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
        """Keep a file; `size` in bytes where the server is to claim another one."""
        number = self.number()
        length = len(upload.content) if size is None else size
        path = f"files/{number}-{upload.name.replace('/', '_')}"
        stored = StoredFile(f"file-{number:06}", path, length, upload)
        self.files[stored.file_id] = stored
        return stored

    def file_at(self, path: str) -> StoredFile | None:
        """The file that a download asks for."""
        return next((one for one in self.files.values() if one.path == path), None)

    def show(self, chat: ChatState, sent: Sent, post: Json) -> Json:
        """A message of the bot stands in `chat` from now on, new or instead of its older form."""
        chat.posts[sent.message_id] = post
        chat.sent[sent.message_id] = sent
        self.changes.tell()
        return post

    def remove(self, chat: ChatState, message_id: int) -> None:
        """A message is deleted for everybody."""
        del chat.posts[message_id]
        chat.sent.pop(message_id, None)
        self.changes.tell()


def quoted(post: Json) -> Json:
    """A message as it stands in an answer to it: without what it answers itself."""
    return {name: value for name, value in post.items() if name != "reply_to_message"}


_CHAT_NAMES = ("first_name", "last_name", "username")
