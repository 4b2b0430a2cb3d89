"""Invalid requests of the Bot API, independent of the state of its chats.

Texts are plain: a `parse_mode` is rejected, because this double does not parse markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from tests.doubles.telegram.rich import rich_problem
from tests.doubles.telegram.schema import Schema
from tests.doubles.telegram.text import (
    CAPTION_LIMIT,
    TEXT_LIMIT,
    entities_problem,
    text_problem,
    units,
)
from tests.doubles.telegram.values import Call, Json, as_object, objects

_BUTTONS = 100
_ALBUM = range(2, 11)
_TOGETHER = ({"photo", "video"}, {"document"}, {"audio"})
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_SECRET = re.compile(r"[\w-]{1,256}", re.ASCII)
_PORTS = (443, 80, 88, 8443)
_ACTIONS = {
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
}

_REACTIONS = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
)
"""Reactions of one character."""


def first_problem(call: Call, schema: Schema) -> str:
    """Return the first reason to reject `call`, or ""."""
    if problem := schema.problem(call.method, call.params, call.files):
        return problem
    checks: tuple[Callable[[Call], str], ...] = (
        *(_COMMON if call.method.startswith(("send", "edit")) else ()),
        *_OF_METHOD.get(call.method, ()),
    )
    return next((problem for check in checks if (problem := check(call))), "")


def _parse_mode(call: Call) -> str:
    modes = [call.params.get("parse_mode")]
    modes += [item.get("parse_mode") for item in call.objects("media")]
    return "this double reads entities, not parse_mode" if any(modes) else ""


def _text(call: Call) -> str:
    text, entities = call.text("text"), call.objects("entities")
    if call.method != "sendMessageDraft" and not text.strip():
        return "message text is empty"
    return text_problem(text, entities, TEXT_LIMIT, "message is too long")


def _caption(call: Call) -> str:
    return _one_caption(call.params)


def _one_caption(fields: object) -> str:
    values = as_object(fields)
    caption, entities = str(values.get("caption") or ""), objects(values.get("caption_entities"))
    return text_problem(caption, entities, CAPTION_LIMIT, "message caption is too long")


def _buttons(call: Call) -> str:
    rows = call.object("reply_markup").get("inline_keyboard")
    buttons = [button for row in rows for button in objects(row)] if isinstance(rows, list) else []
    if len(buttons) > _BUTTONS:
        return "reply markup is too long"
    return next((problem for button in buttons if (problem := _one_button(button))), "")


def _one_button(button: Json) -> str:
    if not str(button["text"]).strip():
        return "text of an inline keyboard button is empty"
    if len(set(button) - {"text", "style", "icon_custom_emoji_id"}) != 1:
        return "inline keyboard button must have exactly one action"
    data = button.get("callback_data")
    if data is not None and not 1 <= len(str(data).encode()) <= 64:
        return "BUTTON_DATA_INVALID"
    return ""


def _reply(call: Call) -> str:
    """Check a quotation with its own entities."""
    wanted = call.object("reply_parameters")
    return entities_problem(str(wanted.get("quote", "")), objects(wanted.get("quote_entities")))


def _album(call: Call) -> str:
    items = call.objects("media")
    if len(items) not in _ALBUM:
        return "an album must have from 2 to 10 items"
    kinds = {str(item["type"]) for item in items}
    if not any(kinds <= together for together in _TOGETHER):
        return f"an album can't have {' and '.join(sorted(kinds))} together"
    for item in items:
        if problem := _check_attached(call, str(item["media"])) or _one_caption(item):
            return problem
    return ""


def _files(call: Call) -> str:
    value = call.text(call.method.removeprefix("send").lower())
    if value.startswith(("http://", "https://")):
        return "this double does not fetch files from elsewhere"
    return _check_attached(call, value)


def _check_attached(call: Call, value: str) -> str:
    name = value.removeprefix("attach://")
    return "" if name == value or name in call.files else f'there is no part "{name}"'


def _draft(call: Call) -> str:
    return "" if call.number("draft_id") else "draft_id must be non-zero"


def _action(call: Call) -> str:
    return "" if call.text("action") in _ACTIONS else "wrong parameter action in request"


def _rich(call: Call) -> str:
    return rich_problem(call.object("rich_message"))


def _reaction(call: Call) -> str:
    """Allow one reaction that is available to everyone."""
    reactions = call.objects("reaction")
    if len(reactions) > 1:
        return "REACTIONS_TOO_MANY"
    return "" if all(one.get("emoji") in _REACTIONS for one in reactions) else "REACTION_INVALID"


def _toast(call: Call) -> str:
    return "MESSAGE_TOO_LONG" if units(call.text("text")) > 200 else ""


def _menu(call: Call) -> str:
    commands: Sequence[Json] = call.objects("commands")
    if len(commands) > 100:
        return "BOT_COMMANDS_TOO_MUCH"
    for command in commands:
        if not _COMMAND.fullmatch(str(command["command"])):
            return "BOT_COMMAND_INVALID"
        if not 1 <= units(str(command["description"])) <= 256:
            return "BOT_COMMAND_DESCRIPTION_INVALID"
    return ""


def _polling(call: Call) -> str:
    limit, timeout = call.number("limit"), call.number("timeout")
    if limit is not None and not 1 <= limit <= 100:
        return "limit must be from 1 to 100"
    return "timeout must not be negative" if timeout is not None and timeout < 0 else ""


def _webhook(call: Call) -> str:
    """Require an https address on a port of Telegram's list. On this machine any address is
    valid."""
    secret = call.params.get("secret_token")
    if secret is not None and not _SECRET.fullmatch(str(secret)):
        return "secret token contains unallowed characters"
    url = urlsplit(call.text("url"))
    if not url.netloc or url.hostname in ("127.0.0.1", "localhost"):
        return ""
    if url.scheme != "https":
        return "bad webhook: An HTTPS URL must be provided for webhook"
    if (url.port or 443) not in _PORTS:
        return "bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"
    return ""


_COMMON = (_parse_mode, _buttons, _reply)
_WITH_FILE = (_files, _caption)
_OF_METHOD: dict[str, tuple[Callable[[Call], str], ...]] = {
    "sendMessage": (_text,),
    "sendMessageDraft": (_text, _draft),
    "sendRichMessage": (_rich,),
    "setMessageReaction": (_reaction,),
    "editMessageText": (_text,),
    "sendPhoto": _WITH_FILE,
    "sendDocument": _WITH_FILE,
    "sendVoice": _WITH_FILE,
    "sendVideo": _WITH_FILE,
    "sendAudio": _WITH_FILE,
    "sendAnimation": _WITH_FILE,
    "sendMediaGroup": (_album,),
    "sendChatAction": (_action,),
    "answerCallbackQuery": (_toast,),
    "setMyCommands": (_menu,),
    "getUpdates": (_polling,),
    "setWebhook": (_webhook,),
}
