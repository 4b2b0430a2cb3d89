"""Other actions of people in chats: edits, albums, voice messages, buttons, migration."""

from __future__ import annotations

from pathlib import Path
from random import Random

from nanobot.agent.turn_state import ALBUM_SECONDS
from nanobot.bus.events import Button, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import ProviderUnavailable
from nanobot.providers.port import Prompt, Reply
from nanobot.providers.retry import Model, RetryingProvider, RetryPolicy
from nanobot.session.manager import SessionManager
from nanobot.testing import ScriptedModel, calls, fails, says
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import OWNER, Writer, newest_text, repeat
from tests.doubles.openai.faults import refusal
from tests.doubles.openai.rules import ApiError
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram import FakeTelegram
from tests.doubles.telegram.media import PNG
from tests.support import Gate, Probe, read_stored, talking

GROUP, SUPERGROUP = -5, -1005
GROUPS = {"groups": "mention", "allow_groups": {str(GROUP): [str(OWNER)]}}


async def test_a_group_that_became_a_supergroup_goes_on_as_the_same_conversation(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    telegram.group(GROUP)
    me = f"@{telegram.username}"
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model, clock=clock, settings=GROUPS):
        telegram.say(f"{me} one", chat=GROUP)
        await telegram.receive(1, GROUP)
        telegram.migrate(GROUP, SUPERGROUP)
        telegram.say(f"{me} two", chat=SUPERGROUP)
        assert await telegram.receive(1, SUPERGROUP) == ["re: [from Robin]\ntwo"]
    async with talking(tmp_path, telegram, model, clock=clock, settings=GROUPS):
        telegram.say(f"{me} three", chat=SUPERGROUP)
        await telegram.receive(2, SUPERGROUP)
    said = [message.content for message in read_stored(tmp_path, f"telegram:{GROUP}")]
    assert said[::2] == [f"[from Robin]\n{word}" for word in ("one", "two", "three")]


