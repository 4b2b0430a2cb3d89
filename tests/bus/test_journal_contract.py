"""The contract of all journals. Each test runs on every implementation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import date, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Button, Delivery, Media, Origin, OutboundMessage, Quote, Said
from nanobot.bus.journal import (
    KEEP_DAYS,
    LEARNING,
    Completion,
    DayTimes,
    DayUsage,
    InboxEntry,
    MessageTurn,
    OutboxPart,
    Outgoing,
    QueueCounts,
    Step,
    UsageTotals,
    sum_usage,
)
from nanobot.bus.rows import encode_event
from nanobot.bus.sql_journal import Journal
from nanobot.errors import NanobotError
from nanobot.testing import FakeClock
from tests.bus.support import (
    HELLO,
    end_turn,
    give_up,
    make_message,
    open_journal,
    open_team_journal,
    reply,
)

QUESTION = OutboundMessage(
    "fake", "1", "Undo?", buttons=(Button("Yes", "/undo"), Button("Mine", "mine", only="anna"))
)
Process = Callable[[], AbstractAsyncContextManager[Journal]]
"""Opens the journal of a home like a separate process."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.team)])
def process(request: pytest.FixtureRequest, path: Path, clock: FakeClock) -> Process:
    if request.param == "sqlite":
        return lambda: open_journal(path, clock)
    dsn = request.getfixturevalue("team_database")
    return lambda: open_team_journal(dsn, clock)


@pytest.fixture
async def journal(process: Process) -> AsyncIterator[Journal]:
    async with process() as journal:
        yield journal


def claim(journal: Journal, turn_id: str, *entries: InboxEntry) -> None:
    """Begin a turn for these messages."""
    journal.claim(turn_id, "fake:1", [entry.id for entry in entries], at_once=True)


async def attempts_after(process: Process) -> list[int]:
    """Return the messages' attempts as the next process reads them."""
    async with process() as journal:
        return [entry.attempts for entry in (await journal.leftovers()).entries]


async def test_a_message_comes_back_as_it_was(process: Process) -> None:
    message = replace(
        HELLO,
        content="line\u2028 \ud83d lone, \x00 null",
        media=(Media("ref", "image", "image/png", "a.png", 7),),
        thread_id="t",
        reply_to=Quote("m0", "someone", "earlier"),
        forwarded_from="elsewhere",
        session_override="cron:job",
        sender_name="Ann",
        notes=("location: 1, 2", "x"),
        delivery=Delivery("album", edits="m0", answers="m0"),
        origin=Origin(mark="forwarded", context=(Said("user", "before"),), schema="{}"),
    )
    report = replace(
        HELLO, event_id="m2", content="", sender_id="", origin=Origin("report"), is_group=True
    )
    assert '"origin":{"begun_by":"report"}' in encode_event(report).replace(" ", "")
    async with process() as journal:
        await journal.receive("fake", (message, report))
    async with process() as journal:
        entries = (await journal.leftovers()).entries
    assert [entry.message for entry in entries] == [message, report]
    assert all(entry.recovered for entry in entries)


async def test_a_message_seen_before_is_dropped_also_by_the_next_process(process: Process) -> None:
    async with process() as journal:
        assert len(await journal.receive("fake", (make_message("m1"), make_message("m1")))) == 1
        assert await journal.receive("fake", (make_message("m1", "other words"),)) == ()
        (entry,) = (await journal.leftovers()).entries
        await journal.complete(end_turn("t1", entry))
    async with process() as journal:
        assert await journal.receive("fake", (make_message("m1"),)) == ()
        assert (await journal.leftovers()).entries == ()


async def test_an_edit_and_the_same_id_in_another_chat_are_messages_of_their_own(
    journal: Journal,
) -> None:
    messages = (make_message("m1"), make_message("m1:edit1"), make_message("m1", chat_id="2"))
    assert len(await journal.receive("fake", messages)) == 3


