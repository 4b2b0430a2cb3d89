"""The text of messages, and whether it was addressed to the bot."""

from __future__ import annotations

import pytest

from nanobot_telegram.updates import from_press
from tests.channels.telegram.update_samples import (
    ANN,
    BOB,
    BOT,
    FORUM,
    GROUP,
    SENT,
    Raw,
    entity,
    message,
    read,
    read_message,
)

NAME = "@nano_test_bot"
PHOTO = [{"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9}]
BY_BOB = {"type": "user", "date": SENT, "sender_user": BOB}


def mention(offset: int = 0, length: int = len(NAME)) -> Raw:
    return entity("mention", offset, length)


def is_addressed(**fields: object) -> bool:
    understood = read(message(**{"chat": GROUP} | fields))
    assert understood is not None
    return understood.addressed


@pytest.mark.parametrize(
    ("text", "entities", "content"),
    [
        (f"{NAME} what is this?", [mention()], "what is this?"),
        (f"{NAME}, hello", [mention()], "hello"),
        ("@Nano_TEST_bot: hello", [mention()], "hello"),
        (f"  {NAME} hello", [mention(2)], "hello"),
        (f"{NAME} -1+1?", [mention()], "-1+1?"),
        (f"hello {NAME} there", [mention(6)], f"hello {NAME} there"),
        (f"\U0001f642\U0001f642 {NAME}", [mention(5)], f"\U0001f642\U0001f642 {NAME}"),
        ("Nano what?", [entity("text_mention", 0, 4, user=BOT)], "what?"),
        (f"{NAME} /status", [mention()], "/status"),
        (NAME, [mention()], NAME),
        (f"{NAME} \U0001f642 x", [mention(), entity("bold", 18, 1)], "\U0001f642 x"),
    ],
)
def test_a_mention_addresses_us_and_is_taken_off_the_front(
    text: str, entities: list[Raw], content: str
) -> None:
    raw = message(GROUP, text=text, entities=entities)
    assert read_message(raw).content == content
    assert is_addressed(text=text, entities=entities)


def test_a_mention_in_a_caption_counts() -> None:
    assert is_addressed(photo=PHOTO, caption=NAME, caption_entities=[mention()])
    caption = f"{NAME} what is it?"
    said = read_message(message(GROUP, photo=PHOTO, caption=caption, caption_entities=[mention()]))
    assert said.content == "what is it?"


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        (f"{NAME} by substring only", []),
        (f"{NAME}2 is another", [mention(0, len(NAME) + 1)]),
        ("@other_bot hello", [mention(0, 10)]),
        ("Bob hello", [entity("text_mention", 0, 3, user=BOB)]),
        (f"x{NAME}", [mention(0, len(NAME))]),
        (f"{NAME}", [mention(0, 900)]),
        (f"{NAME}", [mention(-3)]),
        (f"{NAME}", [entity("code", 0, len(NAME))]),
        (f"\U0001f642{NAME}", [mention(1)]),
        ("hello all", []),
    ],
)
def test_what_only_looks_like_a_mention_addresses_nobody(text: str, entities: list[Raw]) -> None:
    assert not is_addressed(text=text, entities=entities)
    assert read_message(message(GROUP, text=text, entities=entities)).content == text


def test_everything_in_private_is_for_us() -> None:
    understood = read(message(text="hello all"))
    assert understood is not None
    assert understood.addressed


@pytest.mark.parametrize(
    ("text", "content", "for_us"),
    [
        ("/status", "/status", True),
        ("/dream_log 3", "/dream_log 3", True),
        ("/dream-log", "/dream-log", True),
        ("/STATUS", "/STATUS", True),
        ("/status@Nano_Test_Bot now", "/status now", True),
        ("/other@nano_test_bot", "/other", True),
        ("/other", "/other", False),
        ("/etc/hosts is a file", "/etc/hosts is a file", False),
        ("/start", "/help", False),
        ("/start@nano_test_bot from-a-link", "/help", True),
        ("/Start payload", "/help", False),
    ],
)
def test_a_command_in_a_group_is_ours_by_name_or_address(
    text: str, content: str, *, for_us: bool
) -> None:
    assert read_message(message(GROUP, text=text)).content == content
    assert is_addressed(text=text) is for_us


