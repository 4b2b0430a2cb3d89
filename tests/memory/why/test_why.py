"""Every remembered line can be traced back to its messages, but only within its scope."""

from __future__ import annotations

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from nanobot.memory.line_changes import Operation
from nanobot.memory.version import Change
from nanobot.messages import Message, ToolCall
from tests.memory.homes import GUEST, RealHome, retire

KEY = "telegram:1"


async def test_a_learned_line_leads_to_its_version_its_entry_and_the_words_said(
    home: RealHome,
) -> None:
    seqs = await home.say(KEY, "hello there", "my sister Ann lives in Oslo", "it rains")
    cursor = home.tell(KEY, seqs, "They told about their sister Ann in Oslo.")
    number = await home.learn("- Their sister Ann lives in Oslo", cursor=cursor)

    explanation = await home.explainer.why("sister Ann", "owner")

    (origin,) = explanation.found
    assert (origin.path, origin.text) == (
        "memory/MEMORY.md",
        "- Their sister Ann lives in Oslo",
    )
    (step,) = origin.steps
    assert (step.version, step.author) == (number, "dream")
    assert step.entry is not None
    assert (step.entry.cursor, step.entry.session) == (cursor, KEY)
    assert [(said.seq, said.who, said.text) for said in step.messages] == [
        (3, "you", "my sister Ann lives in Oslo")
    ]
    assert "my sister Ann lives in Oslo" in explanation.text
    assert f"version {number}" in explanation.text


async def test_rewordings_are_followed_to_the_first_wording(home: RealHome) -> None:
    first = await home.learn("- Sister Ann lives in Oslo", "- Likes green tea")
    second = await home.learn("- Sister Ann lives in Bergen", old="- Sister Ann lives in Oslo")
    await home.learn("- Drinks coffee, too")
    third = await home.learn(
        "- Sister Ann lives in Bergen since May", old="- Sister Ann lives in Bergen"
    )

    (origin,) = (await home.explainer.why("Ann Bergen", "owner")).found

    assert [step.version for step in origin.steps] == [third, second, first]
    assert [step.line for step in origin.steps] == [
        "- Sister Ann lives in Bergen since May",
        "- Sister Ann lives in Bergen",
        "- Sister Ann lives in Oslo",
    ]


async def test_of_several_entries_the_one_behind_the_line_is_named(home: RealHome) -> None:
    one = home.tell(KEY, await home.say(KEY, "I like tea"), "They like tea.")
    two = home.tell(KEY, await home.say(KEY, "Ann is in Oslo"), "Ann is in Oslo.")
    operations = (Operation(new="- Likes tea", cursor=one), Operation(new="- Ann is in Oslo"))
    change = Change("dream", "learned", cursors=(one, two), operations=operations)
    await home.memory().store.apply("memory/MEMORY.md", operations, change)

    for text, cursor in (("tea", one), ("Ann", two)):
        (origin,) = (await home.explainer.why(text, "owner")).found
        entry = origin.steps[0].entry
        assert entry is not None
        assert entry.cursor == cursor


@pytest.mark.parametrize("text", ["birthday 3.5.2020", "3 May", "birthday 2020-05-03"])
async def test_a_day_finds_its_line_however_it_is_written(home: RealHome, text: str) -> None:
    await home.learn("- Tom's birthday is on 3 May", "- Ann's birthday is on 5 March")
    (origin,) = (await home.explainer.why(text, "owner")).found
    assert origin.text == "- Tom's birthday is on 3 May"


async def test_a_line_that_the_agent_wrote_leads_to_its_turn(home: RealHome) -> None:
    await home.say(KEY, "something else", turn="t1")
    await home.say(KEY, "remember that Ann is in Oslo", turn="t2")
    change = Change("agent", "edit", session=KEY, turn="t2")
    await home.learn("- Ann is in Oslo", change=change)

    (origin,) = (await home.explainer.why("Ann", "owner")).found

    assert [said.text for said in origin.steps[0].messages] == ["remember that Ann is in Oslo"]