async def test_the_cursor_is_stored_with_the_messages_it_covers(process: Process) -> None:
    async with process() as journal:
        assert await journal.cursor("fake") is None
        await journal.receive("fake", (make_message("m1"),), "7")
        await journal.receive("fake", (), "8")
        await journal.receive("fake", (make_message("m2"),))
        assert await journal.cursor("other") is None
    async with process() as journal:
        assert await journal.cursor("fake") == "8"


async def test_lines_are_left_over_until_they_are_filed(process: Process) -> None:
    async with process() as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        committed = await journal.complete(end_turn("t1", entry, lines="line\n"))
        journal.mark_filed((committed.unfiled_id,))
    async with process() as journal:
        assert (await journal.leftovers()).unfiled == ()


async def test_nothing_of_a_deleted_conversation_is_left_over(process: Process) -> None:
    async with process() as journal:
        first, second = await journal.receive("fake", (make_message("m1"), make_message("m2")))
        await journal.complete(end_turn("t1", first, lines="line\n"))
        await journal.complete(end_turn("t2", second, state="failed"))
        await journal.forget_conversation("fake:other")
        assert len((await journal.queue_rows())[0]) == 1
        await journal.forget_conversation(first.message.session_key)
        assert await journal.queue_rows() == ([], [])
    async with process() as journal:
        left = await journal.leftovers()
        assert (left.unfiled, left.entries) == ((), ())


async def test_a_completion_republishes_and_reports_only_what_is_new(
    journal: Journal,
) -> None:
    first, second = await journal.receive("fake", (make_message("m1"), make_message("m2")))
    again = (make_message("m1:again"), make_message("m2"))
    committed = await journal.complete(end_turn("t1", first, republish=again))
    assert [entry.message.event_id for entry in committed.republished] == ["m1:again"]
    assert [entry.id for entry in (await journal.leftovers()).entries] == [
        second.id,
        committed.republished[0].id,
    ]


async def test_leftovers_come_in_the_order_they_came(process: Process) -> None:
    async with process() as journal:
        entries = await journal.receive("fake", [make_message(f"m{n}") for n in range(6)])
        claim(journal, "late", entries[4], entries[5])
        claim(journal, "early", entries[1])
    async with process() as journal:
        left = await journal.leftovers()
    assert [entry.message.event_id for entry in left.entries] == ["m0", "m1", "m2", "m3", "m4"]
    assert [entry.turn_id for entry in left.entries] == ["", "early", "", "", "late"]


async def test_a_turn_comes_back_with_its_steps_and_what_joined_it(process: Process) -> None:
    async with process() as journal:
        first, second = await journal.receive("fake", (make_message("m1"), make_message("m2")))
        claim(journal, "t1", first)
        journal.add_steps("t1", 0, (Step("message", "0"),))
        await journal.add_steps("t1", 1, (Step("start", "1"), Step("message", "2")))
        await journal.add_steps("t1", 3, (Step("message", "3"),), joined=(second.id,))
    async with process() as journal:
        (entry,) = (await journal.leftovers()).entries
    assert (entry.id, entry.turn_id) == (first.id, "t1")
    assert [step.payload for step in entry.steps] == ["0", "1", "2", "3"]
    assert [joined.id for joined in entry.joined] == [second.id]


async def test_only_an_unclean_end_without_progress_counts_as_an_attempt(process: Process) -> None:
    async with process() as journal:
        claimed, moved, waiting = await journal.receive(
            "fake", [make_message(f"m{n}") for n in range(3)]
        )
        claim(journal, "t1", claimed)
        claim(journal, "t2", moved)
        await journal.add_steps("t2", 0, (Step("message", "{}"),))
        assert waiting.attempts == 0
    assert await attempts_after(process) == [1, 0, 0]


async def test_a_turn_that_was_not_begun_again_is_not_blamed_for_the_next_end(
    process: Process,
) -> None:
    async with process() as journal:
        guilty, innocent = await journal.receive("fake", (make_message("m1"), make_message("m2")))
        claim(journal, "t1", guilty)
        claim(journal, "t2", innocent)
    assert await attempts_after(process) == [1, 1]
    async with process() as journal:
        claim(journal, "t1", guilty)
    assert await attempts_after(process) == [2, 1]


