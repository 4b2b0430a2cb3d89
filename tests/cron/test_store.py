"""The file of jobs: what was not understood is never overwritten."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nanobot.cron.job import Job, Jobs, JobStore, Run
from nanobot.cron.schedule import parse
from nanobot.errors import StorageError

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
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.json"


def test_jobs_come_back_as_they_were_and_only_the_owner_reads_them(path: Path) -> None:
    JobStore(path).change(lambda jobs: jobs.adding(JOB).adding(FULL))
    assert JobStore(path).load() == Jobs((JOB, FULL))
    assert path.stat().st_mode & 0o777 == 0o600
    assert JobStore(path).problems == ""


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
def test_a_file_that_does_not_parse_is_kept_as_it_is_under_another_name(
    path: Path, content: bytes
) -> None:
    path.with_name("jobs.json.broken-1").write_text("an earlier one")
    path.write_bytes(content)
    store = JobStore(path)
    assert store.load() == Jobs()
    store.change(lambda jobs: jobs.adding(JOB))
    assert path.with_name("jobs.json.broken-2").read_bytes() == content
    assert path.with_name("jobs.json.broken-1").read_text() == "an earlier one"
    assert "jobs.json.broken-2" in store.problems
    assert JobStore(path).load() == Jobs((JOB,))


def test_entries_and_fields_that_are_not_understood_stay(path: Path) -> None:
    JobStore(path).change(lambda jobs: jobs.adding(JOB))
    top = json.loads(path.read_text())
    good = top["jobs"][0] | {"color": {"of": "the future"}}
    strange = [
        good | {"id": "a", "schedule": "whenever"},
        good | {"id": "b", "zone": "Mars/Olympus"},
        good | {"id": "c", "after": "yesterday"},
        good | {"id": "c", "begun": {"due": 1}},
        good | {"message": "the same id again"},
        good | {"id": ""},
        {"kind": "webhook"},
        "?",
    ]
    path.write_text(json.dumps({"version": 1, "mood": [1], "jobs": [strange[0], good, *strange]}))
    store = JobStore(path)
    assert [job.id for job in store.load().jobs] == ["j1"]
    assert "Mars/Olympus" in store.problems
    store.change(lambda jobs: jobs.changing("j1", lambda job: replace(job, name="Other")))
    after = json.loads(path.read_text())
    assert after["mood"] == [1]
    assert after["jobs"] == [good | {"name": "Other"}, strange[0], *strange]


def test_what_somebody_writes_meanwhile_is_read_before_anything_is_written(path: Path) -> None:
    store = JobStore(path)
    store.change(lambda jobs: jobs.adding(JOB))
    other = replace(JOB, id="j9")

    def slow(jobs: Jobs) -> Jobs:
        if jobs.find("j9") is None:
            JobStore(path).change(lambda jobs: jobs.adding(other))
        return jobs.changing("j1", lambda job: replace(job, name="Renamed"))

    assert [job.name for job in store.change(slow).jobs] == ["Renamed", "Water"]
    path.write_text(path.read_text().replace("Renamed", "By hand"))
    assert [job.name for job in store.load().jobs] == ["By hand", "Water"]
    path.write_bytes(b"{ half")
    assert store.change(lambda jobs: jobs.adding(FULL)) == Jobs((FULL,))
    assert path.with_name("jobs.json.broken-1").read_bytes() == b"{ half"


def test_where_the_file_cannot_be_read_nothing_is_written(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text("{}")
    path.symlink_to(target)
    store = JobStore(path)
    for attempt in (store.load, lambda: store.change(lambda jobs: jobs.adding(JOB))):
        with pytest.raises(StorageError):
            attempt()
    assert target.read_text() == "{}"
    path.unlink()
    assert store.load() == Jobs()