async def test_of_a_turn_the_question_and_the_line_that_a_tool_gave_are_shown(
    home: RealHome,
) -> None:
    session = await home.sessions.get_or_create(KEY)
    page = Message("tool", "Menu\nAnn lives in Oslo\nContact", name="web_fetch", tool_call_id="1")
    call = ToolCall("1", "web_fetch", "{}")
    for message in (
        Message("user", "look up where she is"),
        Message("assistant", "Ann lives in Oslo, I guess", tool_calls=(call,)),
        page,
    ):
        session.add_message(replace(message, turn_id="t1"))
    await home.sessions.save(session)
    change = Change("agent", "edit", session=KEY, turn="t1")
    await home.learn("- Ann lives in Oslo", change=change)

    (origin,) = (await home.explainer.why("Ann", "owner")).found

    assert [said.text for said in origin.steps[0].messages] == [
        "look up where she is",
        "Ann lives in Oslo",
    ]


async def test_what_an_undoing_brought_back_leads_to_who_wrote_it(home: RealHome) -> None:
    await home.learn("- Likes tea")
    first = await home.learn("- Ann is in Oslo")
    for undone in (first, first + 1):
        revert = home.versions.plan_undo(undone)
        for path, text in revert.texts.items():
            change = Change("restore", f"undo change {undone}")
            await home.memory().store.replace(
                path, text, expected=revert.expected[path], change=change
            )

    (origin,) = (await home.explainer.why("Ann", "owner")).found

    assert [step.author for step in origin.steps] == ["restore", "dream"]
    assert origin.steps[-1].version == first
    assert "earlier wording" not in (await home.explainer.why("Ann", "owner")).text


async def test_lines_with_the_very_words_come_alone(home: RealHome) -> None:
    await home.learn("- Locker number A3999", "- Locker number A39")

    explanation = await home.explainer.why("A3999", "owner")

    assert [origin.text for origin in explanation.found] == ["- Locker number A3999"]


async def test_a_line_written_by_hand_says_so(home: RealHome) -> None:
    await home.learn("- Likes tea")
    path = home.folder / "workspace" / "memory" / "MEMORY.md"
    path.write_text(path.read_text() + "- Ann is in Oslo\n")

    explanation = await home.explainer.why("Ann", "owner")

    assert explanation.found[0].steps[0].author == "you"
    assert "by you or at your request" in explanation.text


async def test_a_retired_line_is_followed_to_where_it_came_from(home: RealHome) -> None:
    first = await home.learn("- Ann is in Oslo", "- Likes tea")
    await retire(home.memory().store, "memory/MEMORY.md", ["- Ann is in Oslo"], Change("dream"))

    (origin,) = (await home.explainer.why("Ann", "owner")).found

    assert origin.path == "memory/retired.md"
    assert origin.steps[-1].version == first


BERGEN = "- Ann is in Bergen"


async def retire_ann(home: RealHome, door: str) -> None:
    """Let the person's words "Ann moved to Bergen" retire "Ann is in Oslo"."""
    memory = home.memory()
    await home.say(KEY, "it rains", turn="t8")
    seqs = await home.say(KEY, "Ann moved to Bergen", turn="t9")
    step, pending = Operation("- Ann is in Oslo", BERGEN), memory.pending
    if door in ("dream", "consolidate"):
        step = replace(step, cursor=home.tell(KEY, seqs, "Ann moved to Bergen."))
        change = Change(door, "learned", cursors=(step.cursor,), operations=(step,))  # type: ignore[arg-type]
    elif door == "tool":
        change = Change("agent", "MEMORY.md: 1 reworded", session=KEY, turn="t9")
    else:
        change = Change("agent", "held back", session=KEY, turn="t9")
        await pending.add([step], "memory/MEMORY.md", ["tool:web_fetch"], change)
        home.clock.jump(60)
        await pending.accept([1])
        return
    await memory.store.apply("memory/MEMORY.md", [step], change, retired=[step.old])


@pytest.mark.parametrize("door", ["dream", "consolidate", "tool", "accepted"])
async def test_a_retired_line_names_who_said_it_and_when_and_why_it_went(
    home: RealHome, door: str
) -> None:
    cursor = home.tell(KEY, await home.say(KEY, "my sister Ann is in Oslo"), "Ann is in Oslo.")
    first = await home.learn("- Ann is in Oslo", "- Likes tea", cursor=cursor)
    home.clock.jump(86_400)
    await retire_ann(home, door)

    (origin,) = (await home.explainer.why("Ann Oslo", "owner")).found

    removal, learned = origin.steps
    assert (origin.path, removal.removed, removal.replacement) == (
        "memory/retired.md",
        True,
        BERGEN,
    )
    assert removal.when.date().isoformat() in origin.text
    assert [one.text for one in removal.messages] == ["Ann moved to Bergen"]
    assert (learned.version, learned.removed) == (first, False)
    assert [(one.seq, one.who, one.text) for one in learned.messages] == [
        (1, "you", "my sister Ann is in Oslo")
    ]
    lines = list(origin.lines())
    assert "  - replaced by: Ann is in Bergen" in lines
    assert any("you: my sister Ann is in Oslo" in line for line in lines)
    assert not any("earlier wording" in line or "no longer exists" in line for line in lines)
    # Undone, the fact is as before.
    await restore(home, removal.version)
    again = (await home.explainer.why("Ann Oslo", "owner")).found[0]
    assert again.path == "memory/MEMORY.md"
    assert [one.author for one in again.steps] == ["restore", "dream"]