async def test_progress_of_an_earlier_process_does_not_excuse_the_next_end(
    process: Process,
) -> None:
    async with process() as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        claim(journal, "t1", entry)
        await journal.add_steps("t1", 0, (Step("message", "{}"),))
    async with process() as journal:
        await journal.leftovers()
        claim(journal, "t1", entry)
    assert await attempts_after(process) == [1]


async def test_a_clean_end_counts_no_attempt(process: Process) -> None:
    async with process() as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        claim(journal, "t1", entry)
        await journal.release()
    assert await attempts_after(process) == [0]


async def test_a_message_that_waits_for_the_model_is_not_blamed_for_a_crash(
    process: Process,
) -> None:
    async with process() as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        claim(journal, "t1", entry)
        await journal.postpone((entry.id,), 1234.5, "the model is out")
    async with process() as journal:
        (entry,) = (await journal.leftovers()).entries
    assert (entry.not_before, entry.reason, entry.attempts) == (1234.5, "the model is out", 0)


async def test_runs_are_counted_once_per_turn(process: Process) -> None:
    async with process() as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        claim(journal, "t1", entry)
        claim(journal, "t1", entry)
    async with process() as journal:
        (entry,) = (await journal.leftovers()).entries
    assert entry.runs == 1


async def test_a_reply_is_stored_once_per_call_of_a_turn(journal: Journal) -> None:
    assert len(await journal.add_outgoing("t1", reply("please wait", call="waiting"))) == 1
    assert await journal.add_outgoing("t1", reply("please wait", call="waiting")) == ()
    assert len(await journal.add_outgoing("t1", reply("done"))) == 1


async def test_ids_with_lone_surrogates_are_known_again(journal: Journal) -> None:
    odd = make_message("m\udcff", chat_id="\udcff")
    assert len(await journal.receive("fake", (odd,))) == 1
    assert await journal.receive("fake", (odd,)) == ()


async def send_parts(journal: Journal, message: OutboundMessage = QUESTION) -> tuple[Button, ...]:
    """Send a message and return its buttons as the platform gets them."""
    (part,) = await journal.add_outgoing("turn", Outgoing("reply", (message,)))
    return part.part.buttons


async def test_an_id_says_nothing_and_gives_the_value_back(journal: Journal) -> None:
    yes, mine = await send_parts(journal)
    assert yes.id != mine.id
    assert "undo" not in yes.id
    assert len(yes.id) <= 64
    assert await journal.resolve_button(yes.id, "fake", "1", ("anyone",)) == "/undo"


@pytest.mark.parametrize(("chat", "sender"), [("2", "anna"), ("1", "ben")])
async def test_a_button_is_for_its_chat_and_its_person_only(
    journal: Journal, chat: str, sender: str
) -> None:
    _, mine = await send_parts(journal)
    assert await journal.resolve_button(mine.id, "fake", "1", ("other", "anna")) == "mine"
    assert await journal.resolve_button(mine.id, "fake", chat, (sender,)) is None


async def test_an_id_that_somebody_made_up_presses_nothing(journal: Journal) -> None:
    await send_parts(journal)
    assert await journal.resolve_button("/undo", "fake", "1", ("anna",)) is None


async def test_the_ids_are_the_same_when_a_part_is_sent_again_after_a_crash(
    process: Process,
) -> None:
    async with process() as journal:
        before = await send_parts(journal)
    async with process() as journal:
        (part,) = (await journal.leftovers()).parts
        assert part.part.buttons == before
        assert await journal.resolve_button(before[0].id, "fake", "1", ()) == "/undo"