@pytest.mark.parametrize(
    "text", ["/status@other_bot", "/start@other_bot x", "/status@other_bot\nx"]
)
def test_a_command_for_another_bot_is_not_for_us(text: str) -> None:
    assert read(message(GROUP, text=text)) is None
    assert read(message(text=text)) is None


def test_a_command_in_a_caption_is_one() -> None:
    assert read_message(message(photo=PHOTO, caption="/start")).content == "/help"


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        (f"{NAME} do it", [mention()]),
        ("/status", [entity("bot_command", 0, 7)]),
        ("/start", []),
        ("/status@other_bot", []),
    ],
)
def test_forwarded_words_call_nobody_and_stay_as_they_are(text: str, entities: list[Raw]) -> None:
    fields: Raw = {"text": text, "entities": entities, "forward_origin": BY_BOB}
    assert read_message(message(**fields)).content == text
    assert not is_addressed(**fields)


@pytest.mark.parametrize(
    ("text", "link", "notes"),
    [
        ("see here now", (4, 4), ("link: here, https://a.example/x",)),
        ("\U0001f642 here", (3, 4), ("link: here, https://a.example/x",)),
        ("https://b.example/", (0, 18), ("link: https://b.example/, https://a.example/x",)),
        ("https://a.example/x/", (0, 20), ()),
        ("half \U0001f642", (5, 1), ()),
        ("beyond", (0, 99), ()),
        ("empty", (0, 0), ()),
    ],
)
def test_an_address_behind_words_is_noted_and_is_not_the_persons_words(
    text: str, link: tuple[int, int], notes: tuple[str, ...]
) -> None:
    entities = [entity("text_link", *link, url="https://a.example/x"), entity("bold", 0, 1)]
    said = read_message(message(text=text, entities=entities))
    assert (said.content, said.notes) == (text, notes)


def test_links_behind_a_mention_are_noted() -> None:
    text = f"{NAME} a b"
    entities = [
        entity("text_link", 17, 1, url="https://b.example"),
        mention(),
        entity("text_link", 15, 1, url="https://a.example"),
    ]
    said = read_message(message(GROUP, text=text, entities=entities))
    assert said.content == "a b"
    assert said.notes == ("link: a, https://a.example", "link: b, https://b.example")


def test_a_character_that_no_file_can_hold_is_replaced() -> None:
    assert read_message(message(text="x\ud83d y")).content == "x\ufffd y"


@pytest.mark.parametrize(
    ("fields", "for_us"),
    [
        ({"reply_to_message": message(GROUP, **{"from": BOT, "text": "hi"})}, True),
        ({"reply_to_message": message(GROUP, **{"from": BOB, "text": "hi"})}, False),
        ({"external_reply": {"origin": BY_BOB | {"sender_user": BOT}}}, True),
        ({"external_reply": {"origin": BY_BOB}}, False),
    ],
)
def test_a_reply_to_us_addresses_us(fields: Raw, *, for_us: bool) -> None:
    assert is_addressed(text="and?", **fields) is for_us


def test_the_root_of_a_topic_is_nothing_that_one_replies_to() -> None:
    ours = message(FORUM, **{"from": BOT, "message_id": 3, "text": "root"})
    opened = ours | {"text": None, "forum_topic_created": {"name": "T", "icon_color": 1}}
    for root in (ours, opened):
        raw = message(
            FORUM, text="x", message_thread_id=3, is_topic_message=True, reply_to_message=root
        )
        understood = read(raw)
        assert understood is not None
        assert not understood.addressed
        assert read_message(raw).reply_to is None


def test_a_button_says_its_value_as_if_typed() -> None:
    pressed = {
        "id": "77",
        "from": ANN,
        "chat_instance": "c",
        "data": "b1",
        "message": message(
            FORUM, **{"from": BOT, "message_thread_id": 3, "is_topic_message": True}
        ),
    }
    understood = read(pressed, "callback_query")
    assert understood is not None
    assert understood.press is not None
    assert understood.addressed
    assert understood.press.button_id == "b1"
    plain = read_message(message(FORUM, text="yes", message_thread_id=3, is_topic_message=True))
    said = from_press(understood, understood.press, "yes", plain.timestamp)
    assert said.event_id == "callback:77"
    assert (said.content, said.sender_id, said.session_key, said.is_group, said.sender_name) == (
        plain.content, plain.sender_id, plain.session_key, plain.is_group, plain.sender_name,
    )  # fmt: skip
