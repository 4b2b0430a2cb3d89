"""The methods, parameters and types of the Bot API, and checking requests with them.

The table comes from a machine-readable copy of the documentation if there is one (a JSON file:
`items`, their `children`, and their `annotations` with `name`, `type` and `required`). Otherwise it
is the table below, with the methods that `FakeTelegram` implements."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.doubles.telegram.values import as_object

DOCUMENTED = Path("../shared/data/telegram-bot-api-10.2.json")
"""Place of the documentation in machine-readable form, which a checkout may have."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """`kind` in the words of the documentation: "Integer or String", "Array of MessageEntity"."""

    kind: str
    required: bool = False
    constant: str = ""
    """The only permitted value, which distinguishes the forms of a type."""


Parameters = Mapping[str, Parameter]


@dataclass(frozen=True, slots=True)
class Schema:
    """`unions` has the names of the forms of a type with several."""

    methods: Mapping[str, Parameters]
    types: Mapping[str, Parameters]
    unions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def problem(self, method: str, given: Mapping[str, object], files: Mapping[str, object]) -> str:
        """Return the problem of the parameters of a call, or ""."""
        return self._fields(self.methods[method], given, files, "")

    def _fields(
        self,
        known: Parameters,
        given: Mapping[str, object],
        files: Mapping[str, object],
        place: str,
    ) -> str:
        for name, parameter in known.items():
            if parameter.required and name not in given:
                return f'parameter "{place}{name}" is required'
        for name, value in given.items():
            if name not in known:
                return f'parameter "{place}{name}" is unknown'
            kind = known[name].kind
            if "InputFile" in kind and name in files:
                continue
            if known[name].constant not in ("", value):
                return f'"{place}{name}" must be "{known[name].constant}"'
            if problem := self._value(kind, value, f"{place}{name}"):
                return problem
        return ""

    def _value(self, kind: str, value: object, place: str) -> str:
        """Return the problem of one value. If there are several kinds, it must match one."""
        if element := kind.removeprefix("Array of ") if kind.startswith("Array of ") else "":
            if not isinstance(value, list):
                return f'"{place}" must be an array of {element}'
            found = (
                self._value(element, one, f"{place}[{index}]") for index, one in enumerate(value)
            )
            return next((problem for problem in found if problem), "")
        kinds = _alternatives(kind, self.unions)
        arrays = [one for one in kinds if one.startswith("Array of ")]
        if arrays and isinstance(value, list):
            return self._value(arrays[0], value, place)
        possible = [one for one in kinds if one not in arrays and self._may_be(one, value)]
        if not possible:
            return f'"{place}" must be one of {kind}'
        problems = [self._single(one, value, place) for one in possible]
        return "" if "" in problems else min(problems, key=_vagueness)

    def _may_be(self, kind: str, value: object) -> bool:
        """Check whether the declared type of an object is this one, or undeclared."""
        said = self.types.get(kind, {}).get("type", Parameter("")).constant
        return not said or as_object(value).get("type") == said

    def _single(self, kind: str, value: object, place: str) -> str:
        if kind in _PRIMITIVES:
            return "" if _is(kind, value) else f'"{place}" must be of type {kind}'
        if kind not in self.types:
            return ""
        if not isinstance(value, dict):
            return f'"{place}" must be an object of type {kind}'
        return self._fields(self.types[kind], value, {}, f"{place}.")

    def decode(self, method: str, name: str, text: str) -> object:
        """Return the value of a parameter that came as text (a form or a query string)."""
        parameter = self.methods.get(method, {}).get(name)
        kinds = _alternatives(parameter.kind, {}) if parameter else ("String",)
        if "Integer" in kinds and re.fullmatch(r"-?\d+", text):
            return int(text)
        if kinds == ("Boolean",) and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if set(kinds) <= {"String", "Integer", "Boolean", "InputFile"}:
            return text
        try:
            value: object = json.loads(text)
        except ValueError:
            return text
        return value


_PRIMITIVES: Mapping[str, type | tuple[type, ...]] = {
    "Integer": int,
    "Float": (int, float),
    "Boolean": bool,
    "True": bool,
    "String": str,
    "InputFile": (),
}


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind in ("Boolean", "True")
    return isinstance(value, _PRIMITIVES[kind])


def _vagueness(problem: str) -> bool:
    """Rank problems: one deep inside a value is more specific than a wrong type of the value."""
    return "must be of" in problem or "must be an object" in problem


def _alternatives(kind: str, unions: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = re.split(r", | or | and ", kind)
    return tuple(form for name in names for form in unions.get(name, (name,)))


@cache
def read_schema(path: Path) -> Schema:
    """Read the schema from a machine-readable copy of the documentation."""
    methods: dict[str, Parameters] = {}
    types: dict[str, Parameters] = {}
    unions: dict[str, tuple[str, ...]] = {}
    for section in _list(json.loads(path.read_bytes()).get("items")):
        for entry in _list(section.get("children")):
            name = str(entry["name"])
            parameters = {
                str(one["name"]): Parameter(
                    str(one["type"]), one["required"] is True, _constant(one)
                )
                for one in _list(entry.get("annotations"))
            }
            described = str(entry.get("description"))
            forms = re.findall(r"^ ?- (\w+)$", described, re.MULTILINE)
            if plain := re.search(r"either a (String) .*, an (Array of \w+),", described):
                forms += plain.groups()
            if name[0].islower():
                methods[name] = parameters
            elif parameters or not forms:
                types[name] = parameters
            else:
                unions[name] = tuple(forms)
    return Schema(methods, types, unions)


def _constant(parameter: Mapping[str, object]) -> str:
    """Return the only value of a `type` that distinguishes the forms of an object."""
    said = _CONSTANT.search(str(parameter.get("description")))
    return (said[1] or said[2]) if said and parameter["name"] == "type" else ""


_CONSTANT = re.compile(r"always '(\w+)'$|must be (\w+)$")


def load_schema(path: Path | None) -> Schema:
    """Return the documented schema if there is one, otherwise the table below."""
    return read_schema(path) if path is not None and path.exists() else own_schema()


def _list(value: object) -> list[dict[str, object]]:
    return [as_object(one) for one in value] if isinstance(value, list) else []


_INTEGERS = (
    "chat_id message_id message_thread_id draft_id offset limit timeout duration width height "
    "max_connections cache_time user_id receiver_user_id length quote_position"
)
_FLAGS = (
    "disable_notification protect_content show_alert drop_pending_updates is_disabled "
    "allow_sending_without_reply has_spoiler show_caption_above_media supports_streaming "
    "is_big is_bordered is_header has_checkbox is_checked "
    "disable_content_type_detection prefer_small_media prefer_large_media show_above_text"
)
_KINDS = {
    **dict.fromkeys(_INTEGERS.split(), "Integer"),
    **dict.fromkeys(_FLAGS.split(), "Boolean"),
    "chat_id": "Integer or String",
    "allowed_updates": "Array of String",
    "entities": "Array of MessageEntity",
    "caption_entities": "Array of MessageEntity",
    "quote_entities": "Array of MessageEntity",
    "link_preview_options": "LinkPreviewOptions",
    "reply_parameters": "ReplyParameters",
    "reply_markup": "InlineKeyboardMarkup",
    "commands": "Array of BotCommand",
    "scope": "BotCommandScope",
    "inline_keyboard": "Array of Array of InlineKeyboardButton",
    "certificate": "InputFile",
    "user": "User",
    "rich_message": "InputRichMessage",
    "blocks": "Array of InputRichBlock",
    "cells": "Array of Array of RichBlockTableCell",
    "reaction": "Array of ReactionType",
    "items": "Array of InputRichBlockListItem",
    "size": "Integer",
    "value": "Integer",
    **dict.fromkeys(
        ("photo", "document", "voice", "video", "audio", "animation", "thumbnail", "cover"),
        "InputFile or String",
    ),
}
_PLACE = "chat_id! message_thread_id business_connection_id"
_SENDING = (
    f"{_PLACE} disable_notification protect_content message_effect_id reply_parameters reply_markup"
)
_CAPTION = "caption parse_mode caption_entities"
_PICTURE = "show_caption_above_media has_spoiler"
_TABLE = {
    "getMe": "",
    "getUpdates": "offset limit timeout allowed_updates",
    "setWebhook": "url! certificate ip_address max_connections allowed_updates secret_token "
    "drop_pending_updates",
    "deleteWebhook": "drop_pending_updates",
    "getWebhookInfo": "",
    "sendMessage": f"{_SENDING} text! parse_mode entities link_preview_options receiver_user_id",
    "sendMessageDraft": "chat_id! message_thread_id draft_id! text parse_mode entities",
    "sendRichMessage": f"{_SENDING} rich_message!",
    "setMessageReaction": "chat_id! message_id! reaction is_big",
    "editMessageText": "chat_id message_id inline_message_id text! parse_mode entities "
    "link_preview_options reply_markup business_connection_id",
    "editMessageReplyMarkup": "chat_id message_id inline_message_id reply_markup "
    "business_connection_id",
    "deleteMessage": "chat_id! message_id!",
    "sendPhoto": f"{_SENDING} {_CAPTION} {_PICTURE} photo!",
    "sendDocument": f"{_SENDING} {_CAPTION} document! thumbnail disable_content_type_detection",
    "sendVoice": f"{_SENDING} {_CAPTION} voice! duration",
    "sendVideo": f"{_SENDING} {_CAPTION} {_PICTURE} video! duration width height thumbnail cover "
    "supports_streaming",
    "sendAudio": f"{_SENDING} {_CAPTION} audio! duration performer title thumbnail",
    "sendAnimation": f"{_SENDING} {_CAPTION} {_PICTURE} animation! duration width height thumbnail",
    "sendMediaGroup": f"{_PLACE} media! disable_notification protect_content message_effect_id "
    "reply_parameters",
    "sendChatAction": f"{_PLACE} action!",
    "answerCallbackQuery": "callback_query_id! text show_alert url cache_time",
    "setMyCommands": "commands! scope language_code",
    "getMyCommands": "scope language_code",
    "deleteMyCommands": "scope language_code",
    "getFile": "file_id!",
    "getChat": "chat_id!",
    "leaveChat": "chat_id!",
}
_TYPES = {
    "MessageEntity": "type! offset! length! url user language custom_emoji_id",
    "LinkPreviewOptions": "is_disabled url prefer_small_media prefer_large_media show_above_text",
    "ReplyParameters": "message_id chat_id allow_sending_without_reply quote quote_parse_mode "
    "quote_entities quote_position",
    "InlineKeyboardMarkup": "inline_keyboard!",
    "InlineKeyboardButton": "text! url callback_data style",
    "BotCommand": "command! description!",
    "InputRichMessage": "blocks html markdown",
    "InputRichBlock": "type! text size language blocks items cells is_bordered",
    "InputRichBlockListItem": "blocks! has_checkbox is_checked value type",
    "RichBlockTableCell": "text is_header align! valign!",
    "ReactionType": "type! emoji",
    "BotCommandScope": "type! chat_id user_id",
    "InputMedia": f"type! media! {_CAPTION} {_PICTURE} thumbnail cover duration width height "
    "supports_streaming performer title disable_content_type_detection",
}


@cache
def own_schema() -> Schema:
    """Return the methods that `FakeTelegram` implements, with the usual parameters."""
    methods = {name: _parameters(text) for name, text in _TABLE.items()}
    methods["sendMediaGroup"] = {
        **methods["sendMediaGroup"],
        "media": Parameter("Array of InputMedia", required=True),
    }
    types = {name: _parameters(text) for name, text in _TYPES.items()}
    types["MessageEntity"] = {
        **types["MessageEntity"],
        "offset": Parameter("Integer", required=True),
    }
    for name in ("InputRichBlock", "RichBlockTableCell"):  # a text may be a tree
        types[name] = {**types[name], "text": Parameter("RichText")}
    return Schema(methods, types)


def _parameters(text: str) -> Parameters:
    return {
        (name := word.removesuffix("!")): Parameter(_KINDS.get(name, "String"), name != word)
        for word in text.split()
    }