async def test_an_answer_finds_a_group_that_moved_before_anybody_said_so(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    telegram.group(GROUP)
    me, gate = f"@{telegram.username}", Gate()
    model = ScriptedModel(author=repeat, hold=gate)
    async with talking(tmp_path, telegram, model, clock=clock, settings=GROUPS):
        telegram.say(f"{me} one", chat=GROUP)
        await gate.reached.wait()
        telegram.migrate(GROUP, SUPERGROUP, announce=False)
        gate.opened.set()
        assert await telegram.receive(1, SUPERGROUP) == ["re: [from Robin]\none"]
        telegram.say(f"{me} two", chat=SUPERGROUP)
        await telegram.receive(2, SUPERGROUP)
    said = [message.content for message in read_stored(tmp_path, f"telegram:{GROUP}")]
    assert said[::2] == ["[from Robin]\none", "[from Robin]\ntwo"]


async def test_a_correction_during_the_turn_is_heard_and_repeats_nothing(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    probe = Probe(gate=Gate(), effects=True)
    assert probe.gate is not None
    model = ScriptedModel(calls("probe", text="once"), repeat)
    async with talking(tmp_path, telegram, model, clock=clock, tools=(probe,)):
        question = telegram.say("buy one")
        await probe.gate.reached.wait()
        telegram.edit(question, "buy two")
        await telegram.wait_for(lambda: telegram.pending == 0)
        probe.gate.opened.set()
        (answer,) = await telegram.receive(1)
    assert answer.endswith("buy two")
    assert probe.called == ["once"]


async def test_a_correction_of_what_was_answered_is_known_and_runs_nothing(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    probe = Probe(effects=True)
    model = ScriptedModel(calls("probe", text="once"), says("bought"), says("I saw"))
    async with talking(tmp_path, telegram, model, clock=clock, tools=(probe,)):
        question = telegram.say("buy one")
        await telegram.receive(1)
        telegram.edit(question, "buy two")
        telegram.edit(question, "buy three")
        telegram.say("well?")
        assert await telegram.receive(2) == ["bought", "I saw"]
    assert probe.called == ["once"]
    texts = [message.text for message in model.prompts[-1].messages]
    assert [word for word in ("one", "two", "three") if f"buy {word}" in str(texts)] == [
        "one", "two", "three",
    ]  # fmt: skip


def pictures(prompt: Prompt) -> Reply:
    return says(f"{sum(len(message.images) for message in prompt.messages)} pictures")


async def test_an_album_is_one_turn_and_what_comes_late_joins_it(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    probe = Probe(gate=Gate())
    assert probe.gate is not None
    model = ScriptedModel(calls("probe"), pictures)
    album, items = "13", [(PNG, "look"), (PNG + b"2", "")]
    async with talking(
        tmp_path, telegram, model, clock=clock, tools=(probe,), NANOBOT_AGENT__ON_BUSY="queue"
    ):
        for content, words in items:
            telegram.photo(content, caption=words, media_group_id=album)
        await clock.until_asked(ALBUM_SECONDS)
        await clock.advance(ALBUM_SECONDS)
        await clock.advance(ALBUM_SECONDS)
        await probe.gate.reached.wait()
        telegram.photo(PNG + b"3", media_group_id=album)
        await telegram.wait_for(lambda: telegram.pending == 0)
        probe.gate.opened.set()
        assert await telegram.receive(1) == ["3 pictures"]
    assert model.remaining == 0


async def test_what_is_spoken_is_heard_and_where_that_fails_the_file_is_there(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    down = refusal(ApiError(400, "I hear nothing."))
    model = ScriptedModel(author=repeat)

    async def say(recording: bytes, ears: FakeOpenAI) -> str:
        async with (
            ears,
            talking(
                tmp_path,
                telegram,
                model,
                clock=clock,
                NANOBOT_MODEL__TRANSCRIPTION__MODEL="whisper-1",
                NANOBOT_MODEL__TRANSCRIPTION__BASE_URL=ears.base_url,
                NANOBOT_MODEL__TRANSCRIPTION__API_KEY="sk-test",
            ),
        ):
            return (await telegram.answer_to(telegram.voice(recording))).text

    spoken = await say(b"buy milk", FakeOpenAI())
    unheard = await say(b"buy bread", FakeOpenAI(transcription_faults=[down]))
    assert spoken.startswith("re: buy milk\n[voice")
    assert "buy bread" not in unheard
    assert "could not be transcribed: " in unheard
    assert len(list((tmp_path / "media").iterdir())) == 2


async def test_a_button_is_good_after_a_restart_and_only_in_its_chat(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    telegram.person(OWNER)
    question = OutboundMessage(
        "telegram", str(OWNER), "Shall I?", buttons=(Button("Yes", "yes, do it"),)
    )
    (tmp_path / "state").mkdir()
    journal = SqliteJournal(tmp_path / "state" / "journal.db", clock)
    await journal.open()
    await journal.add_outgoing("t-1", Outgoing("reply", (question,)))
    await journal.close()
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model, clock=clock):
        await telegram.receive(1)
    (asked,) = telegram.messages()
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.press(asked.message_id, "Yes")
        assert await telegram.receive(2) == ["Shall I?", "re: yes, do it"]
        await telegram.wait_for(lambda: telegram.toasts)
    assert "yes" not in asked.buttons[0][0].data
    assert newest_text(model.prompts[-1]) == "yes, do it"
    assert telegram.violations == []


async def test_in_a_group_a_reaction_of_the_owner_marks_a_message_to_keep(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    telegram.group(GROUP)
    me = f"@{telegram.username}"
    async with talking(
        tmp_path, telegram, ScriptedModel(author=repeat), clock=clock, settings=GROUPS
    ):
        question = telegram.say(f"{me} one", chat=GROUP)
        await telegram.receive(1, GROUP)
        change = {
            "chat": {"id": GROUP, "type": "group", "title": "Group"},
            "message_id": question,
            "user": {"id": OWNER, "is_bot": False, "first_name": "Robin"},
            "date": 1,
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": "✍"}],
        }
        telegram.push({"message_reaction": change})
        telegram.say(f"{me} two", chat=GROUP)
        await telegram.receive(2, GROUP)
    manager = SessionManager(tmp_path / "sessions", clock)
    session = await manager.get_or_create(f"telegram:{GROUP}")
    await manager.close()
    assert [one.content for one in session.messages if one.kept] == ["[from Robin]\none"]


async def test_the_text_of_a_stopped_answer_stays_in_the_chat_once_also_after_a_restart(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    gate = Gate()
    writer = Writer(lambda _: says("Once upon a time there was a boat."), gate)
    async with talking(tmp_path, telegram, writer, clock=clock):
        telegram.say("Tell me a story")
        await gate.reached.wait()
        await clock.advance(1.0)
        await telegram.wait_for(telegram.drafts)
        telegram.say("/stop")
        assert await telegram.receive(2) == ["Once upon a time\n\n[stopped]", "Stopped."]
        assert telegram.drafts()[-1].text == "Once upon a time"
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.say("go on")
        assert (await telegram.receive(3))[2] == "re: go on"
    said = [message.content for message in read_stored(tmp_path, "telegram:7")]
    assert said == ["Tell me a story", "Once upon a time", "go on", "re: go on"]


async def test_an_outage_is_shown_with_its_next_try_until_the_answer_comes(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    out = ProviderUnavailable("no route to 10.0.0.1", reason="connection refused")
    policy = RetryPolicy(deadline=30.0, first_wait=20.0)
    answers = ScriptedModel(fails(out), says("Here I am."))
    model = RetryingProvider([Model("m", answers)], policy, clock, Random(7))
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.say("hello")
        while not telegram.texts():
            await clock.advance(0.5)
        assert telegram.texts() == ["Here I am."]
    lines = [draft.text for draft in telegram.drafts()]
    start = "model unreachable: connection refused, trying again"
    assert lines[:3] == [f"{start} in {seconds} s (1)" for seconds in (6, 4, 2)]
