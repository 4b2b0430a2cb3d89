"""The slash commands about memory: their output, and the memory that they use."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from nanobot.bus.events import Quote
from nanobot.errors import NanobotError
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.scopes import OWNER
from nanobot.memory.service.commands import QUESTION_LIFETIME, REMEMBERED
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.session.session import SessionInfo
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.doubles.fence import closed_fence
from tests.memory.owned_memory import OwnedMemory
from tests.support import running

PERSON = "people/telegram_7"
GROUP = "groups/telegram_-100"


async def test_all_commands_are_there(owned: OwnedMemory) -> None:
    assert {command.name for command in owned.registry} == {
        "memory", "note", "forget", "compact", "discard", "continue", "usage",
        "dream", "dream-log", "dream-restore",
    }  # fmt: skip


async def test_a_question_with_half_an_emoji_is_kept(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    assert "Ada likes blue." in await owned.type("/forget Ada likes blue \ud83d")
    assert (await owned.type("/forget --yes code1")).startswith("Forgotten: ")


async def test_each_person_works_on_their_own_memory(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    await owned.remember("Bob likes red.", scope=PERSON)
    mine, theirs = await owned.type("/memory"), await owned.type("/memory", sender="7")
    assert "Ada likes blue." in mine
    assert "Bob" not in mine
    assert "Bob likes red." in theirs
    assert "Ada" not in theirs
    for command in ("/memory search blue", "/memory why blue", "/dream-log", "/forget blue"):
        assert "Ada likes blue." not in await owned.type(command, sender="7")


async def test_in_a_group_everyone_sees_the_groups_memory_and_no_other(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    await owned.remember("We meet on Tuesdays.", scope=GROUP)
    for sender in ("1", "7"):
        shown = await owned.type("/memory", sender=sender, group="-100")
        assert "We meet on Tuesdays." in shown
        assert "Ada" not in shown


@pytest.mark.parametrize(
    ("sender", "ada", "tom"), [("1", "you: ", "Tom: "), ("7", "Ada: ", "you: ")]
)
async def test_in_a_group_you_is_only_who_asks(
    owned: OwnedMemory, sender: str, ada: str, tom: str
) -> None:
    session = await owned.sessions.get_or_create("telegram:-100")
    session.set_metadata(group=True)
    session.add_message(Message("user", "[from Ada]\nmy boat is green", turn_id="t1"))
    session.add_message(
        Message("user", "[from Tom]\nmy boat is red", turn_id="t1", origin="person:7")
    )
    await owned.sessions.save(session)
    change = Change("agent", session=session.key, turn="t1")
    await owned.memories.of(GROUP).store.append_today("boats")
    store = owned.memories.of(GROUP).store
    await store.replace(LONG_TERM, "- The boats are green and red\n", expected="", change=change)

    found = await owned.type("/memory search boat", sender=sender, group="-100")
    assert f"{ada}my boat is green" in found
    assert f"{tom}my boat is red" in found
    why = await owned.type("/memory why boats green", sender=sender, group="-100")
    assert f"#1] {ada}my boat is green" in why
    assert f"#2] {tom}my boat is red" in why


@pytest.mark.parametrize(
    "command", ["/memory accept 1", "/memory drop 1", "/forget Tuesdays", "/dream-restore 1"]
)
async def test_in_a_group_only_the_owner_decides(owned: OwnedMemory, command: str) -> None:
    await owned.remember("We meet on Tuesdays.", scope=GROUP)
    refused = await owned.type(command, sender="7", group="-100")
    assert refused == "In a group, only the owner can do this."
    assert refused not in await owned.type(command, sender="1", group="-100")


async def test_memory_searches_explains_and_decides(owned: OwnedMemory) -> None:
    number = await owned.remember("Ada likes blue.")
    await owned.add_messages("telegram:1", "I like blue")
    pending = owned.memories.of(OWNER).pending
    await pending.add(["- Ada owns a boat."], LONG_TERM, ["tool:web_fetch"])
    assert "I like blue" in await owned.type("/memory search blue")
    assert f"version {number}" in await owned.type('/memory why "blue"')
    assert "1: MEMORY.md: - Ada owns a boat." in await owned.type("/memory pending")
    assert "Ada owns a boat." in await owned.type("/memory accept 1")
    assert "Ada owns a boat." in owned.facts()


@pytest.mark.parametrize("text", ["search", "why", "accept", "accept one", "dance", "drop"])
async def test_a_memory_command_that_makes_no_sense_is_explained(
    owned: OwnedMemory, text: str
) -> None:
    assert await owned.type(f"/memory {text}") == (
        "Usage: /memory "
        "[search TEXT | why TEXT | importance 1-5 TEXT | pending | accept N | drop N]"
    )


async def test_the_person_says_how_important_a_fact_is(owned: OwnedMemory) -> None:
    number = await owned.remember("Ada likes blue.", "Ada likes blue cheese.") + 1
    assert await owned.type("/memory importance 5 likes blue") == (
        f"Importance is now 5: Ada likes blue.\nTo undo this: `/dream-restore --version {number}`."
    )
    assert "- Ada likes blue. <!-- importance 5 -->\n" in owned.facts()
    assert "- Ada likes blue. (importance 5)\n- Ada likes blue cheese.\n" in await owned.type(
        "/memory"
    )
    why = await owned.type("/memory why likes blue.")
    assert "- in the prompt: importance 5, written today" in why
    await owned.type("/memory importance 2 likes blue.")
    assert "- Ada likes blue. <!-- importance 2 -->\n" in owned.facts()
    await owned.type(f"/dream-restore --version {number + 1}")
    await owned.type(f"/dream-restore --version {number}")
    assert "importance" not in owned.facts()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", "Usage: /memory importance 1-5 TEXT\nExample: /memory importance 5 penicillin"),
        ("5", "Usage: /memory importance 1-5 TEXT\nExample: /memory importance 5 penicillin"),
        (
            "much blue",
            "Usage: /memory importance 1-5 TEXT\nExample: /memory importance 5 penicillin",
        ),
        ("6 blue", "importance must be a number from 1 to 5"),
        ("5 green", "no fact matches"),
        ("5 likes", "several facts match:\n- Ada likes blue.\n- Ada likes red."),
    ],
)
async def test_an_importance_that_cannot_be_given_is_explained(
    owned: OwnedMemory, words: str, answer: str
) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    before = owned.facts()
    try:
        said = await owned.type(f"/memory importance {words}")
    except NanobotError as error:
        said = str(error)
    assert said == answer
    assert owned.facts() == before


async def test_a_note_goes_into_todays_notes(owned: OwnedMemory) -> None:
    assert await owned.type("/note the key is under the mat") == "Noted in memory/2026-03-02.md."
    assert "the key is under the mat" in (owned.workspace / "memory/2026-03-02.md").read_text()
    assert "/note The key" in await owned.type("/note")


async def test_forgetting_asks_first_and_a_code_says_yes(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    asked = await owned.type("/forget blue")
    assert "Ada likes blue." in asked
    assert asked.endswith("answer `y` or send `/forget --yes code1` within ten minutes.")
    assert "Ada likes blue." in owned.facts()
    assert (await owned.type("/forget --yes CODE1")).startswith("Forgotten: ")
    assert "blue" not in owned.facts()


async def test_a_code_is_good_once_and_for_ten_minutes(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    await owned.type("/forget blue")
    await owned.type("/forget --yes code1")
    assert "not valid" in await owned.type("/forget --yes code1")
    await owned.type("/forget red")
    await owned.clock.advance(QUESTION_LIFETIME.total_seconds())
    assert "This question has expired" in await owned.type("/forget --yes code2")
    assert "not valid" in await owned.type("/forget --yes code2")
    assert "Ada likes red." in owned.facts()


@pytest.mark.parametrize("word", ["y", "Yes!", "no."])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_late_answer_is_told_that_the_question_is_over_and_is_no_talk(
    owned: OwnedMemory, word: str, restarts: bool
) -> None:
    await owned.remember("Ada likes blue.")
    await owned.type("/forget blue")
    await owned.clock.advance(QUESTION_LIFETIME.total_seconds() + 3600)
    if restarts:
        owned.restart_commands()
    assert await owned.type(word) == (
        "This question has expired. Nothing was forgotten. To try again, send /forget again."
    )
    assert "Ada likes blue." in owned.facts()
    assert not owned.calls_a_command(word)


async def test_yes_is_talk_again_where_something_else_was_said_or_a_day_has_passed(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.")
    await owned.type("/forget blue")
    await owned.clock.advance(QUESTION_LIFETIME.total_seconds())
    owned.says("Did you water the plants?")
    assert not owned.calls_a_command("yes")
    await owned.type("/forget blue")
    await owned.clock.advance((QUESTION_LIFETIME + REMEMBERED).total_seconds())
    assert not owned.calls_a_command("yes")


async def test_yes_to_what_was_said_since_forgets_nothing_but_asks_again(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.")
    await owned.type("/forget blue", event_id="e-asked")
    owned.says("This will be forgotten: …", "e-asked")
    owned.says("Did you take the pills?")
    assert "This will be forgotten: 1 line" in await owned.type("y")
    assert "Ada likes blue." in owned.facts()
    assert (await owned.type("y")).startswith("Forgotten: ")
    await owned.remember("Ada likes red.")
    await owned.type("/forget red")
    owned.says("Did you take the pills?")
    assert not owned.calls_a_command("no")


async def test_a_command_in_between_is_no_talk_but_its_answer_makes_y_ask_again(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.")
    await owned.type("/forget blue")
    await owned.type("/memory")
    owned.says("What I remember: …")
    assert "This will be forgotten: 1 line" in await owned.type("y")
    assert (await owned.type("y")).startswith("Forgotten: ")


async def test_a_reply_to_the_question_answers_it_whatever_was_said_since(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.")
    asked = await owned.type("/forget blue")
    assert not owned.calls_a_command("Which blue?")
    owned.says("The blue of the sky.")
    other = Quote("m1", "nanobot", "The blue of the sky.")
    assert not owned.calls_a_command("yes", reply_to=other)
    quoted = Quote("m0", "nanobot", asked)
    assert (await owned.type("yes", reply_to=quoted)).startswith("Forgotten: ")


async def test_a_newer_question_takes_the_place_of_the_one_before(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    await owned.type("/forget blue")
    await owned.type("/forget red")
    assert "not valid" in await owned.type("/forget --yes code1")
    assert (await owned.type("/forget --yes code2")).startswith("Forgotten: ")
    assert ("blue" in owned.facts(), "red" in owned.facts()) == (True, False)


async def test_a_code_is_good_for_who_was_asked_and_where(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    await owned.type("/forget blue")
    for place in ({"sender": "7"}, {"sender": "1", "group": "-100"}):
        assert "not valid" in await owned.type("/forget --yes code1", **place)
    assert "Ada likes blue." in owned.facts()


async def test_y_forgets_and_n_does_not_where_it_is_said_next(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    await owned.type("/forget blue")
    assert await owned.type("n") == "Nothing was forgotten."
    assert not owned.calls_a_command("y")
    await owned.type("/forget blue")
    assert (await owned.type("Yes ")).startswith("Forgotten: ")
    assert ("blue" in owned.facts(), "red" in owned.facts()) == (False, True)
    await owned.type("/forget red")
    assert not owned.calls_a_command("y", sender="7")
    assert not owned.calls_a_command("What is your favourite colour?")
    assert not owned.calls_a_command("y")  # which answers something else
    assert (await owned.type("/forget --yes code3")).startswith("Forgotten: ")


async def test_codes_and_y_survive_a_restart_and_nothing_of_it_stays(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    asked = owned.folder / "state" / "questions" / "telegram_1.json"
    for word, answer in (("blue", "/forget --yes code1"), ("red", "y")):
        await owned.type(f"/forget {word}")
        owned.restart_commands()
        assert (await owned.type(answer)).startswith("Forgotten: ")
        assert word not in owned.facts()
        assert not asked.exists()
    asked.write_text('{"code9": {"text": "x"}, "broken')
    owned.restart_commands()
    assert "not valid" in await owned.type("/forget --yes code9")


async def test_nobody_loses_a_question_because_others_are_asked(owned: OwnedMemory) -> None:
    """Each has a separate worker, and the workers do not know each other."""
    await owned.remember("Ada likes blue.", scope="people/telegram_7")
    await owned.remember("Ada likes red.")
    owned.restart_commands()
    here = owned.registry
    await owned.type("/forget red")
    owned.restart_commands()
    await owned.type("/forget blue", sender="7")
    owned.registry, there = here, owned.registry
    assert not owned.calls_a_command("hello", sender="8")
    assert (await owned.type("y")).startswith("Forgotten: ")
    owned.registry = there
    assert (await owned.type("y", sender="7")).startswith("Forgotten: ")


async def test_what_nobody_answered_goes_when_somebody_else_is_asked(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.", scope="people/telegram_7")
    await owned.remember("Ada likes red.")
    await owned.type("/forget blue", sender="7")
    await owned.clock.advance(601)
    await owned.type("/forget red")
    folder = owned.folder / "state" / "questions"
    assert "blue" not in (folder / "telegram_7.json").read_text()
    await owned.clock.advance(REMEMBERED.total_seconds())
    await owned.type("/forget red")
    assert [path.name for path in folder.iterdir()] == ["telegram_1.json"]


async def test_an_open_question_of_a_worker_is_left_alone_by_one_whose_clock_is_behind(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.", scope="people/telegram_7")
    await owned.remember("Ada likes red.")
    owned.restart_commands()
    owned.clock.jump(30)
    await owned.type("/forget blue", sender="7")
    owned.clock.jump(-30)
    owned.restart_commands()
    await owned.type("/forget red")
    assert (await owned.type("y", sender="7")).startswith("Forgotten: ")


async def test_a_question_of_one_worker_of_a_team_is_answered_at_another(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    owned.restart_commands()
    here = owned.registry
    owned.restart_commands()
    there = owned.registry
    for word, asking, answering in (("blue", here, there), ("red", there, here)):
        owned.registry = asking
        await owned.type(f"/forget {word}")
        owned.registry = answering
        assert (await owned.type("y")).startswith("Forgotten: ")


@pytest.mark.parametrize("answer", ["y", "/forget --yes code1"])
async def test_what_a_crash_cut_short_is_to_be_said_again(owned: OwnedMemory, answer: str) -> None:
    """The command runs again after it, but no longer knows the text to forget."""
    await owned.remember("Ada hides the marzipan.")
    await owned.type("/forget --erase marzipan")
    killed = patch.object(owned.service, "forget", side_effect=asyncio.CancelledError)
    with killed, pytest.raises(asyncio.CancelledError):
        await owned.type(answer)
    assert "marzipan" not in (owned.folder / "state/questions/telegram_1.json").read_text()
    owned.restart_commands()
    assert "Send the same /forget again" in await owned.type(answer)
    assert not owned.calls_a_command("y")
    assert "not valid" in await owned.type("/forget --yes code1")
    await owned.type("/forget --erase marzipan")
    assert "Erased from" in await owned.type("y")


async def test_what_is_not_remembered_needs_no_code(owned: OwnedMemory) -> None:
    assert "code" not in await owned.type("/forget zeppelins")
    assert "/forget my shoe size" in await owned.type("/forget")


async def test_only_the_owner_erases_and_is_asked_before(owned: OwnedMemory) -> None:
    await owned.remember("Ada hides the marzipan.")
    asked = await owned.type("/forget --erase marzipan")
    assert "This can't be undone." in asked
    assert "To erase it permanently, answer `y`" in asked
    assert "Only the owner" in await owned.type("/forget --erase marzipan", sender="7")
    assert "Erased from" in await owned.type("/forget --yes code1")
    assert "marzipan" not in owned.facts()


async def test_what_is_erased_does_not_come_back_with_a_question_of_another_chat(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada hides the marzipan.")
    await owned.type("/forget marzipan")
    await owned.type("/forget --erase marzipan", chat_id="77")
    assert "Erased from" in await owned.type("/forget --yes code2", chat_id="77")
    assert not owned.calls_a_command("good morning")
    asked = (owned.folder / "state" / "questions").iterdir()
    assert "marzipan" not in "".join(path.read_text() for path in asked)


async def test_compact_puts_this_conversation_away(owned: OwnedMemory) -> None:
    assert await owned.type("/compact") == "Consolidated 4 messages of telegram:1."


async def test_discard_says_what_it_does_not_take_back_and_offers_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(
        calls("write_file", path="boat.md", content="green"),
        says("Written."),
        calls("update_memory", add=["- The boat is green"]),
        says("I'll remember that."),
    )
    async with running(tmp_path, model, channel):
        await channel.ask("Write down that the boat is green.")
        await channel.ask("Remember that the boat is green")
        told = await channel.ask("/discard")
        assert told.startswith("Dropped ")
        assert "- changed files: boat.md (`/discard --undo`)" in told
        assert re.search(r"- in memory: .*1 added \(`/dream-restore --version \d`\)", told)
        assert "- tool calls: write_file, update_memory" in told
        assert (tmp_path / "workspace" / "boat.md").exists()
        assert "- boat.md: removed" in await channel.ask("/discard --undo")
        assert not (tmp_path / "workspace" / "boat.md").exists()
        memory = (tmp_path / "workspace" / "memory" / "MEMORY.md").read_text()
        assert "boat" not in memory
        assert await channel.ask("/discard --undo") == "This conversation is empty."


async def test_discard_names_whole_paths_and_says_how_many_more_there_are(tmp_path: Path) -> None:
    channel = FakeChannel()
    paths = [f"{'deep/' * 9}{number}.md" for number in range(10)]
    writes = (calls("write_file", path=path, content="x") for path in paths)
    async with running(tmp_path, ScriptedModel(*writes, says("Written.")), channel):
        await channel.ask("Write ten files")
        told = await channel.ask("/discard")
        assert f"{paths[7]} and 2 more (`/discard --undo`)" in told


async def test_discard_lists_only_what_still_stands_and_offers_nothing_that_failed(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    model = ScriptedModel(
        *(calls("update_memory", add=["- The cat is called Mimi"]), says("I'll remember that.")),
        *(calls("update_memory", add=["- The boat is green"]), says("I'll remember that.")),
        *(calls("update_memory", add=["- The car is red"]), says("I'll remember that.")),
    )
    memory = tmp_path / "workspace" / "memory" / "MEMORY.md"
    async with running(tmp_path, model, channel):
        await channel.ask("Remember that the cat is called Mimi")
        await channel.ask("/forget Mimi")
        await channel.ask("y")
        assert "Mimi" not in await channel.ask("/discard")
        await channel.ask("Remember that the boat is green")
        await channel.ask("Remember that the car is red")
        memory.write_text(f"{memory.read_text()}\n- Written by hand\n")
        told = await channel.ask("/discard --undo")
    assert "changed since" in told
    assert told.count("/dream-restore --version") == told.count("- in memory:") > 0
    assert "/discard --undo" not in told


async def test_discard_empties_the_conversation_and_search_does_not_find_it(
    owned: OwnedMemory,
) -> None:
    await owned.add_messages("telegram:1", "my secret is marzipan", "I see.")
    assert await owned.type("/discard") == ("Dropped 2 messages. Nothing will be remembered.")
    assert (await owned.sessions.get_or_create("telegram:1")).messages == ()
    assert "I see" not in await owned.type("/memory search marzipan")
    assert await owned.type("/discard") == "This conversation is empty."


async def test_continue_lists_the_other_conversations_of_the_same_person(
    owned: OwnedMemory,
) -> None:
    assert "no other conversations to continue" in await owned.type("/continue")
    await owned.add_messages("cli:direct", "at the terminal", "yes")
    await owned.add_messages("fake:2", "from another channel", "yes")
    await owned.add_messages("telegram:7", "somebody else's", "yes")
    await owned.add_messages("telegram:-100", "in a group", "yes", group=True)
    listed = await owned.type("/continue")
    assert "`/continue cli:direct`: 2026-03-02 09:00, 2 messages" in listed
    assert "fake:2" in listed
    assert "telegram:7" not in listed
    assert "-100" not in listed


async def test_continue_looks_at_all_conversations_aside_from_the_event_loop(
    owned: OwnedMemory,
) -> None:
    await owned.add_messages("cli:direct", "at the terminal", "yes")
    threads, listed = set[threading.Thread](), owned.sessions.list_sessions

    def watch() -> Iterator[SessionInfo]:
        for info in listed():
            threads.add(threading.current_thread())
            yield info

    with patch.object(owned.sessions, "list_sessions", watch):
        await owned.type("/continue")
    assert threading.main_thread() not in threads
    assert threads


async def test_continue_copies_what_memory_does_not_hold_yet(owned: OwnedMemory) -> None:
    other = await owned.add_messages("cli:direct", "old", "yes", "about the boat", "what about it?")
    owned.sessions.mark_consolidated(other, 2)
    answer = await owned.type("/continue cli:direct")
    assert answer == ("Copied 2 messages from cli:direct. To revert this, send /undo.")
    here = await owned.sessions.get_or_create("telegram:1")
    assert [message.content for message in here.messages] == ["about the boat", "what about it?"]
    assert len({message.turn_id for message in here.messages}) == 1
    assert [message.content for message in other.messages] == ["about the boat", "what about it?"]
    assert "already has all messages" in await owned.type("/continue cli:direct")
    await owned.add_messages("cli:direct", "one more")
    assert (await owned.type("/continue cli:direct")).startswith("Copied 1 message from cli:direct")


@pytest.mark.parametrize("name", ["telegram:7", "telegram:-100", "telegram:1", "nowhere"])
async def test_continue_reaches_no_one_elses_conversation(owned: OwnedMemory, name: str) -> None:
    await owned.add_messages("cli:direct", "mine", "yes")
    await owned.add_messages("telegram:7", "somebody else's", "yes")
    await owned.add_messages("telegram:-100", "in a group", "yes", group=True)
    answer = await owned.type(f"/continue {name}")
    assert answer.startswith("You have no other conversation with this name.")
    assert (await owned.sessions.get_or_create("telegram:1")).messages == ()


async def test_continue_does_not_carry_a_private_chat_into_a_group(owned: OwnedMemory) -> None:
    await owned.add_messages("cli:direct", "mine", "yes")
    answer = await owned.type("/continue cli:direct", group="-100")
    assert answer == "/continue works only in private chats."


async def test_usage_shows_all_to_the_owner_and_only_their_own_to_others(
    owned: OwnedMemory,
) -> None:
    lines = (await owned.type("/usage")).splitlines()
    assert [" ".join(line.split()[:2]) for line in lines[2:]] == [
        "this conversation", "today 0", "this month", "plus memory",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


async def test_dream_runs_for_the_scope_of_who_asks(owned: OwnedMemory) -> None:
    await owned.type("/dream")
    await owned.type("/dream", sender="7")
    await owned.type("/dream", group="-100")
    assert owned.dream.runs == [OWNER, PERSON, GROUP]


async def test_dream_log_and_restore_show_and_undo_a_change(owned: OwnedMemory) -> None:
    number = await owned.remember("Ada likes blue.")
    assert "+- Ada likes blue." in await owned.type("/dream-log")
    assert "+- Ada likes blue." in await owned.type(f"/dream-log {number}")
    assert "/dream-log 12" in await owned.type("/dream-log blue")
    for wish in ("", " --list"):
        listed = await owned.type(f"/dream-restore{wish}")
        assert listed.startswith(f"- {number}  2026-03-02 09:00  [Dream] learned 1 facts")
    undone = await owned.type(f"/dream-restore --version {number}")
    assert undone == (
        f"Undid change {number}. To undo this: `/dream-restore --version {number + 1}`."
    )
    assert "blue" not in owned.facts()
    assert "Undid change" in await owned.type(f"/dream_restore {number + 1}")
    assert "Ada likes blue." in owned.facts()


@pytest.mark.parametrize("text", ["--version", "--version x", "one two three", "--undo 1"])
async def test_a_restore_that_makes_no_sense_is_explained(owned: OwnedMemory, text: str) -> None:
    answer = await owned.type(f"/dream-restore {text}")
    assert answer == "Usage: /dream-restore --list | --version N | --to N"


async def test_a_worker_that_lost_touch_asks_and_forgets_later_and_hears_everybody(
    owned: OwnedMemory,
) -> None:
    await owned.remember("Ada likes blue.", "Ada likes red.")
    await owned.type("/forget blue")
    with closed_fence() as fence:
        assert not owned.calls_a_command("What is your favourite colour?")
        assert not owned.calls_a_command("y")
        typing = asyncio.create_task(owned.type("/forget red"))
        await fence.until_waited()
        assert not typing.done()
        fence.opened.set()
        assert (await typing).endswith("`/forget --yes code2` within ten minutes.")
    owned.restart_commands()
    assert (await owned.type("y")).startswith("Forgotten: ")
    assert "red" not in owned.facts()
