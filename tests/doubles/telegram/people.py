"""Actions of people: each method here becomes an update for the bot.

The default is the person with the id 7, in their private chat. `chat` is the id of a group
(negative) or of a private chat. `fields` are added to the message unchanged, in the words of the
Bot API, and replace the double's own. Methods that write return the message id."""

from __future__ import annotations

import re

from tests.doubles.telegram.text import units
from tests.doubles.telegram.updates import Updates
from tests.doubles.telegram.values import Json
from tests.doubles.telegram.world import PERSON, ChatState, World, quote

_AUTOMATIC = {
    "bot_command": re.compile(r"(?<![\w/@])/[A-Za-z0-9_]{1,32}(@\w{3,32})?"),
    "mention": re.compile(r"(?<![\w/@])@[A-Za-z]\w{3,31}"),
    "url": re.compile(r"https?://\S+"),
}


def automatic_entities(text: str) -> list[object]:
    """Return the entities that Telegram finds in typed text."""
    found: list[dict[str, str | int]] = []
    for kind, pattern in _AUTOMATIC.items():
        for match in pattern.finditer(text):
            offset, length = units(text[: match.start()]), units(match[0])
            found.append({"type": kind, "offset": offset, "length": length})
    return [*sorted(found, key=lambda one: one["offset"])]


class People:
    """The part of `FakeTelegram` for a test."""

    def __init__(self, world: World, updates: Updates) -> None:
        self._world = world
        self._updates = updates
        self.person(PERSON, first_name="Robin", username="robin_seven")

    def person(self, user: int, **names: object) -> int:
        """Add a person, who may now be written to, with `first_name`, `username` and so on."""
        self._world.meet(user, **names)
        self._world.open_private(user)
        return user

    def group(self, chat: int, title: str = "Group", *, forum: bool = False) -> int:
        """Add the bot to a group with this (negative) id, quietly."""
        self._world.open_group(chat, title, forum=forum)
        return chat

    def topic(self, chat: int) -> int:
        """Open a topic in a forum, quietly, and return its id, the `thread` of its messages."""
        state = self._world.chat(chat)
        created: Json = {"forum_topic_created": {"name": "Topic", "icon_color": 7322096}}
        thread = _id_of(self._message(created, PERSON, chat, None, None))
        if thread == 1:  # the General topic, which is there from the beginning
            thread = _id_of(self._message(created, PERSON, chat, None, None))
        state.topics.add(thread)
        return thread

    def say(
        self,
        text: str,
        *,
        user: int = PERSON,
        chat: int | None = None,
        thread: int | None = None,
        reply_to: int | None = None,
        **fields: object,
    ) -> int:
        """Write text. Its commands, mentions and links get their entities."""
        return self.post({**_content(text), **fields}, user, chat, thread, reply_to)

    def reply(self, message_id: int, text: str, **where: object) -> int:
        """Answer a message of the same chat; `where` as for `say`."""
        return self._place(_content(text), {**where, "reply_to": message_id})

    def post(
        self,
        content: Json,
        user: int = PERSON,
        chat: int | None = None,
        thread: int | None = None,
        reply_to: int | None = None,
    ) -> int:
        """Send any message. `content` has the fields of its kind."""
        message = self._message(content, user, chat, thread, reply_to)
        self._updates.add({"message": message})
        return _id_of(message)

    def edit(
        self, message_id: int, text: str, *, user: int = PERSON, chat: int | None = None
    ) -> None:
        """Change the text (or the caption) of a message."""
        state = self._world.chat(user if chat is None else chat)
        post = state.posts[message_id]
        field, marks = "text", "entities"
        if field not in post:
            field, marks = "caption", "caption_entities"
        post = {**post, field: text, "edit_date": self._world.date}
        post.pop(marks, None)
        if entities := automatic_entities(text):
            post[marks] = entities
        state.posts[message_id] = post
        self._updates.add({"edited_message": post})

    def press(
        self, message_id: int, label: str, *, user: int = PERSON, chat: int | None = None
    ) -> str:
        """Press the button with this label, and return the id of the callback query. Fail without
        it."""
        state = self._world.chat(user if chat is None else chat)
        buttons = [button for row in state.sent[message_id].buttons for button in row]
        data = next((button.data for button in buttons if button.label == label), None)
        if data is None:
            raise LookupError(f"message {message_id} has no button {label!r}, but {buttons}")
        query = str(self._world.number() + 4_000_000_000)
        self._world.queries[query] = None
        callback: Json = {
            "id": query,
            "from": self._world.meet(user),
            "message": state.posts[message_id],
            "chat_instance": str(state.id),
            "data": data,
        }
        self._updates.add({"callback_query": callback})
        return query

    def push(self, update: Json) -> int:
        """Queue any update, with the next id if it has none, and return its id."""
        return self._updates.add(update)

    def push_raw(self, payload: object) -> int:
        """Queue anything in place of an update, however malformed, and return its position in the
        queue.

        Unlike `push` this adds nothing, so a payload without an `update_id` stays without."""
        return self._updates.add_raw(payload)

    def forward(
        self,
        text: str,
        *,
        origin: str = "Somebody Else",
        user: int = PERSON,
        chat: int | None = None,
    ) -> int:
        """Forward a message of a person called `origin`."""
        hidden: Json = {
            "type": "hidden_user",
            "sender_user_name": origin,
            "date": self._world.date - 60,
        }
        return self.say(text, user=user, chat=chat, forward_origin=hidden)

    def location(self, latitude: float = 52.52, longitude: float = 13.4, **where: object) -> int:
        """Send a place."""
        return self._place({"location": {"latitude": latitude, "longitude": longitude}}, where)

    def contact(
        self, first_name: str = "Kim", phone_number: str = "+100000000", **where: object
    ) -> int:
        """Send another person's number."""
        contact = {"first_name": first_name, "phone_number": phone_number}
        return self._place({"contact": contact}, where)

    def _place(self, content: Json, where: Json) -> int:
        """Post `content`. Other keys of `where` than sender and chat are fields of the message."""
        user, chat, thread, reply_to = (_number(where.get(name)) for name in _PLACES)
        fields = {name: value for name, value in where.items() if name not in _PLACES}
        return self.post({**content, **fields}, user or PERSON, chat, thread, reply_to)

    def _message(
        self,
        content: Json,
        user: int,
        chat_id: int | None,
        thread: int | None,
        reply_to: int | None,
    ) -> Json:
        chat = self._world.chat(user if chat_id is None else chat_id)
        message: Json = {
            "message_id": self._world.next_message_id(chat),
            "date": self._world.date,
            "chat": chat.json,
            "from": self._world.meet(user),
            **_thread(chat, thread),
        }
        answered = reply_to if reply_to is not None else thread
        if answered in chat.posts:  # in a topic other messages answer the first one
            message["reply_to_message"] = quote(chat.posts[answered])
        message |= content
        chat.posts[_id_of(message)] = message
        return message


def _thread(chat: ChatState, thread: int | None) -> Json:
    if thread is None:
        return {}
    return {"message_thread_id": thread, **({"is_topic_message": True} if chat.forum else {})}


def _id_of(message: Json) -> int:
    value = message["message_id"]
    assert isinstance(value, int)
    return value


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _content(text: str) -> Json:
    entities = automatic_entities(text)
    return {"text": text, **({"entities": entities} if entities else {})}


_PLACES = ("user", "chat", "thread", "reply_to")
