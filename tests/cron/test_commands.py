"""`/cron` in a chat, and the operations behind `nanobot cron`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.agent.loop import answer_of
from nanobot.bus.events import InboundMessage
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.cron.tool import CronCommand, CronOperations
from nanobot.errors import NanobotError
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.cron.support import HERE, CronKit, berlin

OWNER = InboundMessage("telegram", "7", "7", "", "e1", FakeClock().now())


@pytest.fixture
def kit(tmp_path: Path) -> CronKit:
    return CronKit(tmp_path, berlin("2026-03-02T09:00"))


async def types(kit: CronKit, text: str, scope: str = "owner", *, runs: bool = True) -> str:
    """Return the chat's answer."""
    registry = CommandRegistry()
    CronCommand(kit.service, kit.clock, runs=runs).register(registry)
    match = registry.find_call(replace(OWNER, content=text))
    assert match is not None
    session = await SessionManager(kit.folder, kit.clock).get_or_create("telegram:7")
    return (await answer_of(match[0], CommandCall(match[1], OWNER, session, scope, 1))).text


async def test_a_person_sees_and_changes_their_own_jobs_in_the_chat(kit: CronKit) -> None:
    assert await types(kit, "/cron") == "Nothing is scheduled."
    job = await kit.add("every 1h", "Stretch")
    line = f"- `{job.id}` Stretch: every 1h, next Mon 2026-03-02 10:00 +01:00, telegram:7"
    assert await types(kit, "/cron list") == line
    assert "is paused" in await types(kit, f"/cron pause `{job.id}`")
    assert "Stretch: every 1h, paused" in await types(kit, "/cron")
    assert "has been resumed: next Mon 2026-03-02 10:00" in await types(
        kit, f"/cron resume {job.id}"
    )
    for _ in range(2):  # the same message, should the command run again after a crash
        assert "is running now" in await types(kit, f"/cron run {job.id}")
    assert len(kit.inbox.messages) == 1
    assert await types(kit, "/cron", "people/telegram_8") == "Nothing is scheduled."
    assert "no job" in await types(kit, f"/cron remove {job.id}", "people/telegram_8")
    assert await types(kit, f"/cron remove {job.id}") == f"{job.id} (Stretch) has been removed."
    assert await kit.jobs() == []


@pytest.mark.parametrize("text", ["/cron explode 1", "/cron remove", "/cron add every 1h hello"])
async def test_what_is_no_use_of_the_command_shows_how_it_is_used(kit: CronKit, text: str) -> None:
    assert "remove ID" in await types(kit, text)


async def test_the_owner_is_told_of_a_broken_file_and_nobody_else(kit: CronKit) -> None:
    kit.state.put("jobs", "{")
    assert "jobs.json.broken-1" in await types(kit, "/cron")
    assert await types(kit, "/cron", "people/telegram_8") == "Nothing is scheduled."


@dataclass
class Chats:
    """The owner's latest chat is the second. The first is a group's."""

    known: list[str] = field(default_factory=lambda: ["telegram:-100", "telegram:7:3"])

    def addresses(self) -> Iterator[str]:
        return iter(self.known)

    def scope_of(self, address: str) -> str:
        return "groups/telegram_-100" if "-100" in address else "owner"


@pytest.mark.parametrize(
    ("chat", "known", "expected"),
    [
        ("", ["telegram:-100", "telegram:7:3"], ("telegram:7:3", "owner")),
        ("", ["telegram:-100"], ("cli:direct", "owner")),
        ("telegram:-100", ["telegram:-100"], ("telegram:-100", "groups/telegram_-100")),
        ("cli:work", [], ("cli:work", "owner")),
    ],
)
async def test_a_job_of_the_command_line_speaks_where_it_is_told_with_that_chats_scope(
    kit: CronKit, chat: str, known: list[str], expected: tuple[str, str]
) -> None:
    operations = CronOperations(kit.service, Chats(known), kit.clock)
    given = {"schedule": "0 8 * * *", "message": "News", "zone": "UTC", "chat": chat}
    added = await operations.add(given)
    assert (added["chat"], added["scope"]) == expected
    assert added["next"] == "2026-03-03T09:00:00+01:00"  # in the zone of the reader
    assert "Tue 2026-03-03 09:00 +01:00" in str(added["text"])
    assert f"in {expected[0]}." in str(added["text"])


async def test_of_many_chats_the_last_ones_are_offered_and_each_can_be_named(
    kit: CronKit,
) -> None:
    known = [f"telegram:{number}" for number in range(500)]
    operations = CronOperations(kit.service, Chats(known), kit.clock)
    assert (await operations.list({}))["chats"] == known[:100]
    added = await operations.add({"schedule": "every 1h", "message": "News", "chat": known[-1]})
    assert added["chat"] == known[-1]


async def test_a_text_is_a_reminder_and_a_task_is_asked_for_by_name(kit: CronKit) -> None:
    operations = CronOperations(kit.service, Chats(), kit.clock)
    oven = await operations.add({"schedule": "in  20m", "message": "the oven"})
    assert (oven["reminder"], oven["words"]) == (True, "“in  20m”")
    assert str(oven["text"]).startswith(f"Reminder {oven['id']} is scheduled: “in  20m”, next Mon")
    news = await operations.add({"schedule": "weekdays at 8", "message": "News", "task": True})
    assert (news["reminder"], news["words"]) == (False, "weekdays at 8")
    assert str(news["text"]).startswith(f"Task {news['id']} is scheduled: weekdays at 8, next Tue")