async def test_each_retirement_of_a_fact_has_its_own_source(home: RealHome) -> None:
    for said in ("the boat leaks", "the boat is sold"):
        cursor = home.tell(KEY, await home.say(KEY, f"I have a boat, {said}"), f"Boat: {said}.")
        await home.learn("- Has a boat", cursor=cursor)
        home.clock.jump(86_400)
        gone = home.tell(KEY, await home.say(KEY, f"No boat: {said}"), f"No boat: {said}.")
        steps = (Operation("- Has a boat", cursor=gone),)
        change = Change("dream", "retired 1 fact", cursors=(gone,), operations=steps)
        await home.memory().store.apply("memory/MEMORY.md", steps, change, retired=["- Has a boat"])

    found = sorted((await home.explainer.why("has boat", "owner")).found, key=lambda one: one.text)

    texts = [[one.text for step in line.steps for one in step.messages] for line in found]
    assert texts == [
        ["No boat: the boat leaks", "I have a boat, the boat leaks"],
        ["No boat: the boat is sold", "I have a boat, the boat is sold"],
    ]


async def test_a_line_that_the_person_retired_says_so_and_a_dated_fact_is_not_taken_for_one(
    home: RealHome,
) -> None:
    cursor = home.tell(KEY, await home.say(KEY, "the fair is on 3 May"), "The fair: 3 May.")
    await home.learn("- 2026-05-03: the fair", "- Likes tea", cursor=cursor)
    (fair,) = (await home.explainer.why("fair", "owner")).found
    assert (fair.steps[0].removed, fair.steps[0].entry is not None) == (False, True)
    folder = home.folder / "workspace" / "memory"
    (folder / "MEMORY.md").write_text("- Likes coffee\n")
    (folder / "retired.md").write_text("# Retired facts\n- 2026-03-02: Likes tea\n")
    text = (await home.explainer.why("tea", "owner")).text
    assert "retired by you or at your request on 2026-03-02" in text
    assert "[Dream] learned" in text


async def test_the_source_of_a_retirement_in_another_scope_is_not_shown(home: RealHome) -> None:
    await home.learn("- Ann is in Oslo", "- Likes tea")
    seqs = await home.say("telegram:7", "Ann moved to Bergen, tell no one")
    stray = home.tell("telegram:7", seqs, "A guest's secret about Ann.")
    steps = (Operation("- Ann is in Oslo", cursor=stray),)
    change = Change("dream", "retired 1 fact", cursors=(stray,), operations=steps)
    await home.memory().store.apply("memory/MEMORY.md", steps, change, retired=["- Ann is in Oslo"])

    explanation = await home.explainer.why("Ann", "owner")

    assert "to another memory" in explanation.text
    assert "tell no one" not in str(to_builtins(explanation))
    assert "secret" not in str(to_builtins(explanation))


async def restore(home: RealHome, number: int) -> None:
    """Undo a version."""
    revert = home.versions.plan_undo(number)
    for path, text in revert.texts.items():
        change = Change("restore", f"undo change {number}")
        expected = revert.expected[path]
        await home.memory().store.replace(path, text, expected=expected, change=change)


async def test_nothing_of_another_scope_is_shown(home: RealHome) -> None:
    seqs = await home.say("telegram:7", "Ann is in Oslo, tell no one")
    home.tell("telegram:7", seqs, "A guest's secret.", scope=GUEST)
    stray = home.tell("telegram:7", seqs, "A guest's secret about Ann in Oslo.")
    await home.learn("- Ann is in Oslo", cursor=stray)
    turn = Change("agent", "edit", session="telegram:7", turn="")
    await home.learn("- Eve is in Rome", change=turn)

    explanation = await home.explainer.why("Ann", "owner")
    assert "to another memory" in explanation.text
    assert "secret" not in explanation.text
    assert "tell no one" not in str(to_builtins(explanation))
    other = await home.explainer.why("Eve", "owner")
    assert "telegram:7" not in str(to_builtins(other))
    assert not (await home.explainer.why("Ann", GUEST)).found