async def test_a_message_stored_twice_keeps_its_first_buttons(journal: Journal) -> None:
    before = await send_parts(journal)
    assert await journal.add_outgoing("turn", Outgoing("reply", (QUESTION,))) == ()
    assert await journal.resolve_button(before[0].id, "fake", "1", ()) == "/undo"


async def test_old_buttons_press_nothing_any_more(process: Process, clock: FakeClock) -> None:
    async with process() as journal:
        yes, _ = await send_parts(journal, replace(QUESTION, chat_id="1"))
    clock.jump(timedelta(days=KEEP_DAYS + 1).total_seconds())
    async with process() as journal:
        assert await journal.resolve_button(yes.id, "fake", "1", ()) is None


async def in_trouble(journal: Journal) -> tuple[InboxEntry, OutboxPart]:
    """Return a failed message and a dead reply."""
    failed, answered = await journal.receive(
        "fake", (make_message("m1", "do it"), make_message("m2"))
    )
    await journal.complete(
        Completion("t1", "fake:1", (failed.id,), "failed", reason="it broke", report="{}")
    )
    committed = await journal.complete(end_turn("t2", answered, outgoing=(reply("answer"),)))
    await give_up(journal, committed.parts[0])
    return failed, committed.parts[0]


async def test_counts_name_every_state_that_is_not_an_end(journal: Journal) -> None:
    await in_trouble(journal)
    (working, _) = await journal.receive("fake", (make_message("m3"), make_message("m4")))
    journal.claim("t3", "fake:1", (working.id,), at_once=True)
    await journal.add_outgoing("t3", reply("wait", call="waiting"))
    counts = await journal.counts()
    assert counts == QueueCounts(received=1, working=1, failed=1, outbox_pending=1, dead=1)


async def test_a_message_that_waits_for_the_model_is_counted_as_waiting(
    journal: Journal,
) -> None:
    (entry, _) = await journal.receive("fake", (make_message("m1"), make_message("m2")))
    journal.claim("t1", "fake:1", (entry.id,), at_once=True)
    await journal.postpone((entry.id,), 1234.5, "the model is out")
    counts = await journal.counts()
    assert counts == QueueCounts(received=2, put_off=1)


async def test_the_queue_shows_what_waits_and_what_is_in_trouble(journal: Journal) -> None:
    await in_trouble(journal)
    told = replace(make_message("m4", ""), notes=("location: 1, 2",))
    await journal.receive("fake", (make_message("m3", "many  words\n" * 40), told))
    inbox, outbox = await journal.queue_rows()
    assert [(row.id, row.state, row.reason) for row in inbox] == [
        ("in-1", "failed", "it broke"),
        ("in-3", "received", ""),
        ("in-4", "received", ""),
    ]
    assert (inbox[0].text, inbox[2].text) == ("do it", "location: 1, 2")
    assert len(inbox[1].text) == 81
    assert "\n" not in inbox[1].text
    assert [(row.id, row.place, row.state, row.text, row.reason) for row in outbox] == [
        ("out-1", "fake:1", "dead", "answer", "blocked")
    ]


async def test_retry_makes_a_failed_message_new_but_for_its_runs(journal: Journal) -> None:
    failed, _ = await in_trouble(journal)
    again = await journal.retry_row(f"in-{failed.id}")
    assert isinstance(again, InboxEntry)
    assert (again.id, again.message, again.attempts) == (failed.id, failed.message, 0)
    assert [entry.id for entry in (await journal.leftovers()).entries] == [failed.id]


async def test_retry_makes_a_dead_reply_pending(journal: Journal) -> None:
    _, dead = await in_trouble(journal)
    again = await journal.retry_row(f"out-{dead.id}")
    assert again == dead
    assert (await journal.leftovers()).parts == (dead,)