async def test_lists_show_what_was_said_and_times_in_the_zone_of_the_reader(
    kit: CronKit,
) -> None:
    operations = CronOperations(kit.service, Chats(), kit.clock)
    tokyo = {"schedule": "Every day at 8", "message": "Tokyo opens", "zone": "Asia/Tokyo"}
    job = await operations.add(tokyo)
    kit.start()  # from the stored state
    jobs = (await CronOperations(kit.service, Chats(), kit.clock).list({}))["jobs"]
    assert isinstance(jobs, list)
    listed = jobs[0]
    assert listed == {key: value for key, value in job.items() if key != "text"}
    assert (listed["schedule"], listed["words"]) == ("0 8 * * *", "Every day at 8 (Asia/Tokyo)")
    assert listed["next"] == "2026-03-03T00:00:00+01:00"


async def test_the_operations_reach_the_jobs_of_all(kit: CronKit) -> None:
    job = await kit.add("every 1h", "News", replace(HERE, scope="people/telegram_8"))
    table = CronOperations(kit.service, Chats(), kit.clock, runs=False).table()
    assert await table["cron.list"]({}) == {
        "jobs": [
            {
                "id": job.id,
                "name": "News",
                "typed": "",
                "schedule": "every 1h",
                "zone": "",
                "message": "News",
                "reminder": False,
                "model": "",
                "chat": "telegram:7",
                "scope": "people/telegram_8",
                "enabled": True,
                "next": "2026-03-02T10:00:00+01:00",
                "last": None,
                "runs": [],
                "session": f"cron:{job.id}",
                "words": "every 1h",
                "created_by": "7",
                "created_at": "2026-03-02T09:00:00+01:00",
                "origins": [],
                "sources": [],
            }
        ],
        "chats": ["telegram:-100", "telegram:7:3"],
        "trouble": "",
    }
    for name in ("pause", "resume", "run", "remove"):
        changed = await table[f"cron.{name}"]({"id": job.id})
        assert isinstance(changed, dict)
        assert job.id in changed["text"]
    assert len(kit.inbox.messages) == 1
    assert await kit.jobs() == []


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("cron.add", {"schedule": "every 1h"}),
        ("cron.add", {"schedule": "every 1h", "message": 7}),
        ("cron.add", {"schedule": "every 1h", "message": "x", "chat": "telegram:9"}),
        ("cron.add", {"schedule": "every 1h", "message": "x", "chat": "nowhere"}),
        ("cron.add", {"schedule": "every 1h", "message": "x", "model": "small"}),
        ("cron.add", {"schedule": "every 1h", "message": "x", "zone": "../../etc/passwd"}),
        ("cron.remove", {}),
        ("cron.run", {"id": "nope"}),
    ],
)
async def test_operations_refuse_what_makes_no_sense(
    kit: CronKit, operation: str, given: dict[str, object]
) -> None:
    table = CronOperations(kit.service, Chats(), kit.clock).table()
    with pytest.raises(NanobotError):
        await table[operation](given)
    assert await kit.jobs() == []


@pytest.mark.parametrize(
    ("typed", "schedule", "text"),
    [
        ("in 20m turn it off", "at 2026-03-02T09:20:00+01:00", "turn it off"),
        ("in 1h 30m call Ana", "at 2026-03-02T10:30:00+01:00", "call Ana"),
        ("IN 2D 5 eggs", "at 2026-03-04T09:00:00+01:00", "5 eggs"),
        ("every 1w water\nthe plants", "every 1w", "water\nthe plants"),
        ("at 2026-12-01T09:00 call", "at 2026-12-01T09:00", "call"),
        ("at 2026-12-01 09:00 call", "at 2026-12-01 09:00", "call"),
        ("0 8 * * 1-5 stand up", "0 8 * * 1-5", "stand up"),
        ("in 5 minutes call", "at 2026-03-02T09:05:00+01:00", "call"),
        ("weekdays at 7 5 pushups", "0 7 * * 1-5", "5 pushups"),
        ("*/5 8-10 1,15 * mon 3 things", "*/5 8-10 1,15 * mon", "3 things"),
    ],
)
async def test_a_typed_reminder_is_made_of_what_was_typed_and_asks_no_model(
    kit: CronKit, typed: str, schedule: str, text: str
) -> None:
    assert text in await types(kit, f"/remind {typed}")
    (job,) = await kit.jobs()
    assert (job.schedule.text, job.message, job.reminder) == (schedule, text, True)
    assert (job.address.key, job.scope, job.created_by) == ("telegram:7", "owner", "7")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "/remind in 20 minutes"),
        ("milk", "/remind in 20 minutes"),
        ("in 20m", "/remind in 20 minutes"),
        ("tomorrow 9:00", "/remind in 20 minutes"),
        ("tomorrow call Ana", "needs a time of day"),
        ("every day pills", "needs a time of day"),
    ],
)
async def test_a_reminder_without_a_time_or_a_text_shows_how_it_is_typed(
    kit: CronKit, typed: str, said: str
) -> None:
    assert said in await types(kit, f"/remind {typed}")
    assert await kit.jobs() == []


async def test_no_reminder_is_promised_where_nothing_is_run(kit: CronKit) -> None:
    assert "set `cron.enabled` to true" in await types(kit, "/remind in 20m tea", runs=False)
    assert await kit.jobs() == []


async def test_a_typed_reminder_says_what_is_wrong_with_its_time(kit: CronKit) -> None:
    assert "has passed" in await types(kit, "/remind at 2026-01-01T09:00 call Ana")
