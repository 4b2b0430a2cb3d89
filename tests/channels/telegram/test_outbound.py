"""Outgoing parts: one call each, and every way in which Telegram can reject one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Button, Media, OutboundMessage, OutboundPart
from nanobot.bus.split import split_message
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown
from nanobot_telegram import TelegramChannel
from nanobot_telegram.markdown import CAPTION_LIMIT, render
from tests.channels.telegram.sending import GROUP, PERSON, Rig, set_up_rig, start_rig
from tests.channels.telegram.support import options_for
from tests.doubles.telegram.media import OGG, PNG

SENDING = (
    "sendMessage",
    "sendPhoto",
    "sendAnimation",
    "sendVoice",
    "sendAudio",
    "sendVideo",
    "sendDocument",
    "sendMediaGroup",
)


TABLE = "a longer cell|b\n-|-\n" + "a|b\n" * 60
"""Its aligned form is far longer than its source."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with set_up_rig(tmp_path) as rig:
        rig.telegram.group(GROUP)
        yield rig


def calls(rig: Rig) -> list[str]:
    return [call.method for call in rig.telegram.calls_of(*SENDING)]


async def test_a_text_is_one_message_with_entities_and_without_link_previews(rig: Rig) -> None:
    receipt = await rig.send("a **bold** word")
    (sent,) = rig.telegram.messages()
    assert (sent.text, str(sent.message_id)) == ("a bold word", receipt.platform_id)
    assert [entity["type"] for entity in sent.entities] == ["bold"]
    assert not sent.previews
    assert calls(rig) == ["sendMessage"]


async def test_buttons_carry_their_opaque_ids(rig: Rig) -> None:
    buttons = (Button("Yes", "/approve 1", id="b1"), Button("No", "/deny 1", id="b2"))
    await rig.send("Really?", buttons=buttons)
    (sent,) = rig.telegram.messages()
    assert [[(one.label, one.data) for one in row] for row in sent.buttons] == [
        [("Yes", "b1")],
        [("No", "b2")],
    ]


@pytest.mark.parametrize(
    ("method", "result", "files"),
    [
        ("sendMessage", b'{"message_id":5}', ()),
        ("sendMessage", b'{"message_id":5,"date":1795323404670,"chat":{"id":"7"}}', ()),
        ("sendMediaGroup", b'[{"message_id":5},{"message_id":6,"chat":0}]', ("a.png", "b.png")),
    ],
)
async def test_what_was_taken_is_delivered_however_the_message_is_described(
    rig: Rig, method: str, result: bytes, files: tuple[str, ...]
) -> None:
    rig.telegram.garble(method, b'{"ok":true,"result":' + result + b"}")
    media = [rig.home.file(name, PNG, kind="image", mime="image/png") for name in files]
    assert (await rig.send("hello", *media)).platform_id == "5"
    assert len(calls(rig)) == 1


async def test_a_reply_names_the_message_it_answers(rig: Rig) -> None:
    question = rig.telegram.say("?")
    await rig.send("!", reply_to=question)
    assert rig.telegram.messages()[0].reply_to == question


