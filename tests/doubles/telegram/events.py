"""Changes of chats and of the queue without messages: blocking, migration, repetition.

If Telegram notifies the bot, the update is queued as well."""

from __future__ import annotations

from tests.doubles.telegram.updates import Updates
from tests.doubles.telegram.values import Json
from tests.doubles.telegram.world import PERSON, World


class Events:
    """The part of `FakeTelegram` that changes the state of chats."""

    def __init__(self, world: World, updates: Updates) -> None:
        self._world = world
        self._updates = updates

    def block(self, chat: int = PERSON, *, user: int = PERSON) -> None:
        """Block the bot (private chat), or remove it from a group."""
        state = self._world.chat(chat)
        private = state.type == "private"
        words = f"bot was kicked from the {state.type} chat"
        state.blocked = "bot was blocked by the user" if private else words
        self._membership(chat, chat if private else user, "member", "kicked")

    def unblock(self, chat: int = PERSON, *, user: int = PERSON) -> None:
        """Unblock the bot."""
        state = self._world.chat(chat)
        state.blocked = ""
        private = state.type == "private"
        self._membership(chat, chat if private else user, "kicked", "member")

    def migrate(self, chat: int, new_id: int, *, announce: bool = True) -> None:
        """Turn a group into a supergroup with another id. `announce` notifies both chats."""
        old = self._world.chat(chat)
        new = self._world.open_group(new_id, str(old.names["title"]))
        new.type = "supergroup"
        old.moved_to = new_id
        if announce:
            self._service(chat, {"migrate_to_chat_id": new_id})
            self._service(new_id, {"migrate_from_chat_id": chat})
        self._world.changes.tell()

    def forbid_reactions(self, chat: int) -> None:
        """Forbid reactions in a chat. Bots are not notified."""
        self._world.chat(chat).allows_reactions = False

    def delete(self, message_id: int, chat: int = PERSON) -> None:
        """Delete any message as a person. Bots are not notified."""
        self._world.remove(self._world.chat(chat), message_id)

    def delete_topic(self, chat: int, thread: int) -> None:
        """Delete a topic of a forum. Bots are not notified."""
        self._world.chat(chat).topics.discard(thread)

    def duplicate(self, update_id: int) -> None:
        """Deliver an update once more with the next poll, even after its confirmation."""
        self._updates.repeat(update_id)

    def _membership(self, chat: int, user: int, before: str, after: str) -> None:
        bot = {"user": self._world.bot}
        change: Json = {
            "chat": self._world.chat(chat).json,
            "from": self._world.meet(user),
            "date": self._world.date,
            "old_chat_member": {**bot, **_status(before)},
            "new_chat_member": {**bot, **_status(after)},
        }
        self._updates.add({"my_chat_member": change})

    def _service(self, chat_id: int, content: Json) -> None:
        chat = self._world.chat(chat_id)
        message: Json = {
            "message_id": self._world.next_message_id(chat),
            "date": self._world.date,
            "chat": chat.json,
            "from": self._world.meet(PERSON),
            **content,
        }
        self._updates.add({"message": message})


def _status(status: str) -> Json:
    return {"status": status, **({"until_date": 0} if status == "kicked" else {})}
