"""The stored jobs: an unreadable document is never overwritten."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from nanobot.cron.job import Job, Jobs, JobStore, Run
from nanobot.cron.schedule import parse
from tests.doubles.state import MemoryState

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
JOB = Job(
    "j1",
    "Water",
    parse("every 2h"),
    "",
    "m",
    "cli",
    "d",
    "",
    "owner",
    "u",
    NOW,
    NOW,
    origins=(),
    enabled=True,
    runs=(),
)
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
    begun=Run(NOW + timedelta(days=2), NOW + timedelta(days=3)),
)


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


def put(state: MemoryState, *jobs: Job) -> None:
    JobStore(state).change(lambda stored: {**stored, **{job.id: job for job in jobs}})


def test_jobs_come_back_as_they_were(state: MemoryState) -> None:
    put(state, JOB, FULL)
    assert JobStore(state).load() == {"j1": JOB, "j2": FULL}
    assert JobStore(state).problem == ""


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
    assert store.load() == {}
    store.change(lambda jobs: {**jobs, JOB.id: JOB})
    assert state.aside == {"jobs.json.broken-1": content}
    assert "jobs.json.broken-1" in store.problem
    assert JobStore(state).load() == {"j1": JOB}


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "whenever"},
        {"zone": "Mars/Olympus"},
        {"after": "yesterday"},
        {"after": "2026-03-02T09:00:00"},
        {"begun": {"due": 1}},
        {"id": ""},
        {"id": "j1"},
        {"origins": None},
    ],
)
def test_a_document_with_a_job_that_is_not_understood_is_kept_and_not_used(
    state: MemoryState, change: dict[str, object]
) -> None:
    put(state, JOB, FULL)
    top = json.loads(state.text("jobs"))
    top["jobs"][1] |= change
    if change == {"origins": None}:
        del top["jobs"][1]["origins"]
    content = json.dumps(top).encode()
    state.put("jobs", content)
    store = JobStore(state)
    assert store.load() == {}
    assert state.aside == {"jobs.json.broken-1": content}
    assert "No jobs will run" in store.problem


def test_a_moment_that_was_written_by_hand_names_the_same_run(state: MemoryState) -> None:
    """In another zone it would be published twice."""
    put(state, FULL)
    content = state.text("jobs").replace("09:00:00+00:00", "11:00:00+02:00")
    assert "+00:00" not in content
    state.put("jobs", content)
    (job,) = JobStore(state).load().values()
    assert job == FULL
    assert job.begun is not None
    assert job.begun.event == "2026-03-04T09:00:00+00:00"


def test_a_document_of_before_is_read(state: MemoryState) -> None:
    """Runs counted missed times, and jobs had a ceiling."""
    put(state, FULL)
    top = json.loads(state.text("jobs"))
    top["jobs"][0]["begun"]["missed"] = 4
    top["jobs"][0]["ceiling"] = "2027-03-02T09:00:00+00:00"
    state.put("jobs", json.dumps(top))
    assert JobStore(state).load() == {"j2": FULL}


def test_what_somebody_writes_meanwhile_is_read_before_anything_is_written(
    state: MemoryState,
) -> None:
    store = JobStore(state)
    put(state, JOB)
    other = replace(JOB, id="j9")

    def slow(jobs: Jobs) -> Jobs:
        if "j9" not in jobs:
            put(state, other)
        return {**jobs, "j1": replace(jobs["j1"], name="Renamed")}

    assert [job.name for job in store.change(slow).values()] == ["Renamed", "Water"]
    state.put("jobs", state.text("jobs").replace("Renamed", "By hand"))
    assert [job.name for job in store.load().values()] == ["By hand", "Water"]
    state.put("jobs", b"{ half")
    assert store.change(lambda jobs: {**jobs, FULL.id: FULL})["j2"] == FULL
    assert state.aside == {"jobs.json.broken-1": b"{ half"}