@pytest.mark.parametrize(
    ("name", "kind", "mime", "content", "sent_as"),
    [
        ("a.png", "image", "image/png", PNG, "photo"),
        ("a.gif", "image", "image/gif", b"GIF89a", "animation"),
        ("a.svg", "image", "image/svg+xml", b"<svg/>", "document"),
        ("a.ogg", "voice", "audio/ogg", OGG, "voice"),
        ("a.wav", "voice", "audio/wav", b"RIFF", "document"),
        ("a.mp3", "audio", "audio/mpeg", b"ID3", "audio"),
        ("a.flac", "audio", "audio/flac", b"fLaC", "document"),
        ("a.mp4", "video", "video/mp4", b"....ftyp", "video"),
        ("a.mkv", "video", "video/x-matroska", b"mkv", "document"),
        ("a.txt", "document", "text/plain", b"text", "document"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_file_goes_as_what_telegram_can_show(
    rig: Rig, name: str, kind: str, mime: str, content: bytes, sent_as: str
) -> None:
    await rig.send("a *caption*", rig.home.file(name, content, kind=kind, mime=mime))
    (sent,) = rig.telegram.messages()
    assert (sent.kind, sent.text, sent.entities[0]["type"]) == (sent_as, "a caption", "italic")
    assert sent.file is not None
    assert (sent.file.name, sent.file.content) == (name, content)


async def test_files_that_belong_together_are_one_album_with_the_caption_first(rig: Rig) -> None:
    first = rig.home.file("a.png", PNG, kind="image", mime="image/png")
    second = rig.home.file("b.mp4", b"....ftyp", kind="video", mime="video/mp4")
    receipt = await rig.send("caption", first, second)
    sent = rig.telegram.messages()
    assert [(one.kind, one.text) for one in sent] == [("photo", "caption"), ("video", "")]
    assert len({one.group_id for one in sent}) == 1
    assert receipt.platform_id == str(sent[0].message_id)
    assert calls(rig) == ["sendMediaGroup"]


async def test_an_album_of_files_that_cannot_be_mixed_is_one_of_documents(rig: Rig) -> None:
    first = rig.home.file("a.png", PNG, kind="image", mime="image/png")
    second = rig.home.file("b.svg", b"<svg/>", kind="image", mime="image/svg+xml")
    await rig.send("", first, second)
    assert [sent.kind for sent in rig.telegram.messages()] == ["document", "document"]


async def test_a_photo_that_telegram_cannot_read_goes_as_a_document(rig: Rig) -> None:
    await rig.send("x", rig.home.file("a.png", b"broken", kind="image", mime="image/png"))
    assert calls(rig) == ["sendPhoto", "sendDocument"]
    assert [(sent.kind, sent.text) for sent in rig.telegram.messages()] == [("document", "x")]


async def test_an_album_with_a_photo_refused_goes_as_documents(rig: Rig) -> None:
    first = rig.home.file("a.png", PNG, kind="image", mime="image/png")
    second = rig.home.file("b.png", b"broken", kind="image", mime="image/png")
    await rig.send("", first, second)
    assert calls(rig) == ["sendMediaGroup", "sendMediaGroup"]
    assert [sent.kind for sent in rig.telegram.messages()] == ["document", "document"]


async def test_a_file_that_is_gone_is_refused_without_a_call(rig: Rig) -> None:
    with pytest.raises(SendRefused, match="gone"):
        await rig.send("", Media("never.txt"))
    assert calls(rig) == []


@pytest.mark.parametrize(("size", "said"), [(50_000_001, "at most 50 MB"), (0, "is empty")])
async def test_a_file_that_telegram_never_takes_is_refused_without_a_call(
    rig: Rig, size: int, said: str
) -> None:
    media = rig.home.file("a.bin", b"")
    with (rig.home.state_folder / "a.bin").open("r+b") as file:
        file.truncate(size)
    with pytest.raises(SendRefused, match=said):
        await rig.send("", media)
    assert calls(rig) == []


async def test_a_flood_asks_to_wait_and_says_how_long(rig: Rig) -> None:
    rig.telegram.flood(PERSON, 17)
    with pytest.raises(SendLater) as caught:
        await rig.send("hello")
    assert caught.value.retry_after == 17
    await rig.send("hello")
    assert rig.telegram.texts() == ["hello"]


@pytest.mark.parametrize("code", [500, 502, 503])
async def test_a_server_error_leaves_it_unknown(rig: Rig, code: int) -> None:
    rig.telegram.fail("sendMessage", code)
    with pytest.raises(SendUnknown):
        await rig.send("hello")


@pytest.mark.parametrize("status", [302, 408, 409, 421, 502, 504])
@pytest.mark.parametrize("method", ["sendMessage", "sendPhoto", "sendVoice", "sendMediaGroup"])
async def test_what_something_in_between_answers_leaves_every_kind_of_part_unknown(
    rig: Rig, method: str, status: int
) -> None:
    photo = rig.home.file("a.png", PNG, kind="image", mime="image/png")
    voice = rig.home.file("a.ogg", OGG, kind="voice", mime="audio/ogg")
    files = {"sendPhoto": (photo,), "sendVoice": (voice,), "sendMediaGroup": (photo, photo)}
    rig.telegram.garble(method, status=status, after="effect")
    with pytest.raises(SendUnknown):
        await rig.send("look", *files.get(method, ()))
    assert calls(rig) == [method]
    assert rig.telegram.messages()


async def test_a_server_that_is_not_there_is_worth_trying_again(rig: Rig) -> None:
    await rig.telegram.stop()
    with pytest.raises(SendLater):
        await rig.send("hello")


@pytest.mark.parametrize("effect", [True, False])
async def test_a_connection_cut_after_sending_leaves_it_unknown(rig: Rig, effect: bool) -> None:
    rig.telegram.cut("sendMessage", after="effect" if effect else "request")
    with pytest.raises(SendUnknown):
        await rig.send("hello")
    assert rig.telegram.texts() == ["hello"] * effect


@pytest.mark.parametrize("body", [b"", b'{"ok": true, "result": {}}', b'{"ok": true, "result": 1}'])
async def test_an_answer_that_makes_no_sense_leaves_it_unknown(rig: Rig, body: bytes) -> None:
    rig.telegram.garble("sendMessage", body)
    with pytest.raises(SendUnknown):
        await rig.send("hello")


@pytest.mark.parametrize(
    ("code", "said"),
    [(403, "Forbidden: bot was blocked by the user"), (400, "Bad Request: chat not found")],
)
async def test_a_chat_that_is_gone_is_refused_without_a_call_until_it_writes_again(
    rig: Rig, code: int, said: str
) -> None:
    rig.telegram.fail("sendMessage", code, said)
    for _ in range(2):
        with pytest.raises(SendRefused, match="can't send messages to"):
            await rig.send("hello")
    assert calls(rig) == ["sendMessage"]
    rig.chats.set_reachable(str(PERSON))
    await rig.send("hello")
    assert rig.telegram.texts() == ["hello"]


@pytest.mark.parametrize(
    "said", ["message to be replied not found", "MESSAGE_ID_INVALID", "message to reply not found"]
)
async def test_a_reply_target_that_is_missing_is_left_out(rig: Rig, said: str) -> None:
    rig.telegram.fail("sendMessage", 400, f"Bad Request: {said}")
    await rig.send("hello", reply_to=rig.telegram.say("?"))
    assert [(sent.text, sent.reply_to) for sent in rig.telegram.messages()] == [("hello", None)]


async def test_a_deleted_reply_target_costs_no_second_call(rig: Rig) -> None:
    await rig.send("hello", reply_to=999_999)
    assert calls(rig) == ["sendMessage"]


async def test_a_topic_that_is_missing_is_left_out(rig: Rig) -> None:
    rig.telegram.group(-77, forum=True)
    topic = rig.telegram.topic(-77)
    await rig.send("in it", chat=-77, thread=topic)
    await rig.send("outside", chat=-77, thread=topic + 1)
    assert [(sent.text, sent.thread) for sent in rig.telegram.messages(-77)] == [
        ("in it", topic),
        ("outside", None),
    ]


async def test_entities_that_are_refused_leave_the_plain_source(rig: Rig) -> None:
    rig.telegram.fail("sendMessage", 400, "Bad Request: ENTITY_BOUNDS_INVALID")
    await rig.send("see [here](https://example.org)")
    assert rig.telegram.texts() == ["see [here](https://example.org)"]
    assert calls(rig) == ["sendMessage"] * 2


async def test_a_table_that_grows_beyond_a_caption_arrives_before_its_file(rig: Rig) -> None:
    limits = TelegramChannel(options_for(rig.telegram)).limits
    file = rig.home.file("a.txt", kind="document")
    assert len(TABLE) < CAPTION_LIMIT < len(render(TABLE).text)
    parts = split_message(OutboundMessage("telegram", str(PERSON), TABLE, (file,)), limits)
    for part in parts:
        await rig.send(part.content, *part.media)
    text, document = rig.telegram.messages()
    assert (text.text.count("\na "), document.kind, document.text) == (60, "document", "")


@pytest.mark.parametrize("said", ["message caption is too long", "MEDIA_CAPTION_TOO_LONG"])
async def test_a_caption_that_is_refused_for_its_length_is_sent_as_its_source(
    rig: Rig, said: str
) -> None:
    rig.telegram.fail("sendDocument", 400, f"Bad Request: {said}")
    await rig.send("a **bold** word", rig.home.file("a.txt", kind="document"))
    assert [sent.text for sent in rig.telegram.messages()] == ["a **bold** word"]
    assert calls(rig) == ["sendDocument"] * 2


async def test_a_file_that_is_too_large_for_a_request_is_uploaded_once(rig: Rig) -> None:
    rig.telegram.fail("", 413, "Request Entity Too Large", times=9)
    with pytest.raises(SendRefused, match="Too Large"):
        await rig.send("**x**", rig.home.file("a.png", PNG, kind="image", mime="image/png"))
    assert calls(rig) == ["sendPhoto"]


async def test_several_things_wrong_at_once_are_all_mended(rig: Rig) -> None:
    rig.telegram.fail("sendPhoto", 400, "Bad Request: message thread not found")
    rig.telegram.fail("sendPhoto", 400, "Bad Request: can't parse entities")
    media = rig.home.file("a.png", b"broken", kind="image", mime="image/png")
    rig.telegram.group(-77, forum=True)
    await rig.send("**x**", media, chat=-77, thread=rig.telegram.topic(-77))
    (sent,) = rig.telegram.messages(-77)
    assert (sent.kind, sent.text, sent.entities, sent.thread) == ("document", "**x**", (), None)


@pytest.mark.parametrize(
    "said", ["request is too large", "not enough rights to send text messages"]
)
async def test_any_other_refusal_is_final(rig: Rig, said: str) -> None:
    rig.telegram.fail("sendMessage", 400, f"Bad Request: {said}", times=9)
    with pytest.raises(SendRefused, match=f"(?i){said}"):
        await rig.send("**hello**", reply_to=1, thread=1)
    assert calls(rig) == ["sendMessage"]


async def test_what_no_form_helps_is_given_up(rig: Rig) -> None:
    rig.telegram.fail("", 400, "Bad Request: message thread not found", times=99)
    with pytest.raises(SendRefused):
        await rig.send("", rig.home.file("a.png", PNG, kind="image"), thread=5)
    assert len(calls(rig)) <= 4


async def test_a_group_that_became_a_supergroup_is_followed_and_remembered(
    rig: Rig, tmp_path: Path
) -> None:
    new = -1_000_000_000_042
    rig.telegram.migrate(GROUP, new)
    await rig.send("one", chat=GROUP, reply_to=3)
    assert rig.telegram.texts(new) == ["one"]
    async with start_rig(tmp_path, rig.telegram) as later:
        await later.send("two", chat=GROUP)
    assert rig.telegram.texts(new) == ["one", "two"]
    assert [call.chat_id for call in rig.telegram.calls_of("sendMessage")] == [GROUP, new, new]


async def test_nothing_to_say_and_nowhere_to_say_it_are_refused_without_a_call(rig: Rig) -> None:
    with pytest.raises(SendRefused, match="nothing to send"):
        await rig.send(" \n")
    with pytest.raises(SendRefused, match="is not a Telegram chat"):
        await rig.outbound.send(OutboundPart("key", "telegram", "somewhere", "hello"))
    assert calls(rig) == []


async def test_half_characters_are_replaced_wherever_they_stand(rig: Rig) -> None:
    await rig.send("a\ud83d b \ud83d\ude00", buttons=(Button("\udc00", "x", id="b1"),))
    media = rig.home.file("a.txt", kind="document")
    await rig.send("", replace(media, name="\udcff.txt"))
    text, file = rig.telegram.messages()
    assert (text.text, text.labels) == ("a\ufffd b 😀", ("\ufffd",))
    assert file.file is not None
    assert file.file.name == "\ufffd.txt"


async def test_the_token_is_in_no_error(rig: Rig) -> None:
    secret = rig.telegram.token.partition(":")[2]
    rig.telegram.cut("sendMessage")
    rig.telegram.fail("sendMessage", 403, "Forbidden")
    for _ in range(2):
        with pytest.raises(SendError) as caught:
            await rig.send("hello")
        error: BaseException | None = caught.value
        while error is not None:
            assert secret not in repr(error)
            error = error.__cause__ or error.__context__


async def test_what_is_for_one_person_of_a_group_is_shown_to_them_alone(rig: Rig) -> None:
    part = OutboundPart("key", "telegram", str(GROUP), "# your `code`", only=str(PERSON))
    assert (await rig.outbound.send(part)).platform_id == ""
    (sent,) = rig.telegram.ephemeral(GROUP)
    assert (sent.text, sent.only, sent.kind) == ("your code", PERSON, "text")
    assert rig.telegram.messages(GROUP) == []


@pytest.mark.parametrize("code", [400, 403])
async def test_where_nothing_can_be_shown_to_one_person_everybody_sees_it_once(
    rig: Rig, code: int
) -> None:
    rig.telegram.fail("sendMessage", code, "EPHEMERAL_FORBIDDEN")
    part = OutboundPart("key", "telegram", str(GROUP), "your code", only=str(PERSON))
    assert (await rig.outbound.send(part)).platform_id
    assert rig.telegram.texts(GROUP) == ["your code"]
    assert rig.telegram.ephemeral(GROUP) == []


@pytest.mark.parametrize(("chat", "only"), [(PERSON, str(PERSON)), (GROUP, "chat:-5")])
async def test_in_private_and_for_whom_no_account_is_known_it_is_a_message_like_any_other(
    rig: Rig, chat: int, only: str
) -> None:
    await rig.outbound.send(OutboundPart("key", "telegram", str(chat), "your code", only=only))
    assert rig.telegram.texts(chat) == ["your code"]
