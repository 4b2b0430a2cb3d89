"""The helper's requests for sending a part."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.events import Button, Media, MediaKind, OutboundPart
from nanobot.errors import SendRefused
from nanobot_whatsapp.ingest import RecentMessages
from nanobot_whatsapp.linked.inbound import read
from nanobot_whatsapp.linked.outbound import MAX_FILE_BYTES, Outbound, make_message_id
from nanobot_whatsapp.linked.protocol import Me, Method
from nanobot_whatsapp.people import People
from tests.channels.whatsapp.linked.helpers import US, make_event

ANN = "15557770000"
GROUP = "120363000000000001@g.us"


class Wire:
    """Implements the link. Everything is sent and recorded."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.me = Me(**US)
        self.recent = RecentMessages()
        self.people = People(folder)
        self.folder = folder
        self.outbound = Outbound(self, self.people, self.recent, self.media_path, "🤖 ")

    async def request(
        self, method: Method, params: Mapping[str, object], patience: float = 60.0
    ) -> Mapping[str, object]:
        assert method == "send"
        self.sent.append(params)
        return {"id": params["id"], "at": 1}

    def media_path(self, media: Media) -> Path:
        return self.folder / media.ref

    def file(self, kind: MediaKind, mime: str, size: int = 3) -> Media:
        name = f"{kind}.bin"
        with (self.folder / name).open("wb") as file:
            file.truncate(size)
        return Media(name, kind, mime, f"{kind} from home")


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    return Wire(tmp_path)


def part(content: str, chat_id: str = ANN, *media: Media, **more: Any) -> OutboundPart:
    return OutboundPart("turn 7/1", "whatsapp", chat_id, content, media=media, **more)


async def test_a_text_goes_to_the_number_with_the_same_id_each_time(wire: Wire) -> None:
    receipt = await wire.outbound.send(part("hello *you*"))
    await wire.outbound.send(part("hello *you*"))
    assert wire.sent[0] == {
        "to": "15557770000@s.whatsapp.net",
        "id": make_message_id(part("hello *you*")),
        "text": "hello _you_",
        "quote": None,
        "file": None,
    }
    assert wire.sent[1] == wire.sent[0]
    assert receipt.platform_id == make_message_id(part("hello *you*"))


def test_an_id_looks_like_those_of_phones() -> None:
    id = make_message_id(part("hello"))
    assert id.startswith("3EB0")
    assert len(id) == 22
    assert id.isupper()


def test_what_another_home_says_has_another_id_although_its_keys_are_the_same() -> None:
    said = [
        part("hello", event_ids=("A1",)),
        part("hello", event_ids=("A2",)),
        part("hello", GROUP, event_ids=("A1",)),
        part("bye", event_ids=("A1",)),
    ]
    assert len({make_message_id(one) for one in said}) == len(said)


async def test_who_is_known_by_two_ids_is_written_to_at_the_number(wire: Wire) -> None:
    wire.people.chat_of(["888@lid"])
    wire.people.chat_of([ANN, "888@lid"])
    await wire.outbound.send(part("hello", "888@lid"))
    assert wire.sent[0]["to"] == "15557770000@s.whatsapp.net"


@pytest.mark.parametrize("chat_id", ["15550001111", "999@lid"])
async def test_in_the_chat_with_oneself_answers_can_be_told_apart(wire: Wire, chat_id: str) -> None:
    await wire.outbound.send(part("hello", chat_id))
    assert wire.sent[0]["text"] == "🤖 hello"


async def test_buttons_become_lines_unless_the_text_says_what_they_say(wire: Wire) -> None:
    buttons = (Button("Yes", "/approve 7"), Button("No", "/deny 7"))
    await wire.outbound.send(part("Shall I? Answer /approve 7.", buttons=buttons))
    assert wire.sent[0]["text"] == "Shall I? Answer /approve 7.\n\n• No: /deny 7"


async def test_a_reply_in_a_group_quotes_what_it_answers(wire: Wire) -> None:
    event = make_event("G1", "what is it?", chat=GROUP, sender="888@lid", group=True)
    spoken = read(event, None, datetime(2026, 3, 2, tzinfo=UTC))
    assert spoken is not None
    wire.recent.remember(spoken.message.id, spoken.sender, spoken.message.text, spoken.chat)
    await wire.outbound.send(part("this", GROUP, reply_to="G1"))
    await wire.outbound.send(part("that", GROUP, reply_to="long gone"))
    assert [sent["quote"] for sent in wire.sent] == [
        {"id": "G1", "sender": "888@lid", "text": "what is it?", "from_me": False},
        None,
    ]


