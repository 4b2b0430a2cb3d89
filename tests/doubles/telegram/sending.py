"""Messages of the bot: sending, editing and deleting them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.doubles.telegram.media import attachment, check_upload
from tests.doubles.telegram.rich import visible_text
from tests.doubles.telegram.values import (
    Button,
    Call,
    Draft,
    Json,
    Sent,
    as_object,
    bad_request,
    objects,
)
from tests.doubles.telegram.world import ChatState, StoredFile, World, quote

NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a message. `text` is the caption if there is a file."""

    kind: str
    text: str
    entities: tuple[Json, ...]
    file: StoredFile | None = None
    group: str = ""
    blocks: tuple[Json, ...] = ()

    @property
    def json(self) -> Json:
        """Return its fields in a `Message`."""
        if self.blocks:
            return {"rich_message": {"blocks": list(self.blocks)}}
        text, entities = "text", "entities"
        post: Json = {}
        if self.file:
            text, entities = "caption", "caption_entities"
            post |= attachment(self.kind, self.file)
        if self.text:
            post[text] = self.text
        if self.entities:
            post[entities] = list(self.entities)
        return post | ({"media_group_id": self.group} if self.group else {})


def _with_caption(
    kind: str, file: StoredFile, fields: Mapping[str, object], group: str = ""
) -> _Content:
    caption = str(fields.get("caption") or "")
    return _Content(kind, caption, objects(fields.get("caption_entities")), file, group)