async def test_a_message_whose_parts_died_is_sent_again_once_from_where_it_was_asked_for(
    journal: Journal,
) -> None:
    (entry,) = await journal.receive("fake", (make_message("m1", chat_id="7"),))
    journal.claim("t1", "fake:7", (entry.id,), at_once=True)
    parts = await journal.add_outgoing("t1", reply("a", "b", "c"))
    others = await journal.add_outgoing("t1", reply("other", call="call-2"))
    for part in (parts[0], parts[2], *others):
        await give_up(journal, part)
    row = f"out-{parts[0].id}"
    for elsewhere in (("fake", "8"), ("other", "1")):
        with pytest.raises(NanobotError, match="this chat has no message"):
            await journal.resend(row, elsewhere)
    assert await journal.resend(row, ("fake", "7")) == (parts[0], parts[2])
    for chat in (("fake", "7"), ("fake", "1"), None):
        assert await journal.resend(row, chat) == ()
    assert [part.id for part in (await journal.leftovers()).parts] == [part.id for part in parts]


@pytest.mark.parametrize("row", ["out-99", "in-1"])
async def test_only_a_part_can_be_sent_again(journal: Journal, row: str) -> None:
    await in_trouble(journal)
    with pytest.raises(NanobotError, match="this chat has no message"):
        await journal.resend(row, None)


@pytest.mark.parametrize("how", ["resend", "retry"])
async def test_what_dies_again_is_told_again(journal: Journal, how: str) -> None:
    (part,) = await journal.add_outgoing("t1", reply("answer"))
    for _ in range(3):
        (told,) = await journal.give_up(part, "blocked")
        await journal.mark_sent(told, "1")
        if how == "resend":
            assert await journal.resend(f"out-{part.id}", None) == (part,)
        else:
            assert await journal.retry_row(f"out-{part.id}") == part


async def test_dropped_rows_are_gone_for_good_and_still_known(journal: Journal) -> None:
    failed, dead = await in_trouble(journal)
    for row in (f"in-{failed.id}", f"out-{dead.id}"):
        await journal.drop_row(row)
        with pytest.raises(NanobotError, match="not a failed message"):
            await journal.drop_row(row)
    assert await journal.queue_rows() == ([], [])
    assert await journal.receive("fake", (make_message("m1"),)) == ()


@pytest.mark.parametrize(
    "row", ["", "7", "in-", "in-x", "out--1", "turn-1", "in-²", f"in-{'9' * 30}"]
)
async def test_an_id_that_is_none_is_refused_with_an_example(journal: Journal, row: str) -> None:
    with pytest.raises(NanobotError, match="not a failed message") as caught:
        await journal.retry_row(row)
    assert "in-12" in caught.value.hint


async def test_what_is_under_way_can_be_neither_retried_nor_dropped(journal: Journal) -> None:
    await journal.receive("fake", (make_message("m1"),))
    await journal.add_outgoing("t1", reply("on its way"))
    for row in ("in-1", "out-1", "in-99", "out-99"):
        for operation in (journal.retry_row, journal.drop_row):
            with pytest.raises(NanobotError, match="not a failed message"):
                await operation(row)


async def test_a_turn_is_shown_with_the_prompt_it_was_asked_with(journal: Journal) -> None:
    (entry,) = await journal.receive("fake", (make_message("m1"),))
    journal.claim("t1", "fake:1", (entry.id,), at_once=True)
    journal.remember_prompt("abc", "You are nanobot.")
    running = await journal.turn_record("t1")
    assert (running.state, running.report, running.system_prompt) == ("running", {}, "")
    await journal.complete(end_turn("t1", entry, report='{"system_id": "abc", "milliseconds": 3}'))
    turn = await journal.turn_record("t1")
    assert (turn.session_key, turn.state) == ("fake:1", "done")
    assert turn.report["milliseconds"] == 3
    assert turn.system_prompt == "You are nanobot."


@pytest.mark.parametrize("turn", ["nope", "caf\udce9"])
async def test_an_unknown_turn_is_refused(journal: Journal, turn: str) -> None:
    with pytest.raises(NanobotError, match=r"no turn '(nope|caf)"):
        await journal.turn_record(turn)


