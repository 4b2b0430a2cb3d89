"""Parts of a message: the rest of its album, corrections of its text, notes next to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.agent.turn_state import ALBUM_SECONDS
from nanobot.bus.events import Delivery, InboundMessage, Media
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import ProviderUnavailable
from nanobot.providers.port import Prompt, Reply
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from tests.bus.support import rows
from tests.support import Gate, Probe, read_stored, running, without_header

PHOTO = Media("photo", "image", "image/png", "p.png")


def texts(prompt: Prompt) -> list[str]:
    """Return the texts of a prompt's messages, without headers."""
    return [without_header(message.text) for message in prompt.messages]


async def test_an_album_is_one_turn_with_all_its_items(tmp_path: Path) -> None:
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), ScriptedModel(says("three pictures"))
    channel.files["photo"] = b"pixels"
    async with running(tmp_path, model, channel, clock=clock):
        first = await channel.say("look", group_id="album", media=(PHOTO,))
        await clock.until_sleeping()
        second = await channel.say("", group_id="album", media=(PHOTO,))
        await clock.advance(ALBUM_SECONDS)
        third = await channel.say("", group_id="album", media=(PHOTO,))
        await clock.advance(ALBUM_SECONDS)
        await clock.advance(ALBUM_SECONDS)
        assert await channel.answer_to(third) == "three pictures"
    assert [part.event_ids for part in channel.sent] == [(first, second, third)]
    said = [message for message in read_stored(tmp_path) if message.role == "user"]
    assert [len(message.media) for message in said] == [1, 1, 1]
    seen = [message for message in model.prompts[0].messages if message.role == "user"]
    assert len(seen) == 3, "the model gets all of them at once"


async def test_an_item_that_comes_late_joins_the_turn(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    channel, model = FakeChannel(clock=clock), ScriptedModel(calls("probe"), says("both seen"))
    channel.files["photo"] = b"pixels"
    async with running(
        tmp_path,
        model,
        channel,
        clock=clock,
        tools=(Probe(gate=gate),),
        NANOBOT_AGENT__ON_BUSY="queue",
    ):
        await channel.say("look", group_id="album", media=(PHOTO,))
        await clock.until_sleeping()
        await clock.advance(ALBUM_SECONDS)
        await gate.reached.wait()
        late = await channel.say("", group_id="album", media=(PHOTO,))
        gate.opened.set()
        assert await channel.answer_to(late) == "both seen"
    assert len(channel.sent) == 1


async def test_a_single_picture_is_not_kept_waiting(tmp_path: Path) -> None:
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), ScriptedModel(says("seen"))
    async with running(tmp_path, model, channel, clock=clock):
        assert await channel.answer_to(await channel.say("look", media=(PHOTO,))) == "seen"


