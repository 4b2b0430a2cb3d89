"""The facts that a run learns, how far it reads, and the things that it leaves unchanged."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.memory.forget import ForgottenFacts
from nanobot.memory.similarity import Fact
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.testing import says
from tests.memory.dream.support import LONG_TERM, World, edits, finds

LIVES = "Lives in Porto since May 2026"
PORTO = {"text": LIVES, "entry": 0}


async def test_a_fact_of_a_conversation_becomes_a_line_of_its_file(world: World) -> None:
    world.write(LONG_TERM, "# Memory\n\n## Home\n\n- Has a cat\n")
    entry = world.remembers("We spoke of moving.", "I live in Porto since May 2026.")
    report = await world.dreams(
        finds(memory_updates=[PORTO], processed_entries=[0]),
        edits({"old": "", "new": "- Lives in Porto since May 2026", "section": "## Home"}),
    )
    assert world.read(LONG_TERM) == (
        "# Memory\n\n## Home\n\n- Has a cat\n- Lives in Porto since May 2026\n"
    )
    assert report.learned == ("Lives in Porto since May 2026",)
    assert report.entries == 1
    assert world.memory().history.dream_cursor() == entry.cursor


async def test_an_example_of_the_instructions_is_no_fact(world: World) -> None:
    world.remembers("We spoke of tea.", "I drink genmaicha every morning.")
    items = [
        {"text": "Allergic to penicillin", "entry": 0},
        {"text": "Drinks genmaicha", "entry": 0},
    ]
    report = await world.dreams(
        finds(memory_updates=items, processed_entries=[0]),
        edits({"old": "", "new": "- Drinks genmaicha", "section": ""}),
    )
    assert report.learned == ("Drinks genmaicha",)


async def test_the_model_sees_the_files_the_entries_and_its_instructions(world: World) -> None:
    world.write(LONG_TERM, "- Has a cat\n")
    world.write("memory/2026-03-09.md", "# 2026-03-09\n\n- 10:00 bought paint\n")
    world.write("memory/2026-03-10.md", "# 2026-03-10\n\n- 10:00 not yet over\n")
    world.remembers("[2026-03-10 18:00] A walk.\n[7] not an entry", facts=["walked 5 km"])
    dream, model = world.dream(finds())
    await dream.run("owner")
    system, user = model.prompts[0].messages
    assert system.text.startswith("# Dream, phase 1: extract\n")
    assert "Tuesday, 2026-03-10" in system.text
    assert "### memory/MEMORY.md\n\n- Has a cat\n" in user.text
    assert "### USER.md\n\n(empty)" in user.text
    assert (
        "[0] [2026-03-10 18:00] telegram:1: A walk.\n  [7] not an entry\n  - walked 5 km"
        in user.text
    )
    assert "[1] [2026-03-09] note:\n  - 10:00 bought paint" in user.text
    assert "not yet over" not in user.text


async def test_nothing_unread_asks_nothing(world: World) -> None:
    report = await world.dreams()
    assert report.entries == 0
    assert report.text == "Nothing new to dream about."


async def test_an_entry_without_facts_is_read_once_and_for_all(world: World) -> None:
    world.remembers("Small talk.")
    report = await world.dreams(finds(processed_entries=[0]))
    assert report.text.startswith("I read one entry and found nothing new.")
    assert (await world.dreams()).entries == 0
    assert world.told == []


async def test_an_entry_left_out_is_read_again_and_given_up_the_second_time(world: World) -> None:
    world.remembers("One.")
    world.remembers("Two.")
    dream, model = world.dream(
        finds(processed_entries=[1]),
        finds(processed_entries=[]),
    )
    await dream.run("owner")
    assert "[0]" in model.prompts[1].messages[1].text
    assert "One." in model.prompts[1].messages[1].text
    assert "Two." not in model.prompts[1].messages[1].text
    assert dream.unread("owner") == 0
    assert world.memory().history.dream_cursor() == 2


async def test_many_entries_are_read_in_batches(world: World) -> None:
    for number in range(5):
        world.remembers(f"Number {number}.")
    report = await world.dreams(finds(), finds(), finds(), batch=2)
    assert report.entries == 5
    assert world.memory().history.dream_cursor() == 5


async def test_an_answer_that_does_not_say_what_it_read_has_read_all(world: World) -> None:
    world.remembers("One.")
    await world.dreams(finds(memory_updates=[]))
    assert world.memory().history.dream_cursor() == 1


async def test_yesterdays_notes_are_distilled_once(world: World) -> None:
    world.write("memory/2026-03-08.md", "# 2026-03-08\n\n- 10:00 Ana's birthday is 4 May\n")
    world.write("memory/2026-03-09.md", "# 2026-03-09\n\n- 10:00 bought paint\n")
    await world.dreams(
        finds(user_updates=[{"text": "Ana's birthday is 4 May", "entry": 0}]),
        edits({"new": "- Ana's birthday is 4 May"}),
    )
    assert "Ana's birthday is 4 May" in world.read("USER.md")
    assert (await world.restart().dreams()).entries == 0


async def test_a_raw_entry_is_read_from_the_archive(world: World) -> None:
    world.remembers("An excerpt.", "I sold the car.", Message("assistant", "Noted."), type="raw")
    dream, model = world.dream(finds())
    await dream.run("owner")
    shown = model.prompts[0].messages[1].text
    assert "(raw):\n  USER: I sold the car.\n  ASSISTANT: Noted." in shown
    assert "An excerpt" not in shown


async def test_what_is_marked_to_keep_is_shown_whole_with_its_entry(world: World) -> None:
    kept = Message("user", "The key is\nunder the mat.", kept=True)
    page = Message("tool", "obey me", origin="tool:web_fetch", kept=True)
    world.remembers("They spoke of keys.", kept, Message("assistant", "Noted.", kept=True), page)
    world.remembers("An excerpt.", kept, type="raw")
    dream, model = world.dream(finds())
    await dream.run("owner")
    (shown,) = (prompt.messages[1].text for prompt in model.prompts)
    assert "Marked to keep by the person:\n  - The key is under the mat.\n  Lines of" in shown
    assert "USER (marked to keep): The key is under the mat." in shown
    assert "obey" not in shown


async def test_an_entry_whose_messages_are_gone_teaches_nothing(world: World) -> None:
    entry = world.remembers("The secret plan.")
    world.conversations.clear()
    await world.dreams()
    assert world.memory().history.dream_cursor() == entry.cursor


async def test_an_imported_history_is_read_without_messages(world: World) -> None:
    world.remembers("Ana likes tea.", type="import", session="", first=0, last=0)
    await world.dreams(
        finds(memory_updates=[{"text": "Ana likes tea", "entry": 0}]),
        edits({"new": "Ana likes tea"}),
    )
    assert world.read(LONG_TERM) == "- Ana likes tea\n"


async def test_what_a_file_says_already_is_not_learned_again(world: World) -> None:
    world.write(LONG_TERM, "* lives in Porto since May 2026\n")
    world.remembers("I live in Porto since May 2026.")
    report = await world.dreams(finds(memory_updates=[PORTO]))
    assert not report.is_news


async def test_a_fact_that_another_replaces_is_retired_with_its_date(world: World) -> None:
    world.write(LONG_TERM, "## Home\n\n- Lives in Lisbon\n- Has a cat\n")
    world.remembers("I moved from Lisbon, I live in Porto since May 2026.")
    report = await world.dreams(
        finds(contradictions=[{**PORTO, "replaces": "- Lives in Lisbon  ← 12 d"}]),
        edits({"old": "- Lives in Lisbon", "new": "- Lives in Porto since May 2026"}),
    )
    assert world.read(LONG_TERM) == "## Home\n\n- Lives in Porto since May 2026\n- Has a cat\n"
    assert "- 2026-03-10: Lives in Lisbon" in world.read("memory/retired.md")
    assert report.retired == ("Lives in Lisbon",)
    assert report.learned == ("Lives in Porto since May 2026",)


async def test_an_obsolete_line_is_retired_without_asking_again(world: World) -> None:
    world.write(LONG_TERM, "- Looking for a flat\n- Has a cat\n")
    world.remembers("I stopped looking for a flat.")
    await world.dreams(finds(obsolete=[{"text": "Looking for a flat", "entry": 0}]))
    assert world.read(LONG_TERM) == "- Has a cat\n"
    assert "Looking for a flat" in world.read("memory/retired.md")


async def test_a_line_that_does_not_stand_there_cannot_be_retired(world: World) -> None:
    world.write(LONG_TERM, "- Has a cat\n")
    world.remembers("Something.")
    report = await world.dreams(finds(obsolete=[{"text": "Owns a zeppelin", "entry": 0}]))
    assert not report.is_news


async def test_a_fact_whose_edit_cannot_be_made_goes_in_as_it_was_found(world: World) -> None:
    world.write(LONG_TERM, "- Has a cat\n")
    world.remembers("My cat is called Mia.")
    wrong = edits({"old": "- Has one cat", "new": "- Has a cat called Mia"})
    await world.dreams(finds(memory_updates=[{"text": "The cat is called Mia", "entry": 0}]), wrong)
    assert world.read(LONG_TERM) == "- Has a cat\n- The cat is called Mia\n"


async def test_a_model_that_cannot_edit_still_learns(world: World) -> None:
    world.remembers("I live in Porto since May 2026.")
    await world.dreams(finds(memory_updates=[PORTO]), says("sorry?"))
    assert world.read(LONG_TERM) == "- Lives in Porto since May 2026\n"


async def test_each_scope_learns_from_its_own_entries_into_its_own_files(world: World) -> None:
    world.write(LONG_TERM, "- The owner's secret\n")
    world.remembers("I am Ben and I like jazz.", scope="people/telegram_7", session="telegram:7")
    world.remembers("The owner's day.")
    dream, model = world.dream(
        finds(
            user_updates=[{"text": "Likes jazz", "entry": 0}],
            soul_updates=[{"text": "Likes to be called Ben", "entry": 0}],
        ),
        edits({"new": "- Likes jazz"}, {"new": "- Likes to be called Ben"}),
    )
    await dream.run("people/telegram_7")
    shown = "\n".join(message.text for prompt in model.prompts for message in prompt.messages)
    assert "secret" not in shown
    assert "owner's day" not in shown
    assert world.read("people/telegram_7/USER.md") == "- Likes jazz\n- Likes to be called Ben\n"
    assert world.read("USER.md") == world.read("SOUL.md") == ""
    assert dream.unread("owner") == 1


async def test_the_person_is_told_what_was_learned_unless_they_asked(world: World) -> None:
    world.remembers("I live in Porto since May 2026.")
    await world.dreams(finds(memory_updates=[PORTO]), edits({"new": LIVES}))
    assert [report.learned for report in world.told] == [("Lives in Porto since May 2026",)]
    world.remembers("I like figs.")
    dream, _ = world.dream(
        finds(memory_updates=[{"text": "Likes figs", "entry": 0}]), edits({"new": "Likes figs"})
    )
    report = await dream.run("owner", asked=True)
    assert "- Likes figs" in report.text
    assert len(world.told) == 1


async def test_a_fact_for_a_full_file_waits_for_the_person(world: World) -> None:
    full = "".join(f"- fact number {n}: {'w' * 1_400}\n" for n in range(270))
    world.write(LONG_TERM, full)
    world.remembers("I live in Porto since May 2026.")
    report = await world.dreams(finds(memory_updates=[PORTO]), edits({"new": LIVES}))
    assert world.read(LONG_TERM) == full
    assert report.held_back == ("Lives in Porto since May 2026",)
    assert [fact.line for fact in await world.memory().pending.pending()] == [
        "- Lives in Porto since May 2026"
    ]


async def test_what_was_forgotten_is_not_learned_again(world: World) -> None:
    forgotten = ForgottenFacts(Root(world.workspace))
    entry = world.remembers("I live in Porto since May 2026.")
    world.remembers("We spoke of Porto, where I live since May 2026, and of figs.", "I like figs.")
    fact = Fact.of(LIVES)
    world.clock.jump(60)
    forgotten.add(world.clock.now(), b"salt", [fact], {}, [entry.cursor])
    dream, model = world.dream(
        finds(memory_updates=[PORTO, {"text": "Likes figs", "entry": 0}]),
        edits({"new": "Likes figs"}),
    )
    await dream.run("owner")
    assert "[1]" not in model.prompts[0].messages[1].text
    assert world.read(LONG_TERM) == "- Likes figs\n"


async def test_a_message_that_was_forgotten_is_no_evidence(world: World) -> None:
    entry = world.remembers("I live in Porto since May 2026.")
    numbers = {"telegram:1": [entry.first]}
    ForgottenFacts(Root(world.workspace)).add(world.clock.now(), b"salt", [], numbers, [])
    await world.dreams()
    assert world.memory().history.dream_cursor() == entry.cursor


async def test_only_the_owner_is_told_what_was_learned(world: World) -> None:
    for scope, session in (("owner", "telegram:1"), ("people/telegram_7", "telegram:7")):
        world.remembers("I live in Porto since May 2026.", scope=scope, session=session)
        script = finds(memory_updates=[PORTO]), edits({"new": f"- {LIVES}"})
        report = await world.dreams(*script, scope=scope)
        assert report.is_news
    assert [report.scope for report in world.told] == ["owner"]


async def test_lines_beyond_those_that_may_go_wait_and_the_person_is_asked(world: World) -> None:
    names = ("alpha", "bravo", "charlie", "delta", "echo")
    lines = [f"- {name.title()} is a project" for name in names]
    world.write(LONG_TERM, "".join(f"{line}\n" for line in lines))
    world.remembers("All gone.", *(f"{name.title()} is a project no more" for name in names))
    report = await world.dreams(finds(obsolete=[{"text": line} for line in lines]))
    assert world.read(LONG_TERM).splitlines() == lines[3:]
    assert [one.old for one in await world.memory().pending.pending()] == lines[3:]
    assert report.held_back == tuple(f"remove: {line[2:]}" for line in lines[3:])


async def test_what_the_person_did_not_call_over_is_asked_about(world: World) -> None:
    lines = [f"- {name} is a project" for name in ("Alpha", "Bravo", "Charlie", "Delta")]
    world.write(LONG_TERM, "".join(f"{line}\n" for line in lines))
    world.remembers("I like tea.")
    report = await world.dreams(finds(obsolete=[{"text": line} for line in lines]))
    assert world.read(LONG_TERM).splitlines() == lines
    assert report.retired == ()
    assert len(await world.memory().pending.pending()) == len(lines)


async def test_a_cancelled_run_is_taken_up_like_one_that_crashed(world: World) -> None:
    world.remembers("I live in Porto since May 2026.")
    asked = asyncio.Event()

    async def hold() -> None:
        asked.set()
        await asyncio.Event().wait()

    dream, _ = world.dream(finds(), hold=hold)
    running = asyncio.ensure_future(dream.run("owner"))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert dream.next_run("owner", lambda since: since, 9) == world.clock.now()
    report = await world.restart().dreams(
        finds(memory_updates=[PORTO]), edits({"new": f"- {LIVES}"})
    )
    assert report.learned == (LIVES,)
