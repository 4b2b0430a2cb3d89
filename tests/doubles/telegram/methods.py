"""The effects of valid calls of each Bot API method on the world.

A state that forbids the call (the chat is gone, the message was deleted) is a `Refusal` in the
words of the real server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.doubles.telegram.media import DOWNLOAD_LIMIT, KINDS
from tests.doubles.telegram.sending import Sending
from tests.doubles.telegram.updates import Updates
from tests.doubles.telegram.values import (
    Call,
    Json,
    Toast,
    bad_request,
)
from tests.doubles.telegram.webhook import Webhook
from tests.doubles.telegram.world import World

OLD_QUERY = "query is too old and response timeout expired or query ID is invalid"


class Methods:
    """The methods by name. `answer` runs one."""

    def __init__(self, world: World, updates: Updates, webhook: Webhook) -> None:
        self._world = world
        self._updates = updates
        self._webhook = webhook
        sending = Sending(world)
        self._sync: dict[str, Callable[[Call], object]] = {
            "getMe": lambda _: world.bot,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": lambda _: webhook.info(),
            "sendMessage": sending.text,
            "sendMessageDraft": sending.draft,
            "sendRichMessage": sending.rich,
            "setMessageReaction": sending.react,
            "sendMediaGroup": sending.album,
            "editMessageText": sending.edit_text,
            "editMessageReplyMarkup": sending.edit_buttons,
            "deleteMessage": sending.delete,
            "sendChatAction": sending.act,
            "answerCallbackQuery": self._answer_query,
            "setMyCommands": self._set_commands,
            "getMyCommands": self._get_commands,
            "deleteMyCommands": self._delete_commands,
            "getFile": self._get_file,
            "getChat": self._get_chat,
            "leaveChat": self._leave,
        }
        self._sync |= {f"send{kind.capitalize()}": sending.file for kind in KINDS}

    def __contains__(self, method: str) -> bool:
        return method == "getUpdates" or method in self._sync

    async def answer(self, call: Call) -> object:
        """Return the result of a call. Raise `Refusal`."""
        if call.method == "getUpdates":
            return await self._get_updates(call)
        return self._sync[call.method](call)

    def _get_updates(self, call: Call) -> Awaitable[list[object]]:
        if "allowed_updates" in call.params:
            self._updates.allow(_kinds(call))
        return self._updates.poll(
            call.number("offset") or 0, call.number("limit") or 100, call.number("timeout") or 0
        )

    def _set_webhook(self, call: Call) -> bool:
        if call.params.get("drop_pending_updates") is True:
            self._updates.drop()
        if "allowed_updates" in call.params:
            self._updates.allow(_kinds(call))
        self._webhook.set(call.text("url"), call.text("secret_token"))
        return True

    def _delete_webhook(self, call: Call) -> bool:
        if call.params.get("drop_pending_updates") is True:
            self._updates.drop()
        self._webhook.set("", "")
        return True

    def _answer_query(self, call: Call) -> bool:
        query = call.text("callback_query_id")
        if query not in self._world.queries or self._world.queries[query] is not None:
            raise bad_request(OLD_QUERY)
        alert = call.params.get("show_alert") is True
        self._world.queries[query] = Toast(query, call.text("text"), alert)
        self._world.changes.tell()
        return True

    def _set_commands(self, call: Call) -> bool:
        commands = {
            str(one["command"]): str(one["description"]) for one in call.objects("commands")
        }
        self._world.commands[self._scope(call)] = commands
        self._world.changes.tell()
        return True

    def _get_commands(self, call: Call) -> list[Json]:
        commands = self._world.commands.get(self._scope(call), {})
        return [{"command": name, "description": text} for name, text in commands.items()]

    def _delete_commands(self, call: Call) -> bool:
        self._world.commands.pop(self._scope(call), None)
        self._world.changes.tell()
        return True

    def _scope(self, call: Call) -> str:
        scope = call.object("scope")
        kind = str(scope.get("type", "default"))
        if "chat_id" not in scope:
            return kind
        chat = scope["chat_id"]
        self._world.reachable(chat if isinstance(chat, int) else None)
        member = f":{scope['user_id']}" if "user_id" in scope else ""
        return f"{kind}:{chat}{member}"

    def _get_file(self, call: Call) -> Json:
        file = self._world.files.get(call.text("file_id"))
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if file.size > DOWNLOAD_LIMIT:
            raise bad_request("file is too big")
        return {**file.json, "file_path": file.path}

    def _get_chat(self, call: Call) -> Json:
        gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription")
        return {
            **self._world.reachable(call.chat_id).json,
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": dict.fromkeys((*gifts, "gifts_from_channels"), False),
        }

    def _leave(self, call: Call) -> bool:
        chat = self._world.reachable(call.chat_id)
        chat.blocked = "bot is not a member of the group chat"
        return True


def _kinds(call: Call) -> frozenset[str]:
    value = call.params["allowed_updates"]
    return frozenset(str(one) for one in value) if isinstance(value, list) else frozenset()
