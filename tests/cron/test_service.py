"""Jobs run exactly once for each due time: clock changes, clocks that jump, kills, broken files."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Address, InboundMessage, Origin
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.cron.job import JobStore
from nanobot.cron.service import MOST_JOBS, MOST_OF_OTHERS, CronService
from nanobot.errors import NanobotError, StorageError
from tests.cron.support import HERE, CronKit, Killed, berlin

BOBS = replace(HERE, address=Address("telegram", "8"), scope="people/telegram_8", created_by="8")


@pytest.fixture
def kit(tmp_path: Path) -> CronKit:
    return CronKit(tmp_path, berlin("2026-03-02T09:00"))


def kill(_: InboundMessage) -> None:
    raise Killed


def refuse(_: InboundMessage) -> None:
    raise StorageError("the journal", "no space")


def fine(_: InboundMessage) -> None:
    """Do nothing."""


async def test_a_job_runs_at_its_times_with_what_the_agent_needs_to_know(kit: CronKit) -> None:
    job = await kit.add("every 30m", "Water the plants\n[and] the fern")
    async with kit.open():
        await kit.wait(29)
        assert kit.inbox.messages == []
        await kit.wait(31)
    first, second = kit.inbox.messages
    assert kit.inbox.times() == ["02 09:30+0100", "02 10:00+0100"]
    assert first == InboundMessage(
        "telegram",
        "7",
        "nanobot",
        f"[scheduled job {job.id} (Water the plants (and) the fern), every 30m;"
        " made on 2026-03-02 by telegram:7; due Mon 2026-03-02 09:30 +01:00]\n"
        "Water the plants\n[and] the fern\n\n"
        "[Nobody is here to be asked. Your answer goes to the chat that this was scheduled in:"
        " write what should be said there, and nothing else. If nothing is to be said, answer"
        " exactly [silent]]",
        f"cron:{job.id}:2026-03-02T08:30:00+00:00",
        berlin("2026-03-02T09:30").now(),
        session_override=f"cron:{job.id}",
        sender_name="Water the plants [and] the fern",
        origin=Origin("job", "owner", job.id, mark="nanobot"),
    )
    assert second.timestamp == berlin("2026-03-02T10:00").now()


async def test_a_job_speaks_where_it_was_made_with_the_taint_that_it_was_made_with(
    kit: CronKit,
) -> None:
    topic = Address("telegram", "-100", "3")
    group = replace(HERE, address=topic, scope="groups/telegram_-100", origins=("tool:x",))
    job = await kit.add("in 5m", place=group)
    async with kit.open():
        await kit.wait(5)
    (message,) = kit.inbox.messages
    assert (message.chat_id, message.thread_id, message.is_group) == ("-100", "3", True)
    assert (message.origin.scope, message.origin.mark) == ("groups/telegram_-100", f"job:{job.id}")
    assert await kit.jobs() == []  # once is once


@pytest.mark.parametrize(
    ("start", "schedule", "expected"),
    [
        ("2026-03-29T01:00", "30 2 * * *", ["29 03:00+0200"]),  # 2:30 does not come
        ("2026-03-29T01:00", "0 * * * *", ["29 03:00+0200", "29 04:00+0200", "29 05:00+0200"]),
        ("2026-10-25T01:00", "30 2 * * *", ["25 02:30+0200"]),  # 2:30 comes twice
        ("2026-10-25T01:00", "0 * * * *", ["25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
        ("2026-10-25T01:00", "every 90m", ["25 02:30+0200", "25 03:00+0100"]),
    ],
)
async def test_the_change_of_clocks_neither_skips_nor_repeats(
    tmp_path: Path, start: str, schedule: str, expected: list[str]
) -> None:
    kit = CronKit(tmp_path, berlin(start))
    await kit.add(schedule)
    async with kit.open():
        await kit.wait(180)
    assert kit.inbox.times() == expected


async def test_a_clock_that_is_set_forward_makes_one_run_of_what_it_skipped(kit: CronKit) -> None:
    await kit.add("0 * * * *")
    await kit.add("at 2026-03-02T12:30")
    async with kit.open():
        kit.clock.jump(5 * 3_600 + 600)
        await kit.wait(60)
    assert kit.inbox.times() == ["02 10:00+0100", "02 12:30+0100", "02 15:00+0100"]
    hourly, once, on_time = (message.content for message in kit.inbox.messages)
    assert "due Mon 2026-03-02 10:00 +01:00; it is now Mon 2026-03-02 14:1" in hourly
    assert ", so this is late and covers all times missed until now]" in hourly
    assert "; it is now Mon 2026-03-02 14:1" in once
    assert "missed" not in once
    assert "15:00 +01:00]" in on_time


async def test_a_clock_that_is_set_back_repeats_nothing_and_silences_nobody(
    kit: CronKit,
) -> None:
    await kit.add("*/30 * * * *")
    async with kit.open():
        await kit.wait(61)
        kit.clock.jump(-3_600)
        await kit.wait(60)
        assert kit.inbox.times() == ["02 09:30+0100", "02 10:00+0100"]
        await kit.wait(35)
        assert kit.inbox.times()[2:] == ["02 10:30+0100"]
        kit.clock.jump(86_400 * 365)
        await kit.wait(2)
        kit.clock.jump(-86_400 * 365)
        await kit.wait(60)
    # Due times that ran a year ahead do not run again.
    assert kit.inbox.times()[3:] == ["02 11:00+0100", "02 11:30+0100"]
    assert len(kit.inbox.offered) == 5  # the inbox had nothing to drop


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_kill_around_the_effect_neither_loses_nor_repeats_a_run(
    kit: CronKit, moment: str
) -> None:
    await kit.add("0 * * * *")
    await kit.add("at 2026-03-02T10:00")
    kit.clock.jump(3_600)
    for _ in range(2):
        setattr(kit.inbox, moment, kill)
        await kit.dies()
        setattr(kit.inbox, moment, fine)
        kit.start()
    kit.clock.jump(7_200)  # it was off for a while
    async with kit.open():
        await kit.wait(60)
    ids = [message.event_id for message in kit.inbox.messages]
    assert kit.inbox.times() == [
        "02 10:00+0100", "02 10:00+0100", "02 11:00+0100", "02 13:00+0100",
    ]  # fmt: skip
    assert len(ids) == len(set(ids))
    assert "covers all times missed" in kit.inbox.messages[2].content
    assert [job.schedule.text for job in await kit.jobs()] == ["0 * * * *"]


async def test_the_journal_drops_a_run_that_it_has(tmp_path: Path) -> None:
    clock = berlin("2026-03-02T09:00")
    kit = CronKit(tmp_path, clock)
    await kit.add("every 1h")
    clock.jump(3_600)
    journal = SqliteJournal(tmp_path / "journal.db", clock)
    await journal.open()
    new: list[int] = []

    async def publish(message: InboundMessage) -> None:
        new.append(len(await journal.receive(message.channel, (message,))))
        if len(new) == 1:
            raise Killed

    for _ in range(2):
        kit.service = CronService(
            JobStore(kit.state),
            publish,
            clock,
            remind=publish,
            busy=kit.is_busy,
            is_wanted=lambda _, __: True,
        )
        if not new:
            await kit.dies()
            continue
        async with kit.open():
            await kit.wait(60)
    await journal.close()
    assert new == [1, 0, 1]


async def test_what_cannot_be_stored_runs_once_it_can(kit: CronKit) -> None:
    await kit.add("at 2026-03-02T09:10")
    await kit.add("at 2026-03-02T09:20", "Other")
    kit.inbox.before = refuse
    async with kit.open():
        await kit.wait(30)
        assert kit.inbox.messages == []
        kit.inbox.before = fine
        await kit.wait(2)
    assert kit.inbox.times() == ["02 09:10+0100", "02 09:20+0100"]


async def test_one_broken_job_stops_no_other(kit: CronKit) -> None:
    await kit.add("every 10m", "bad")
    await kit.add("every 10m", "good")

    def choke(message: InboundMessage) -> None:
        if "bad" in message.content:
            raise RuntimeError

    kit.inbox.before = choke
    async with kit.open():
        await kit.wait(20)
    assert len(kit.inbox.messages) == 2


async def test_while_the_last_run_has_not_ended_due_times_add_up_to_one(kit: CronKit) -> None:
    job = await kit.add("every 10m")
    async with kit.open():
        await kit.wait(10)
        kit.busy.add(job.session_key)
        await kit.wait(35)
        kit.busy.clear()
        kit.service.wake()
        await kit.wait(1)
    assert kit.inbox.times() == ["02 09:10+0100", "02 09:20+0100"]
    assert "covers all times missed" in kit.inbox.messages[1].content


async def test_a_file_that_does_not_parse_is_kept_and_the_service_goes_on(kit: CronKit) -> None:
    kit.state.put("jobs", b'{"version": 1, "jobs": [')
    async with kit.open():
        await kit.wait(1)
        assert "jobs.json.broken-1" in kit.service.problem
        await kit.add("in 5m")
        await kit.wait(5)
    assert len(kit.inbox.messages) == 1
    assert kit.state.aside == {"jobs.json.broken-1": b'{"version": 1, "jobs": ['}


async def test_a_job_that_is_added_or_removed_counts_at_once(kit: CronKit) -> None:
    async with kit.open():
        await kit.wait(0.5)
        soon = await kit.add("in 10s")
        gone = await kit.add("in 11s")
        await kit.service.remove(gone.id, "owner")
        await kit.wait(0.2)
    assert [message.origin.job for message in kit.inbox.messages] == [soon.id]


async def test_a_paused_job_rests_and_goes_on_from_there(kit: CronKit) -> None:
    job = await kit.add("every 10m")
    once = await kit.add("at 2026-03-02T09:05")
    async with kit.open():
        await kit.service.pause(job.id, "owner")
        await kit.service.pause(once.id, "owner")
        await kit.wait(35)
        await kit.service.resume(job.id, "owner")
        with pytest.raises(NanobotError, match="passed"):
            await kit.service.resume(once.id, "owner")
        await kit.wait(10)
    assert kit.inbox.times() == ["02 09:45+0100"]


async def test_running_a_job_now_leaves_its_schedule_alone(kit: CronKit) -> None:
    job = await kit.add("every 1h")
    for _ in range(2):
        await kit.service.run_now(job.id.upper(), "owner", "one wish")
    await kit.service.run_now(job.id, "owner")
    async with kit.open():
        await kit.wait(60)
    ids = [message.event_id for message in kit.inbox.messages]
    assert ids == [
        f"cron:{job.id}:now:one wish",
        f"cron:{job.id}:now:2026-03-02T08:00:00+00:00",
        f"cron:{job.id}:2026-03-02T09:00:00+00:00",
    ]


async def test_jobs_of_another_scope_do_not_exist_and_each_scope_has_room_for_so_many(
    kit: CronKit,
) -> None:
    job = await kit.add("every 1h")
    service = kit.service
    assert await service.jobs("people/telegram_8") == []
    for change in (service.remove, service.pause, service.resume, service.run_now):
        with pytest.raises(NanobotError, match="no job"):
            await change(job.id, "people/telegram_8")
    more = [replace(job, id=str(number)) for number in range(MOST_JOBS - 1)]
    JobStore(kit.state).change(lambda _: {one.id: one for one in (job, *more)})
    with pytest.raises(NanobotError, match=str(MOST_JOBS)):
        await kit.add("every 1h")
    await kit.add("every 1h", place=replace(HERE, scope="people/telegram_8"))


@pytest.mark.parametrize("schedule", ["every 59m", "*/30 * * * *", "0,59 8 1 1 *", "* 8 * * *"])
async def test_others_have_nothing_run_more_than_hourly(kit: CronKit, schedule: str) -> None:
    with pytest.raises(NanobotError, match="an hour apart"):
        await kit.add(schedule, place=BOBS)
    await kit.add(schedule)


async def test_others_have_few_jobs(kit: CronKit) -> None:
    for schedule in ["every 1h", "30 * * * *", "0 8,9 * * *", "in 5m", "in 6m"][:MOST_OF_OTHERS]:
        await kit.add(schedule, place=BOBS)
    with pytest.raises(NanobotError, match=f"{MOST_OF_OTHERS} jobs"):
        await kit.add("every 1h", place=BOBS)


async def test_a_job_of_people_who_may_not_talk_any_more_is_paused(kit: CronKit) -> None:
    kit.revoked = {"telegram:7", "telegram:8"}  # the owner's own jobs run all the same
    mine, bobs = await kit.add("every 1h"), await kit.add("every 1h", place=BOBS)
    async with kit.open():
        await kit.wait(130)
    assert [message.origin.job for message in kit.inbox.messages] == [mine.id, mine.id]
    paused = await kit.service.find(bobs.id, BOBS.scope)
    assert (paused.enabled, paused.begun) == (False, None)
    with pytest.raises(NanobotError, match="have access"):
        await kit.service.run_now(bobs.id, "")


async def test_a_run_that_had_begun_is_not_published_to_who_was_revoked_meanwhile(
    kit: CronKit,
) -> None:
    await kit.add("every 1h", place=BOBS)
    kit.inbox.before = kill
    await kit.clock.advance(3_600)
    await kit.dies()
    kit.inbox.before, kit.revoked = fine, {"telegram:8"}
    kit.start()
    async with kit.open():
        await kit.wait(1)
    assert kit.inbox.messages == []


async def test_a_reminder_is_sent_as_it_is_and_runs_no_model(kit: CronKit) -> None:
    once = await kit.add("in 20m", "Buy milk", reminder=True)
    await kit.add("every 1h", "Stretch", reminder=True)
    async with kit.open():
        await kit.wait(61)
    assert kit.inbox.messages == []
    assert [message.content for message in kit.reminded.messages] == [
        "⏰ Buy milk",
        "⏰ Stretch",
    ]
    assert kit.reminded.messages[0].event_id == f"cron:{once.id}:2026-03-02T08:20:00+00:00"
    assert [job.message for job in await kit.jobs()] == ["Stretch"]


async def test_a_reminder_that_comes_late_says_when_it_was_due(kit: CronKit) -> None:
    await kit.add("in 20m", "Buy milk", reminder=True)
    await kit.clock.advance(7_200)
    async with kit.open():
        await kit.wait(1)
    (message,) = kit.reminded.messages
    assert message.content.startswith(
        "⏰ Buy milk\n\n(due Mon 2026-03-02 09:20 +01:00; it is now Mon"
    )