async def test_a_correction_of_a_message_that_waits_is_answered_with_it(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("first"), says("five"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        await channel.say("wait")
        await gate.reached.wait()
        question = await channel.say("2 and 2?")
        edit = await channel.say("2 and 3?", edits=question)
        gate.opened.set()
        assert await channel.answer_to(edit) == "five"
    assert [part.content for part in channel.sent] == ["first", "five"]
    assert channel.sent[1].event_ids == (question, edit)
    assert "2 and 3?" in texts(model.prompts[1])[-1]


async def test_nobody_corrects_what_somebody_else_has_said(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("first"), says("four"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        await channel.say("wait", is_group=True)
        await gate.reached.wait()
        question = await channel.say("2 and 2?", is_group=True)
        await channel.say("2 and 3?", is_group=True, sender_id="another", edits=question)
        gate.opened.set()
        assert await channel.answer_to(question) == "four"
    assert "2 and 3?" not in texts(model.prompts[1])[-1]


async def test_a_correction_during_the_turn_reaches_the_model_and_stops_nothing(
    tmp_path: Path,
) -> None:
    channel, gate = FakeChannel(), Gate()
    probe = Probe(gate=gate, effects=True)
    model = ScriptedModel(calls("probe", text="once"), says("corrected"))
    async with running(
        tmp_path, model, channel, tools=(probe,), NANOBOT_AGENT__ON_BUSY="interrupt"
    ):
        question = await channel.say("buy one")
        await gate.reached.wait()
        edit = await channel.say("buy two", edits=question)
        gate.opened.set()
        assert await channel.answer_to(edit) == "corrected"
    assert probe.called == ["once"]
    assert any("buy two" in text for text in texts(model.prompts[-1]))


@pytest.mark.parametrize("on_busy", ["steer", "queue", "interrupt"])
async def test_a_correction_while_the_answer_is_written_gets_an_answer_in_its_place(
    tmp_path: Path, on_busy: str
) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("about m20x"), says("about m21x"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY=on_busy):
        question = await channel.say("what is m20x?")
        await gate.reached.wait()
        edit = await channel.say("what is m21x?", edits=question)
        gate.opened.set()
        assert await channel.answer_to(edit) == "about m21x"
    assert [part.event_ids for part in channel.sent] == [(question, edit)]
    assert "what is m21x?" in texts(model.prompts[1])[-1]
    answers = [m.content for m in read_stored(tmp_path) if m.role == "assistant"]
    assert answers == ["about m21x"]


async def test_corrections_without_end_do_not_keep_a_turn_for_ever(tmp_path: Path) -> None:
    channel = FakeChannel()

    async def correct() -> None:
        await channel.say("another one", edits="q")

    model = ScriptedModel(author=lambda _: says("an answer"), hold=correct)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__MAX_ITERATIONS="3"):
        await channel.say("one", event_id="q")
        assert await channel.answer_to("q") == "an answer"
    assert len(model.prompts) == 4


async def test_an_edit_of_what_was_answered_is_noted_and_runs_nothing(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(says("done"), says("I saw the edit"))
    async with running(tmp_path, model, channel):
        question = await channel.say("buy one")
        await channel.answer_to(question)
        await channel.say("buy two", edits=question)
        assert await channel.ask("well?") == "I saw the edit"
    assert len(model.prompts) == 2
    assert any("buy two" in text for text in texts(model.prompts[1]))


async def test_a_deleted_message_that_waits_is_not_answered(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("first"), says("third"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        await channel.say("one")
        await gate.reached.wait()
        question = await channel.say("two, with my PIN")
        await channel.say("two, without", edits=question)
        other = await channel.say("three")
        await channel.say("", deletes=question)
        gate.opened.set()
        assert await channel.answer_to(other) == "third"
    assert [m.content for m in read_stored(tmp_path)] == ["one", "first", "three", "third"]


async def test_a_deletion_is_applied_before_anything_runs_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    out = fails(ProviderUnavailable("the model server cannot be reached"))
    async with running(tmp_path, ScriptedModel(out), channel, clock=clock):
        question = await channel.say("with my PIN")
        await clock.until_sleeping()
        await channel.receive(1)
    home = tmp_path / "state" / "journal.db"
    journal = SqliteJournal(home, clock)
    await journal.open()
    deletion = InboundMessage(
        "fake", "1", "person-1", "", "d1", clock.now(), delivery=Delivery(deletes=question)
    )
    await journal.receive("fake", (deletion,))
    await journal.close()
    model = ScriptedModel(says("hi"))
    async with running(tmp_path, model, channel, clock=FakeClock(clock.now())):
        assert await channel.ask("hello") == "hi"
    assert [m.content for m in read_stored(tmp_path)] == ["hello", "hi"]
    assert rows(home, "SELECT state FROM turn WHERE state = 'running'") == []


async def test_nobody_deletes_what_somebody_else_said(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("first"), says("second"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        await channel.say("one", is_group=True)
        await gate.reached.wait()
        question = await channel.say("two", is_group=True)
        await channel.say("", deletes=question, sender_id="another", is_group=True)
        gate.opened.set()
        assert await channel.answer_to(question) == "second"


async def test_what_is_answered_or_never_came_can_be_deleted_without_harm(tmp_path: Path) -> None:
    channel, model = FakeChannel(), ScriptedModel(says("one"), says("two"))
    async with running(tmp_path, model, channel):
        event = await channel.say("hello")
        await channel.answer_to(event)
        await channel.say("", deletes=event)
        await channel.say("", deletes="unheard of")
        assert await channel.ask("again") == "two"
    assert len(read_stored(tmp_path)) == 4


async def test_a_photo_of_an_album_that_is_deleted_is_not_looked_at(tmp_path: Path) -> None:
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), ScriptedModel(says("two pictures"))
    channel.files["photo"] = b"pixels"
    async with running(tmp_path, model, channel, clock=clock):
        first = await channel.say("look", group_id="album", media=(PHOTO,))
        await clock.until_sleeping()
        wrong = await channel.say("", group_id="album", media=(PHOTO,))
        last = await channel.say("", group_id="album", media=(PHOTO,))
        await channel.say("", deletes=wrong)
        for _ in range(3):
            await clock.advance(ALBUM_SECONDS)
        assert await channel.answer_to(last) == "two pictures"
    assert [part.event_ids for part in channel.sent] == [(first, last)]
    assert len([message for message in read_stored(tmp_path) if message.role == "user"]) == 2


@pytest.mark.parametrize("on_busy", ["steer", "queue", "interrupt"])
async def test_what_is_deleted_while_it_is_answered_stops_the_turn(
    tmp_path: Path, on_busy: str
) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("one"), says("two"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY=on_busy):
        question = await channel.say("with my PIN")
        await gate.reached.wait()
        await channel.say("", deletes=question)
        await channel.ask("/status")
        gate.opened.set()
        assert await channel.ask("and?") == "two"
    assert not any(question in part.event_ids for part in channel.sent)


async def test_of_two_messages_in_one_turn_deleting_one_stops_nothing(tmp_path: Path) -> None:
    channel, gate, second = FakeChannel(), Gate(), Gate()
    holds = iter((None, second))

    async def hold() -> None:
        if (gate := next(holds)) is not None:
            await gate()

    model = ScriptedModel(calls("probe"), says("both"), hold=hold)
    async with running(tmp_path, model, channel, tools=(Probe(gate=gate),)):
        question = await channel.say("go")
        await gate.reached.wait()
        more = await channel.say("and this")
        gate.opened.set()
        await second.reached.wait()
        await channel.say("", deletes=question)
        await channel.ask("/status")
        second.opened.set()
        assert await channel.answer_to(more) == "both"


async def test_what_was_said_into_a_running_turn_and_deleted_at_once_does_not_join_it(
    tmp_path: Path,
) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(calls("probe"), says("done"), says("again"))
    async with running(tmp_path, model, channel, tools=(Probe(gate=gate),)):
        question = await channel.say("go")
        await gate.reached.wait()
        more = await channel.say("my PIN is 4711")
        await channel.say("", deletes=more)
        assert await channel.ask("/status")
        gate.opened.set()
        assert await channel.answer_to(question) == "done"
        assert await channel.ask("and?") == "again"
    assert not any("4711" in text for prompt in model.prompts for text in texts(prompt))


async def test_an_edit_never_runs_a_command(tmp_path: Path) -> None:
    channel, model = FakeChannel(), ScriptedModel(says("hello"), says("nothing undone"))
    async with running(tmp_path, model, channel):
        event = await channel.say("hi")
        await channel.answer_to(event)
        await channel.say("/undo", edits=event)
        assert await channel.ask("and?") == "nothing undone"
    assert [part.content for part in channel.sent] == ["hello", "nothing undone"]


async def test_an_edit_of_what_never_came_here_is_a_message_like_any_other(
    tmp_path: Path,
) -> None:
    channel, model = FakeChannel(), ScriptedModel(says("now I am meant"))
    async with running(tmp_path, model, channel):
        assert await channel.answer_to(await channel.say("@me hi", edits="unseen")) == (
            "now I am meant"
        )


async def test_a_note_is_kept_in_the_conversation_and_not_answered(tmp_path: Path) -> None:
    channel = FakeChannel()

    def answer(prompt: Prompt) -> Reply:
        return says("the note is there" if "a note" in str(texts(prompt)) else "nothing is there")

    async with running(tmp_path, ScriptedModel(answer), channel):
        await channel.say("a note", unanswered=True)
        assert await channel.ask("well?") == "the note is there"
    assert [message.content for message in read_stored(tmp_path)][:2] == ["a note", "well?"]


async def test_in_interrupt_mode_an_album_is_still_one_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), ScriptedModel(says("both"))
    channel.files["photo"] = b"pixels"
    interrupt = "interrupt"
    async with running(tmp_path, model, channel, clock=clock, NANOBOT_AGENT__ON_BUSY=interrupt):
        await channel.say("look", group_id="album", media=(PHOTO,))
        await clock.until_sleeping()
        second = await channel.say("", group_id="album", media=(PHOTO,))
        await clock.advance(ALBUM_SECONDS)
        await clock.advance(ALBUM_SECONDS)
        assert await channel.answer_to(second) == "both"


async def test_what_others_say_does_not_hold_an_album_up(tmp_path: Path) -> None:
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), ScriptedModel(says("seen"), says("heard"))
    channel.files["photo"] = b"pixels"
    async with running(tmp_path, model, channel, clock=clock, NANOBOT_AGENT__ON_BUSY="queue"):
        photo = await channel.say("look", group_id="album", media=(PHOTO,), is_group=True)
        await clock.until_sleeping()
        other = await channel.say("nice", is_group=True)
        await clock.advance(ALBUM_SECONDS)
        assert await channel.answer_to(photo) == "seen"
        assert await channel.answer_to(other) == "heard"


async def test_an_edit_of_what_was_answered_joins_no_later_turn(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("done"), calls("probe"), says("the weather is fine"))
    async with running(tmp_path, model, channel, tools=(Probe(gate=gate),)):
        order = await channel.say("buy one")
        await channel.answer_to(order)
        weather = await channel.say("how is the weather?")
        await gate.reached.wait()
        await channel.say("buy two", edits=order)
        joined = await channel.say("in Oslo, I mean")
        gate.opened.set()
        assert await channel.answer_to(joined) == "the weather is fine"
        assert await channel.answer_to(weather) == "the weather is fine"
    assert not any("buy two" in text for text in texts(model.prompts[-1]))
    assert any("Oslo" in text for text in texts(model.prompts[-1]))


async def test_a_stop_frees_the_chat_while_a_file_is_being_fetched(tmp_path: Path) -> None:
    fetching = Gate()

    class Slow(FakeChannel):
        async def fetch(self, media: Media, limit: int) -> bytes:
            await fetching()
            return b"late"

    channel, model = Slow(), ScriptedModel(says("here I am"))
    async with running(tmp_path, model, channel):
        await channel.say("look", media=(PHOTO,))
        await fetching.reached.wait()
        assert await channel.ask("/stop") == "Stopped."
        assert await channel.ask("hello") == "here I am"