async def test_a_private_answer_quotes_what_it_names(wire: Wire) -> None:
    spoken = read(make_event("A1"), None, datetime(2026, 3, 2, tzinfo=UTC))
    assert spoken is not None
    wire.recent.remember(spoken.message.id, spoken.sender, spoken.message.text, spoken.chat)
    await wire.outbound.send(part("this", reply_to="A1"))
    await wire.outbound.send(part("that"))
    assert [sent["quote"] and sent["quote"]["id"] for sent in wire.sent] == ["A1", None]


@pytest.mark.parametrize(
    ("kind", "mime", "size", "shown", "told"),
    [
        ("image", "image/jpeg", 3, "image", "image/jpeg"),
        ("image", "image/svg+xml", 3, "document", "image/svg+xml"),
        ("image", "image/png", 17 * 1024 * 1024, "document", "image/png"),
        ("video", "video/mp4", 3, "video", "video/mp4"),
        ("audio", "audio/mp4; codecs=aac", 3, "audio", "audio/mp4"),
        ("audio", "audio/x-m4a", 3, "audio", "audio/mp4"),
        ("voice", "audio/mpeg", 3, "audio", "audio/mpeg"),
        ("voice", "audio/wav", 3, "document", "audio/wav"),
        ("document", "image/png", 3, "document", "image/png"),
        ("document", "", 3, "document", "application/octet-stream"),
    ],
)
async def test_a_file_goes_as_what_phones_can_show(
    wire: Wire, kind: MediaKind, mime: str, size: int, shown: str, told: str
) -> None:
    media = wire.file(kind, mime, size)
    await wire.outbound.send(part("", ANN, media))
    file = wire.sent[0]["file"]
    assert file["kind"] == shown
    assert file["path"] == str(wire.folder / media.ref)
    assert file["mime"] == told
    assert file["name"] == f"{kind} from home"


async def test_a_voice_note_says_what_phones_play_it_by(wire: Wire) -> None:
    await wire.outbound.send(part("", ANN, wire.file("voice", "audio/ogg")))
    file = wire.sent[0]["file"]
    assert (file["kind"], file["mime"]) == ("voice", "audio/ogg; codecs=opus")


async def test_words_go_under_a_picture(wire: Wire) -> None:
    await wire.outbound.send(part("look", ANN, wire.file("image", "image/png")))
    (sent,) = wire.sent
    assert (sent["text"], sent["file"]["kind"]) == ("look", "image")


async def test_words_to_a_sound_go_before_it_as_nothing_stands_under_one(wire: Wire) -> None:
    receipt = await wire.outbound.send(part("listen", ANN, wire.file("voice", "audio/ogg")))
    words, sound = wire.sent
    assert (words["text"], words["file"]) == ("listen", None)
    assert (sound["text"], sound["file"]["kind"]) == ("", "voice")
    assert receipt.platform_id == sound["id"] != words["id"]


async def test_what_cannot_be_sent_is_refused_and_nothing_of_it_goes_out(wire: Wire) -> None:
    picture = wire.file("image", "image/png")
    for refused, why in (
        (part("  "), "nothing to send"),
        (part("x", ANN, Media("gone")), "no longer exists"),
        (part("x", ANN, picture, picture), "one file"),
        (part("x", "the neighbours"), "is not a WhatsApp chat"),
        (part("x", ANN, wire.file("document", "", MAX_FILE_BYTES + 1)), "at most"),
    ):
        with pytest.raises(SendRefused, match=why):
            await wire.outbound.send(refused)
    assert wire.sent == []


async def test_how_a_question_ended_is_said_in_its_message(wire: Wire) -> None:
    buttons = (Button("Approve", "/approve A1"), Button("Deny", "/deny A1"))
    for chat, mark in ((ANN, ""), (wire.people.chat_of(["15550001111"]), "🤖 ")):
        question = part("**May I?**", chat, buttons=buttons)
        receipt = await wire.outbound.send(question)
        await wire.outbound.close_choices(question, receipt, "Denied, by web:owner.")
        asked, closed = wire.sent[-2:]
        assert "edits" not in asked
        assert closed["edits"] == asked["id"] == receipt.platform_id
        assert closed["id"] != asked["id"]
        assert closed["text"] == f"{mark}*May I?*\n\nDenied, by web:owner."
