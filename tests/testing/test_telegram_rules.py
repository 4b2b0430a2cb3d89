"""The fake rejects the same requests as the Bot API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.telegram.rules import first_problem
from tests.doubles.telegram.schema import load_schema
from tests.doubles.telegram.values import Call, Upload

SCHEMA = load_schema(None)
FILE = {"a": Upload("a.png", "image/png", b"x"), "b": Upload("b.png", "image/png", b"y")}


def entity(kind: str, offset: int, length: int, **more: str) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


def text(content: str, *entities: object, **more: object) -> Call:
    params = {"chat_id": 7, "text": content, "entities": list(entities), **more}
    return Call("sendMessage", params)


def buttons(*row: object) -> Call:
    return text("x", reply_markup={"inline_keyboard": [list(row)]})


def album(*items: dict[str, Any], files: int = 2) -> Call:
    return Call("sendMediaGroup", {"chat_id": 7, "media": list(items)}, FILE if files else {})


def rich(*blocks: object, **more: object) -> Call:
    """Return a call of sendRichMessage."""
    return Call("sendRichMessage", {"chat_id": 7, "rich_message": {"blocks": [*blocks], **more}})


def paragraph(content: object) -> dict[str, object]:
    """Return a block."""
    return {"type": "paragraph", "text": content}


def table(columns: int, rows: int = 1) -> dict[str, object]:
    """Return a block."""
    cell = {"text": "x", "align": "left", "valign": "top"}
    return {"type": "table", "cells": [[cell] * columns] * rows}


def react(*emojis: str) -> Call:
    """Return a call of setMessageReaction."""
    reaction = [{"type": "emoji", "emoji": emoji} for emoji in emojis]
    return Call("setMessageReaction", {"chat_id": 7, "message_id": 1, "reaction": reaction})


def item(kind: str, name: str = "a", **more: object) -> dict[str, Any]:
    return {"type": kind, "media": f"attach://{name}", **more}


def menu(*commands: tuple[str, str]) -> Call:
    listed = [{"command": name, "description": description} for name, description in commands]
    return Call("setMyCommands", {"commands": listed})


GOOD = [
    text("x" * 4096),
    text("😀" * 2048),
    text("bold code", entity("bold", 0, 4), entity("code", 5, 4)),
    text("nested", entity("italic", 1, 3), entity("bold", 0, 6)),
    text("quote", entity("blockquote", 0, 5), entity("code", 0, 3)),
    text("link", entity("text_link", 0, 4, url="https://example.org"), entity("bold", 0, 4)),
    text("😀 a", entity("bold", 0, 2), entity("italic", 3, 1)),
    text("x", reply_parameters={"message_id": 1, "allow_sending_without_reply": True}),
    text("x", link_preview_options={"is_disabled": True}, disable_notification=True),
    buttons({"text": "yes", "callback_data": "é" * 32}, {"text": "see", "url": "https://x.org"}),
    album(item("photo"), item("video", "b", caption="c" * 1024)),
    album(item("document"), {"type": "document", "media": "file-000001"}),
    menu(("new", "Begin again"), ("dream_log", "What changed")),
    Call("sendMessageDraft", {"chat_id": 7, "draft_id": 5, "text": ""}),
    Call("sendPhoto", {"chat_id": 7, "photo": "attach://a", "caption": "c"}, FILE),
    Call("sendPhoto", {"chat_id": "7", "photo": "attach://photo"}, {"photo": FILE["a"]}),
    Call("getUpdates", {"offset": -1, "limit": 100, "timeout": 30, "allowed_updates": []}),
    Call("setWebhook", {"url": "https://bot.example.org:8443/t", "secret_token": "aZ_-9"}),
    Call("setMyCommands", {"commands": [], "scope": {"type": "chat", "chat_id": 7}}),
    Call("answerCallbackQuery", {"callback_query_id": "1", "text": "t" * 200}),
    rich(paragraph("x"), {"type": "heading", "text": "x", "size": 6}, table(20, 400)),
    rich(paragraph(["a ", {"type": "bold", "text": [{"type": "code", "text": "b"}]}])),
    rich({"type": "blockquote", "blocks": [paragraph("x" * 32_768)]}),
    react("👀"),
    react(),
]
WRONG = [
    (text(""), "message text is empty"),
    (text(" \n"), "message text is empty"),
    (text("x" * 4097), "message is too long"),
    (text("😀" * 2049), "message is too long"),
    (text("\ud83d"), "UTF-8"),
    (text("x" * 101, *(entity("bold", at, 1) for at in range(101))), "more than 100"),
    (text("abc", entity("bold", 2, 2)), "is not within the text"),
    (text("abc", entity("bold", -1, 2)), "is not within the text"),
    (text("abc", entity("bold", 1, 0)), "is empty"),
    (text("😀😀", entity("bold", 0, 1)), "cuts a character in two"),
    (text("😀😀", entity("bold", 1, 3)), "cuts a character in two"),
    (text("abc", entity("shiny", 0, 1)), "has an unknown type"),
    (text("abc", entity("text_link", 0, 1)), "has no url"),
    (text("abcdef", entity("bold", 0, 4), entity("italic", 2, 4)), "overlap"),
    (text("abc", entity("bold", 0, 3), entity("code", 0, 3)), "may not be within"),
    (text("abc", entity("pre", 0, 3), entity("bold", 1, 1)), "may not be within"),
    (text("abc", entity("blockquote", 0, 3), entity("blockquote", 1, 1)), "may not be within"),
    (text("x", parse_mode="HTML"), "parse_mode"),
    (text("x", colour="red"), '"colour" is unknown'),
    (text("x", link_preview_options={"off": True}), "link_preview_options.off"),
    (text("x", disable_notification="yes"), "must be of type Boolean"),
    (text("x", message_thread_id="general"), "must be of type Integer"),
    (text("x", reply_markup=[]), "must be an object"),
    (Call("sendMessage", {"chat_id": 7}), '"text" is required'),
    (Call("sendMessage", {"text": "x"}), '"chat_id" is required'),
    (Call("sendMessage", {"chat_id": 7, "text": 5}), "must be of type String"),
    (Call("sendMessage", {"chat_id": 7, "text": "x", "entities": {}}), "must be an array"),
    (text("abc", {"type": "bold", "offset": 0}), '"entities[0].length" is required'),
    (buttons({"text": "x", "callback_data": ""}), "BUTTON_DATA_INVALID"),
    (buttons({"text": "x", "callback_data": "é" * 33}), "BUTTON_DATA_INVALID"),
    (buttons({"text": "x"}), "exactly one action"),
    (buttons({"text": "x", "url": "https://x.org", "callback_data": "y"}), "exactly one action"),
    (buttons({"text": "", "callback_data": "y"}), "is empty"),
    (buttons(*({"text": "x", "callback_data": "y"} for _ in range(101))), "too long"),
    (album(item("photo")), "from 2 to 10"),
    (album(*(item("photo") for _ in range(11))), "from 2 to 10"),
    (album(item("photo"), item("document")), "document and photo together"),
    (album(item("audio"), item("document")), "audio and document together"),
    (album(item("photo"), item("photo", "b", caption="c" * 1025)), "caption is too long"),
    (album(item("photo"), item("photo", "c")), 'no part "c"'),
    (Call("sendPhoto", {"chat_id": 7}), '"photo" is required'),
    (Call("sendPhoto", {"chat_id": 7, "photo": "attach://z"}, FILE), 'no part "z"'),
    (Call("sendPhoto", {"chat_id": 7, "photo": "https://x.org/a.png"}), "does not fetch"),
    (
        Call("sendVoice", {"chat_id": 7, "voice": "id", "caption": "c" * 1025}),
        "message caption is too long",
    ),
    (
        Call(
            "sendVoice",
            {"chat_id": 7, "voice": "id", "caption": "c", "caption_entities": [entity("b", 0, 1)]},
        ),
        "has an unknown type",
    ),
    (Call("sendMessageDraft", {"chat_id": 7, "draft_id": 0, "text": "x"}), "must be non-zero"),
    (Call("editMessageText", {"chat_id": 7, "message_id": 1, "text": ""}), "is empty"),
    (Call("sendChatAction", {"chat_id": 7, "action": "dancing"}), "wrong parameter action"),
    (Call("answerCallbackQuery", {"callback_query_id": "1", "text": "t" * 201}), "TOO_LONG"),
    (menu(("New", "x")), "BOT_COMMAND_INVALID"),
    (menu(("dream-log", "x")), "BOT_COMMAND_INVALID"),
    (menu(("n" * 33, "x")), "BOT_COMMAND_INVALID"),
    (menu(("new", "x" * 257)), "DESCRIPTION_INVALID"),
    (menu(*((f"c{number}", "x") for number in range(101))), "TOO_MUCH"),
    (Call("getUpdates", {"limit": 101}), "from 1 to 100"),
    (Call("getUpdates", {"timeout": -1}), "negative"),
    (Call("setWebhook", {"url": "http://bot.example.org/t"}), "HTTPS"),
    (Call("setWebhook", {"url": "https://bot.example.org:9000/t"}), "ports"),
    (Call("setWebhook", {"url": "https://bot.example.org", "secret_token": "é"}), "unallowed"),
    (rich(), "non-empty"),
    (rich(paragraph("x"), html="<p>x</p>"), "exactly one form"),
    (rich(paragraph("x" * 32_769)), "too long"),
    (rich(*(paragraph("x") for _ in range(501))), "too long"),
    (rich(table(21)), "too many columns"),
    (rich({"type": "pre", "text": "x", "colour": "red"}), "unknown"),
    (rich({"text": "x"}), "rich_message.blocks[0]"),
    (react("👀", "👍"), "TOO_MANY"),
    (react("x"), "REACTION_INVALID"),
]


@pytest.mark.parametrize("call", GOOD, ids=range(len(GOOD)))
def test_what_the_documentation_allows_is_taken(call: Call) -> None:
    assert first_problem(call, SCHEMA) == ""


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_the_documentation_forbids_is_refused(call: Call, words: str) -> None:
    assert words in first_problem(call, SCHEMA)