async def turn(
    journal: Journal, name: str, report: str, *, session: str = "fake:1", state: str = "done"
) -> None:
    (entry,) = await journal.receive("fake", (make_message(name),))
    journal.claim(name, session, (entry.id,), at_once=True)
    ended = end_turn(name, entry, session_key=session, report=report, state=state)
    await journal.complete(ended)


def report(prompt: int, cached: int = 0, completion: int = 0, cost: int | None = None) -> str:
    used = {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}
    return json.dumps(used if cost is None else {**used, "cost": cost})


async def test_the_reports_of_a_conversation_or_of_all_are_summed(
    journal: Journal, clock: FakeClock
) -> None:
    await turn(journal, "a", report(100, 40, 10, 70))
    await turn(journal, "b", report(50, 0, 5))
    await turn(journal, "c", report(7, 0, 1, 3), session="fake:2")
    used = await journal.usage_by_day(date.min)
    assert sum_usage(used, "fake:1") == UsageTotals(2, 150, 40, 15, 70)
    assert sum_usage(used) == UsageTotals(3, 157, 40, 16, 73)
    assert [row.cost for row in await journal.turns()] == [3, None, 70]
    assert sum_usage(used, "fake:9") == UsageTotals()
    tomorrow = (clock.now() + timedelta(days=1)).date().isoformat()
    assert sum_usage(used, since=tomorrow) == UsageTotals()


async def test_turns_are_listed_the_newest_first_a_page_at_a_time(
    journal: Journal, clock: FakeClock
) -> None:
    for number in range(5):
        await turn(journal, f"t{number}", report(number), session=f"fake:{number % 2}")
        await clock.advance(60)
    claim(journal, "t5", *await journal.receive("fake", (make_message("m5"),)))
    first = await journal.turns(limit=3)
    assert [(one.id, one.state) for one in first] == [
        ("t5", "running"),
        ("t4", "done"),
        ("t3", "done"),
    ]
    assert (first[1].prompt, first[1].session_key, first[0].prompt) == (4, "fake:0", 0)
    assert [one.id for one in await journal.turns(before="t3")] == ["t2", "t1", "t0"]
    assert [one.id for one in await journal.turns(session="fake:1", state="done")] == ["t3", "t1"]
    assert await journal.turns(state="failed") == []
    assert await journal.turns(before="unknown") == []


async def test_what_turns_used_is_known_by_day_and_chat_for_longer_than_they_are(
    process: Process, clock: FakeClock
) -> None:
    day = clock.now().date()
    async with process() as journal:
        await turn(journal, "a", report(100, 40, 10))
        await turn(journal, "b", report(50, 0, 5, 30))
        await turn(journal, "d", report(0, 0, 0, 4))
        await turn(journal, "c", report(7, 0, 1), session="fake:2")
        again = Completion("a", "fake:1", (), "done", report=report(100, 40, 10))
        await journal.complete(again)  # after an unknown outcome, it counts once
    await clock.advance((KEEP_DAYS + 2) * 86_400)
    async with process() as journal:
        assert await journal.turns() == []
        assert await journal.usage_by_day(day) == [
            DayUsage(day.isoformat(), "fake:1", 3, 150, 40, 15, 34),
            DayUsage(day.isoformat(), "fake:2", 1, 7, 0, 1),
        ]
        assert await journal.usage_by_day(day + timedelta(days=1)) == []
    await clock.advance(400 * 86_400)
    async with process() as journal:
        assert await journal.usage_by_day(day) == []


async def test_reply_times_are_the_nearest_rank_of_a_day(
    journal: Journal, clock: FakeClock
) -> None:
    for number in range(1, 21):
        await turn(journal, f"t{number}", json.dumps({"milliseconds": number * 100}))
    await turn(journal, "failed", json.dumps({"milliseconds": 9}), state="failed")
    day = clock.now().date()
    assert await journal.times_by_day(day) == [DayTimes(day.isoformat(), 20, 1000, 1900)]
    assert await journal.times_by_day(day + timedelta(days=1)) == []