async def test_retracted_messages_are_not_shown(home: RealHome) -> None:
    seqs = await home.say(KEY, "Ann is in Oslo")
    await home.learn("- Ann is in Oslo", cursor=home.tell(KEY, seqs, "About Ann."))
    await home.sessions.retract(await home.sessions.get_or_create(KEY), [1])

    (origin,) = (await home.explainer.why("Ann", "owner")).found

    assert not origin.steps[0].messages


async def test_a_miss_says_where_else_to_look(home: RealHome) -> None:
    await home.learn("- Ann is in Oslo", "- Likes tea")

    explanation = await home.explainer.why("Ann in Paris", "owner")

    assert not explanation.found
    assert "Oslo" not in explanation.text
    assert "/memory search" in explanation.text


def september(home: RealHome) -> None:
    """Write a digest and its notes."""
    folder = home.folder / "workspace" / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "2026-09-03.md").write_text("# 2026-09-03\n\n- 09:00 bread\n- 10:00 ran 5 km\n")
    (folder / "2026-09-05.md").write_text("# 2026-09-05\n\n- 10:00 ran 6 km\n")
    (folder / "2026-09.md").write_text(
        "# 2026-09\n\n- Baked bread (09-03)\n- Ran in the park (09-03, 09-05)\n"
    )


async def test_a_fact_that_recurred_leads_through_its_digest_to_the_notes(home: RealHome) -> None:
    await home.learn("- Likes tea")
    september(home)
    step = Operation(new="- Ran in the park", note="2026-09")
    change = Change("dream", "learned", cursors=(7,), operations=(step,))
    await home.memory().store.apply("memory/MEMORY.md", [step], change)

    explanation = await home.explainer.why("park", "owner")

    assert explanation.text.splitlines()[3:] == [
        "  - promoted from the digest of 2026-09",
        "  - memory/2026-09.md, line 4: - Ran in the park (09-03, 09-05)",
        "  - memory/2026-09-03.md, line 4: - 10:00 ran 5 km",
        "  - memory/2026-09-05.md, line 3: - 10:00 ran 6 km",
    ]


async def test_a_fact_from_a_note_leads_to_it(home: RealHome) -> None:
    await home.learn("- Likes tea")
    september(home)
    step = Operation(new="- Ran 6 km", note="2026-09-05")
    await home.memory().store.apply("memory/MEMORY.md", [step], Change("dream", operations=(step,)))

    explanation = await home.explainer.why("Ran 6 km", "owner")

    assert "learned from the notes of 2026-09-05\n" in explanation.text
    assert "memory/2026-09-05.md, line 3: - 10:00 ran 6 km" in explanation.text
    assert "not kept" not in explanation.text


async def test_lines_of_notes_and_digests_say_what_they_are_and_rest_on(home: RealHome) -> None:
    september(home)

    digest, note = [(await home.explainer.why(text, "owner")).text for text in ("Baked", "6 km")]

    assert digest.splitlines() == [
        "memory/2026-09.md, line 3: - Baked bread (09-03)",
        "- from a digest that Dream wrote from notes (you can edit it)",
        "  - memory/2026-09-03.md, line 3: - 09:00 bread",
    ]
    assert note.splitlines() == [
        "memory/2026-09-05.md, line 3: - 10:00 ran 6 km",
        "- noted on 2026-09-05",
    ]


async def test_a_line_that_rests_on_a_message_marked_to_keep_says_so(home: RealHome) -> None:
    seqs = await home.say(KEY, "Ann is in Oslo", "Ann is in Oslo with Tom")
    await home.learn("- Ann is in Oslo", cursor=home.tell(KEY, seqs, "About Ann."))
    session = await home.sessions.get_or_create(KEY)
    await home.sessions.mark(session, seqs[0], kept=True, by="1", via="/note")

    text = (await home.explainer.why("Ann", "owner")).text

    assert "you (marked to keep): Ann is in Oslo\n" in text
    assert text.count("marked to keep") == 1