class Sending:
    """The methods that put messages into chats. Each gets a valid call."""

    def __init__(self, world: World) -> None:
        self._world = world

    def text(self, call: Call) -> Json:
        """sendMessage."""
        entities = call.objects("entities")
        return self._deliver(call, _Content("text", call.text("text"), entities))

    def rich(self, call: Call) -> Json:
        """sendRichMessage."""
        blocks = objects(call.object("rich_message").get("blocks"))
        return self._deliver(call, _Content("rich", visible_text(blocks), (), blocks=blocks))

    def file(self, call: Call) -> Json:
        """sendPhoto and similar methods."""
        self._target(call)
        kind = call.method.removeprefix("send").lower()
        file = self._file(kind, call.text(kind), call)
        return self._deliver(call, _with_caption(kind, file, call.params))

    def album(self, call: Call) -> list[Json]:
        """sendMediaGroup: one message for each item, or none at all."""
        self._target(call)
        items = [(str(one["type"]), one) for one in call.objects("media")]
        files = [self._file(kind, str(one["media"]), call) for kind, one in items]
        group = str(self._world.number() + 13_000_000_000)
        return [
            self._deliver(call, _with_caption(kind, file, fields, group))
            for (kind, fields), file in zip(items, files, strict=True)
        ]

    def _file(self, kind: str, value: str, call: Call) -> StoredFile:
        """Return the file of a parameter: uploaded with the call, or known by its id."""
        name = value.removeprefix("attach://")
        if name == value:
            return self._find_file(value)
        check_upload(kind, call.files[name])
        return self._world.store(call.files[name])

    def _find_file(self, file_id: str) -> StoredFile:
        if file_id not in self._world.files:
            raise bad_request("wrong remote file identifier specified: wrong character")
        return self._world.files[file_id]

    def _target(self, call: Call) -> tuple[ChatState, int | None, int | None]:
        """Return the chat, the topic and the answered message."""
        chat = self._world.reachable(call.chat_id)
        return chat, self._thread(call, chat), self._reply_target(call, chat)

    def _deliver(self, call: Call, content: _Content) -> Json:
        chat, thread, reply_to = self._target(call)
        only = call.number("receiver_user_id")
        if only is not None and chat.type == "private":
            raise bad_request("EPHEMERAL_PEER_INVALID")
        sent = Sent(
            message_id=0 if only else self._world.next_message_id(chat),
            chat_id=chat.id,
            kind=content.kind,
            text=content.text,
            entities=content.entities,
            file=content.file.upload if content.file else None,
            file_id=content.file.file_id if content.file else "",
            buttons=_buttons(call),
            reply_to=reply_to,
            thread=thread,
            silent=call.params.get("disable_notification") is True,
            previews=call.object("link_preview_options").get("is_disabled") is not True,
            group_id=content.group,
            blocks=content.blocks,
            only=only,
        )
        if only is not None:
            chat.unseen.append(sent)
            self._world.changes.tell()
            post = self._post(chat, sent, content, call)
            return post | {"ephemeral_message_id": len(chat.unseen)}
        return self._world.show(chat, sent, self._post(chat, sent, content, call))

    def _post(self, chat: ChatState, sent: Sent, content: _Content, call: Call) -> Json:
        post: Json = {
            "message_id": sent.message_id,
            "date": self._world.date,
            "chat": chat.json,
            "from": self._world.bot,
            **content.json,
        }
        if sent.thread is not None:
            post |= {"message_thread_id": sent.thread, "is_topic_message": True}
        if sent.reply_to is not None:
            post["reply_to_message"] = quote(chat.posts[sent.reply_to])
        if sent.buttons:
            post["reply_markup"] = call.object("reply_markup")
        return post

    @staticmethod
    def _thread(call: Call, chat: ChatState) -> int | None:
        thread = call.number("message_thread_id")
        if thread is not None and thread not in chat.topics:
            raise bad_request("message thread not found")
        return thread

    @staticmethod
    def _reply_target(call: Call, chat: ChatState) -> int | None:
        wanted = call.object("reply_parameters")
        target = wanted.get("message_id")
        if not isinstance(target, int):
            return None
        if target in chat.posts:
            return target
        if wanted.get("allow_sending_without_reply") is True:
            return None
        raise bad_request("message to be replied not found")

    def react(self, call: Call) -> bool:
        """setMessageReaction."""
        chat = self._world.reachable(call.chat_id)
        number = call.number("message_id") or 0
        if number not in chat.posts:
            raise bad_request("message to react not found")
        if not chat.allows_reactions:
            raise bad_request("REACTION_INVALID")
        emojis = [str(one.get("emoji", "")) for one in call.objects("reaction")]
        chat.reactions[number] = emojis[0] if emojis else ""
        self._world.changes.tell()
        return True

    def draft(self, call: Call) -> bool:
        """sendMessageDraft."""
        chat = self._world.reachable(call.chat_id)
        if chat.type != "private":
            raise bad_request("TEXTDRAFT_PEER_INVALID")
        number = call.number("draft_id")
        draft = Draft(
            number or 0,
            call.text("text"),
            call.objects("entities"),
            call.number("message_thread_id"),
        )
        chat.drafts.append(draft)
        self._world.changes.tell()
        return True

    def _own(self, call: Call) -> tuple[ChatState, Sent, Json]:
        """Return the message of the bot to edit."""
        chat = self._world.reachable(call.chat_id)
        number = call.number("message_id") or 0
        if number not in chat.posts:
            raise bad_request("message to edit not found")
        if number not in chat.sent:
            raise bad_request("message can't be edited")
        return chat, chat.sent[number], chat.posts[number]

    def edit_text(self, call: Call) -> Json:
        """editMessageText."""
        chat, sent, post = self._own(call)
        if sent.kind != "text":
            raise bad_request("there is no text in the message to edit")
        text, entities, buttons = call.text("text"), call.objects("entities"), _buttons(call)
        if (text, entities, buttons) == (sent.text, sent.entities, sent.buttons):
            raise bad_request(NOT_MODIFIED)
        post = self._edit(post, buttons, call) | {"text": text}
        post.pop("entities", None)
        if entities:
            post["entities"] = list(entities)
        changed = replace(sent, text=text, entities=entities, buttons=buttons, edited=True)
        return self._world.show(chat, changed, post)

    def edit_buttons(self, call: Call) -> Json:
        """editMessageReplyMarkup."""
        chat, sent, post = self._own(call)
        buttons = _buttons(call)
        if buttons == sent.buttons:
            raise bad_request(NOT_MODIFIED)
        changed = replace(sent, buttons=buttons, edited=True)
        return self._world.show(chat, changed, self._edit(post, buttons, call))

    def _edit(self, post: Json, buttons: object, call: Call) -> Json:
        post = {**post, "edit_date": self._world.date}
        post.pop("reply_markup", None)
        return post | ({"reply_markup": call.object("reply_markup")} if buttons else {})

    def delete(self, call: Call) -> bool:
        """deleteMessage."""
        chat = self._world.reachable(call.chat_id)
        number = call.number("message_id") or 0
        if number not in chat.posts:
            raise bad_request("message to delete not found")
        if number not in chat.sent and chat.type != "private":
            raise bad_request("message can't be deleted")
        self._world.remove(chat, number)
        return True

    def act(self, call: Call) -> bool:
        """sendChatAction."""
        chat = self._world.reachable(call.chat_id)
        self._thread(call, chat)
        chat.actions.append(call.text("action"))
        self._world.changes.tell()
        return True


def _buttons(call: Call) -> tuple[tuple[Button, ...], ...]:
    rows = call.object("reply_markup").get("inline_keyboard")
    if not isinstance(rows, list):
        return ()
    return tuple(tuple(_button(as_object(one)) for one in row) for row in rows if row)


def _button(value: Json) -> Button:
    data, url = value.get("callback_data"), value.get("url")
    return Button(str(value["text"]), str(data or ""), str(url or ""))
