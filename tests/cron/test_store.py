"""The stored jobs: what was not understood is never overwritten."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from nanobot.cron.job import Job, Jobs, JobStore, Run
from nanobot.cron.schedule import parse
from tests.doubles.state import MemoryState

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
JOB = Job("j1", "Water", parse("every 2h"), "", "m", "cli", "d", "", "owner", "u", NOW, NOW)
FULL = replace(
    JOB,
    id="j2",
    schedule=parse("0 8 * * 1-5"),
    zone="Europe/Berlin",
    message='Line\nline “ä”, \udce9, "quoted"',
    thread_id="3",
    scope="groups/telegram_-100",
    origins=("tool:web_fetch", "person:8"),
    enabled=False,
    runs=(NOW, NOW + timedelta(days=1)),
    begun=Run(NOW + timedelta(days=2), NOW + timedelta(days=3), 4),
    ceiling=NOW + timedelta(days=400),
)


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


def test_jobs_come_back_as_they_were(state: MemoryState) -> None:
    JobStore(state).change(lambda jobs: jobs.adding(JOB).adding(FULL))
    assert JobStore(state).load() == Jobs((JOB, FULL))
    assert JobStore(state).problems == ""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version": 2, "jobs": []}',
        b'{"version": 1}',
        b'{"version": 1, "jobs": {}}',
        b"[" * 100_000,
        b'{"version": 1, "jobs": [' + b"[" * 2_000,
    ],
)
def test_a_document_that_does_not_parse_is_kept_as_it_is_under_another_name(
    state: MemoryState, content: bytes
) -> None:
    state.put("jobs", content)
    store = JobStore(state)
    assert store.load() == Jobs()
    store.change(lambda jobs: jobs.adding(JOB))
    assert state.aside == {"jobs.json.broken-1": content}
    assert "jobs.json.broken-1" in store.problems
    assert JobStore(state).load() == Jobs((JOB,))


def test_entries_and_fields_that_are_not_understood_stay(state: MemoryState) -> None:
    JobStore(state).change(lambda jobs: jobs.adding(JOB))
    top = json.loads(state.text("jobs"))
    good = top["jobs"][0] | {"color": {"of": "the future"}}
    strange = [
        good | {"id": "a", "schedule": "whenever"},
        good | {"id": "b", "zone": "Mars/Olympus"},
        good | {"id": "c", "after": "yesterday"},
        good | {"id": "c", "begun": {"due": 1}},
        good | {"message": "the same id again"},
        good | {"id": ""},
        {name: value for name, value in good.items() if name != "origins"} | {"id": "d"},
        {"kind": "webhook"},
        "?",
    ]
    state.put("jobs", json.dumps({"version": 1, "mood": [1], "jobs": [strange[0], good, *strange]}))
    store = JobStore(state)
    assert [job.id for job in store.load().jobs] == ["j1"]
    assert "Mars/Olympus" in store.problems
    store.change(lambda jobs: jobs.changing("j1", lambda job: replace(job, name="Other")))
    after = json.loads(state.text("jobs"))
    assert after["mood"] == [1]
    assert after["jobs"] == [good | {"name": "Other"}, strange[0], *strange]


def test_what_somebody_writes_meanwhile_is_read_before_anything_is_written(
    state: MemoryState,
) -> None:
    store = JobStore(state)
    store.change(lambda jobs: jobs.adding(JOB))
    other = replace(JOB, id="j9")

    def slow(jobs: Jobs) -> Jobs:
        if jobs.find("j9") is None:
            JobStore(state).change(lambda jobs: jobs.adding(other))
        return jobs.changing("j1", lambda job: replace(job, name="Renamed"))

    assert [job.name for job in store.change(slow).jobs] == ["Renamed", "Water"]
    state.put("jobs", state.text("jobs").replace("Renamed", "By hand"))
    assert [job.name for job in store.load().jobs] == ["By hand", "Water"]
    state.put("jobs", b"{ half")
    assert store.change(lambda jobs: jobs.adding(FULL)).find("j2") == FULL
    assert state.aside == {"jobs.json.broken-1": b"{ half"}