async def test_what_memory_itself_used_is_counted_by_day(journal: Journal) -> None:
    first, second = date(2026, 3, 31), date(2026, 4, 1)
    journal.add_learning_usage(first, UsageTotals(1, 100, 40, 10))
    journal.add_learning_usage(second, UsageTotals(1, 5, 0, 1, 9))
    journal.add_learning_usage(second, UsageTotals(1, 6, 2, 1))
    used = await journal.usage_by_day(first)
    assert sum_usage(used, LEARNING, second.isoformat()) == UsageTotals(2, 11, 2, 2, 9)
    assert sum_usage(used, LEARNING) == UsageTotals(3, 111, 42, 12, 9)
    assert sum_usage(used) == UsageTotals()


async def test_a_question_that_was_sent_is_known_until_it_is_closed(process: Process) -> None:
    async with process() as journal:
        (asked,) = await journal.add_outgoing("ask-A1", reply("May I?"))
        (other,) = await journal.add_outgoing("tell-1", reply("Hello"))
        assert await journal.open_questions() == []
        for part in (asked, other):
            await journal.mark_sent(part, "p1", keep=True)
    async with process() as journal:
        ((item, platform_id),) = await journal.open_questions()
        assert (item.part, platform_id) == (asked.part, "p1")
        journal.close_question("A1")
        assert await journal.open_questions() == []


async def test_a_question_of_an_earlier_process_is_not_sent(process: Process) -> None:
    async with process() as journal:
        await journal.add_outgoing("ask-A1", reply("May I?"))
        (dead,) = await journal.add_outgoing("ask-A2", reply("May I?"))
        (other,) = await journal.add_outgoing("tell-1", reply("Hello"))
        await give_up(journal, dead)
    async with process() as journal:
        parts = (await journal.leftovers()).parts
        assert other.part.key in {item.part.key for item in parts}
        assert not any(item.part.key.startswith("ask-") for item in parts)
        assert await journal.resend(f"out-{dead.id}", None) == ()


async def test_a_part_that_a_platform_drops_afterwards_waits_for_a_decision(
    process: Process,
) -> None:
    async with process() as journal:
        (part,) = await journal.add_outgoing("tell-1", reply("Hello"))
        (final,) = await journal.add_outgoing("tell-2", reply("Hello"))
        await journal.mark_sent(part, "p1", keep=True)
        await journal.mark_sent(final, "p2")
        for channel, id in (("fake", "p2"), ("fake", "p9"), ("other", "p1")):
            assert await journal.mark_undelivered(channel, id, "too late") == ""
        assert await journal.mark_undelivered("fake", "p1", "too late") == f"out-{part.id}"
        assert await journal.mark_undelivered("fake", "p1", "too late") == ""
    async with process() as journal:
        _, (row,) = await journal.queue_rows()
        assert (row.state, row.text, row.reason) == ("dead", "Hello", "too late")
        again = await journal.retry_row(row.id)
        assert isinstance(again, OutboxPart)
        assert again.part == part.part


async def test_a_message_of_a_platform_leads_to_its_turn(journal: Journal) -> None:
    first, second, other = await journal.receive("fake", [make_message(f"m{n}") for n in (1, 2, 3)])
    claim(journal, "t1", first)
    await journal.add_steps("t1", 0, (Step("message", "{}"),), joined=(second.id,))
    claim(journal, "t2", other)
    committed = await journal.complete(end_turn("t1", first, second, outgoing=(reply("answer"),)))
    await journal.mark_sent(committed.parts[0], "p9")
    found = [await journal.find_turn("fake", "1", id) for id in ("m1", "m2", "m3", "p9")]
    assert found == [
        MessageTurn("t1", "fake:1", 0),
        MessageTurn("t1", "fake:1", 1),
        MessageTurn("t2", "fake:1", 0),
        MessageTurn("t1", "fake:1", -1),
    ]
    assert await journal.find_turn("fake", "2", "m1") is None
    assert await journal.find_turn("fake", "1", "") is None
