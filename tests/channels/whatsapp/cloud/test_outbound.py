"""Parts reach people in a form that WhatsApp supports, once, or the failure is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.bus.events import Button, Media, MediaKind
from nanobot.channel import WRITING
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown
from nanobot_whatsapp.ingest import OURS
from tests.channels.whatsapp.cloud.samples import GROUP
from tests.channels.whatsapp.cloud.sending import ANN, set_up_rig
from tests.doubles.graph.media import OGG, PNG

YES = Button("Yes", "/approve 1", id="b-1")
NO = Button("No, and say why it cannot be done at all", "/deny 1", id="b-2")


async def test_words_are_rendered_and_quote_what_they_answer(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        question = rig.meta.say("hello")
        receipt = await rig.send("**yes**", reply_to=question)
        (sent,) = rig.meta.messages()
        assert (sent.text, sent.reply_to, receipt.platform_id) == ("*yes*", question, sent.id)
        assert rig.recent.find(sent.id) == (OURS, "*yes*")
        assert rig.meta.violations == []


@pytest.mark.parametrize(
    ("chat", "fields"),
    [
        (ANN, {"recipient_type": "individual", "to": ANN}),
        ("US.134912", {"recipient_type": "individual", "recipient": "US.134912"}),
    ],
)
async def test_numbers_and_hidden_people_are_written_to(
    chat: str, fields: dict[str, str], tmp_path: Path
) -> None:
    async with set_up_rig(tmp_path) as rig:
        rig.meta.say("hello", person=chat)
        await rig.send("hi", chat=chat)
        (call,) = rig.meta.calls_of("messages")
        assert fields.items() <= call.fields.items()
        assert rig.meta.violations == []


async def test_what_is_no_chat_is_refused(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        for chat in ("", "mail@example.org", "888@lid", "../1", GROUP):
            with pytest.raises(SendRefused, match="is not a WhatsApp chat"):
                await rig.send("hi", chat=chat)
        with pytest.raises(SendRefused, match="nothing to send"):
            await rig.send(" ")
        assert rig.meta.calls_of("messages") == []


@pytest.mark.parametrize(
    ("name", "kind", "mime", "content", "shown"),
    [
        ("a.png", "image", "image/png", PNG, ("image", "image/png")),
        ("a.webp", "image", "image/webp", b"RIFF", ("document", "image/webp")),
        ("big.jpg", "image", "image/jpeg", bytes(5_000_001), ("document", "image/jpeg")),
        ("a.mp4", "video", "", b"film", ("video", "video/mp4")),
        ("film", "video", "", b"film", ("video", "video/mp4")),
        ("a.csv", "document", "text/csv", b"a;b", ("document", "text/plain")),
        ("a.json", "document", "application/json", b"{}", ("document", "text/plain")),
        ("a.pdf", "document", "application/pdf", b"%PDF", ("document", "application/pdf")),
    ],
)
async def test_files_go_as_what_whatsapp_can_show(
    name: str,
    kind: MediaKind,
    mime: str,
    content: bytes,
    shown: tuple[str, str],
    tmp_path: Path,
) -> None:
    async with set_up_rig(tmp_path) as rig:
        await rig.send("*look*", rig.home.file(name, kind, mime, content))
        (sent,) = rig.meta.messages()
        assert sent.file is not None
        assert ((sent.kind, sent.file.mime), sent.file.content, sent.text) == (
            shown,
            content,
            "_look_",
        )
        assert rig.meta.violations == []


async def test_a_voice_note_is_one_and_its_words_come_before_it(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        voice = rig.home.file("a.ogg", "voice", "audio/ogg", OGG)
        rig.meta.fail("upload", 131000)
        with pytest.raises(SendUnknown):  # the words were sent
            await rig.send("words", voice)
        rig.meta.fail("messages", 131056)
        with pytest.raises(SendUnknown):
            await rig.send("words", voice)
        rig.meta.fail("messages", 131000)
        with pytest.raises(SendUnknown):
            await rig.send("words", voice)
        await rig.send("words", voice)
        words, sound = rig.meta.messages()
        assert (words.kind, words.text, sound.kind) == ("text", "words", "audio")
        assert rig.meta.calls_of("messages")[-1].fields["audio"] == {
            "id": rig.meta.calls_of("messages")[-2].fields["audio"]["id"],  # type: ignore[index]
            "voice": True,
        }
        assert rig.meta.violations == []


async def test_an_upload_that_fails_has_reached_nobody(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        picture = rig.home.file("a.png", "image", "image/png", PNG)
        for status in (302, 502):
            rig.meta.garble("upload", status=status, after="effect")
            with pytest.raises(SendLater):
                await rig.send("look", picture)
        await rig.send("look", picture)
        assert len(rig.meta.messages()) == 1


async def test_a_process_that_dies_during_an_upload_has_written_no_message(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        told = list[int]()
        before = WRITING.set(lambda: told.append(len(rig.meta.calls_of("upload"))))
        await rig.send("look", rig.home.file("a.png", "image", "image/png", PNG))
        WRITING.reset(before)
        assert told == [1]  # once, when the file was there


async def test_a_picture_that_is_none_goes_as_a_document(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        rig.meta.fail("messages", 131053)
        await rig.send("look", rig.home.file("a.png", "image", "image/png", b"no picture"))
        (sent,) = rig.meta.messages()
        assert (sent.kind, sent.text) == ("document", "look")
        assert rig.meta.violations == []


async def test_a_file_that_cannot_go_is_refused_in_words(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        for file, why in (
            (rig.home.file("a.zip", "document", "application/zip", b"PK"), "does not accept this"),
            (rig.home.file("a.txt", content=b""), "is empty"),
            (Media("gone.txt"), "gone"),
        ):
            with pytest.raises(SendRefused, match=why):
                await rig.send("", file)
        assert rig.meta.messages() == []


@pytest.mark.parametrize(
    ("text", "buttons", "labels"),
    [
        ("Shall I?", (YES,), ("Yes",)),
        ("", (YES, Button("No", "2", id="b-3")), ("Yes", "No")),
    ],
)
async def test_up_to_three_choices_are_buttons(
    text: str, buttons: tuple[Button, ...], labels: tuple[str, ...], tmp_path: Path
) -> None:
    async with set_up_rig(tmp_path) as rig:
        await rig.send(text, buttons=buttons)
        (sent,) = rig.meta.messages()
        assert (sent.labels, sent.listed) == (labels, False)
        assert sent.text == (text or "Yes / No")
        assert tuple(each.id for each in sent.buttons) == tuple(each.id for each in buttons)
        assert rig.meta.violations == []


async def test_choices_without_buttons_are_lines(tmp_path: Path) -> None:
    many = tuple(Button(f"Row {n}" + "!" * 20, f"row {n}", id=f"b-{n}") for n in range(4))
    async with set_up_rig(tmp_path) as rig:
        await rig.send("Which? row 2", buttons=many)
        (which,) = rig.meta.texts()
        assert which.count("row 2") == 1
        assert all(f"Row {n}{'!' * 20}: row {n}" in which for n in range(4) if n != 2)
        await rig.send("Shall I?", buttons=(YES, NO))
        assert "No, and say why it cannot be done at all: /deny 1" in rig.meta.texts()[1]
        assert rig.meta.violations == []


async def test_of_more_than_three_choices_the_others_are_lines(tmp_path: Path) -> None:
    many = tuple(Button(f"Row {n}", f"row {n}", id=f"b-{n}") for n in range(5))
    async with set_up_rig(tmp_path) as rig:
        await rig.send("Which? Or row 4", buttons=many)
        (sent,) = rig.meta.messages()
        assert sent.labels == ("Row 0", "Row 1", "Row 2")
        assert sent.text == "Which? Or row 4\n\n• Row 3: row 3"
        assert rig.meta.violations == []


async def test_choices_about_a_file_come_below_it(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        await rig.send("This?", rig.home.file("a.png", "image", "image/png", PNG), buttons=(YES,))
        picture, question = rig.meta.messages()
        assert (picture.kind, picture.text) == ("image", "")
        assert (question.text, question.labels) == ("This?", ("Yes",))


async def test_what_is_quoted_and_unknown_is_left_out(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        rig.meta.fail("messages", 131009)
        await rig.send("yes", reply_to="wamid.forgotten")
        (sent,) = rig.meta.messages()
        assert sent.reply_to == ""


@pytest.mark.parametrize(
    ("code", "http", "kind", "wait", "words"),
    [
        (131047, 0, SendRefused, 0.0, "24 hours"),
        (131026, 0, SendRefused, 0.0, "the number may not be on WhatsApp"),
        (131030, 0, SendRefused, 0.0, "test number"),
        (131051, 0, SendRefused, 0.0, "this kind of message"),
        (100, 0, SendRefused, 0.0, "(100)"),
        (130429, 0, SendLater, 5.0, "130429"),
        (131056, 0, SendLater, 10.0, "131056"),
        (80007, 0, SendLater, 60.0, "80007"),
        (4, 0, SendLater, 60.0, "(4)"),
        (999, 429, SendLater, 5.0, "999"),
        (190, 0, SendLater, 300.0, "190"),
        (10, 0, SendLater, 300.0, "(10)"),
        (131031, 0, SendLater, 300.0, "131031"),
        (131057, 0, SendLater, 60.0, "131057"),
        (130429, 500, SendLater, 5.0, "130429"),
        (131000, 0, SendUnknown, 0.0, "131000"),
        (131016, 0, SendUnknown, 0.0, "131016"),
        (2, 0, SendUnknown, 0.0, "(2)"),
        (999, 500, SendUnknown, 0.0, "999"),
    ],
)
async def test_each_refusal_says_what_to_do(
    code: int, http: int, kind: type[SendError], wait: float, words: str, tmp_path: Path
) -> None:
    async with set_up_rig(tmp_path) as rig:
        rig.meta.fail("messages", code, http=http)
        with pytest.raises(kind) as caught:
            await rig.send("yes")
        assert words in str(caught.value)
        if isinstance(caught.value, SendLater):
            assert caught.value.retry_after == wait
        assert bool(rig.host.reports) is (wait == 300.0)
        await rig.send("yes")
        assert rig.host.reports[-1:] in ([], [""])


async def test_a_send_that_may_have_arrived_is_unknown_and_one_that_cannot_is_not(
    tmp_path: Path,
) -> None:
    async with set_up_rig(tmp_path) as rig:
        rig.meta.cut("messages", after="effect")
        with pytest.raises(SendUnknown):
            await rig.send("one")
        rig.meta.garble("messages")
        with pytest.raises(SendUnknown):
            await rig.send("two")
        rig.meta.garble("messages", b'{"messages": []}')
        with pytest.raises(SendUnknown):
            await rig.send("three")
        for status in (302, 408, 409, 502, 504):
            rig.meta.garble("messages", status=status)
            with pytest.raises(SendUnknown):
                await rig.send("four")
            rig.meta.garble("messages", b'{"error": "upstream"}', status=status)
            with pytest.raises(SendUnknown):
                await rig.send("four")
        await rig.meta.stop()
        with pytest.raises(SendLater, match="cannot be reached"):
            await rig.send("five")
