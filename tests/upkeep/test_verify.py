"""Errors in a backup: reported in terms that are still valid afterwards, and not changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.clock import SystemClock
from nanobot.upkeep.restore import restore, verify
from tests.upkeep.homes import back_up, build_home, write

CLOCK = SystemClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return build_home(tmp_path / "home")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.tar.gz"


@pytest.mark.parametrize(
    ("jobs", "trouble"),
    [
        ('{"version": 1, "jobs": [', "the jobs cannot be used: it is not JSON"),
        ('{"version": 1, "jobs": [7]}', "the jobs cannot be used: "),
    ],
)
def test_what_would_not_work_is_told_by_its_place_in_the_home_and_left_as_it_is(
    home: Path, file: Path, tmp_path: Path, jobs: str, trouble: str
) -> None:
    write(home / "state/jobs.json", jobs)
    back_up(home, file)
    restored = restore(file, tmp_path / "new", None, CLOCK)
    (told,) = restored.found.troubles
    assert told.startswith(trouble)
    assert verify(file, None, CLOCK).found.troubles == restored.found.troubles
    assert (tmp_path / "new/state/jobs.json").read_text() == jobs


def test_trouble_names_no_folder_that_is_gone(home: Path, file: Path, tmp_path: Path) -> None:
    write(home / "state/memory.git/HEAD", "ref: refs/heads/main\n")
    write(home / "state/memory.git/refs/heads/main", "nonsense\n")
    back_up(home, file)
    (told,) = verify(file, None, CLOCK).found.troubles
    assert told.startswith("cannot use state/memory.git: ")
    assert restore(file, tmp_path / "new", None, CLOCK).found.troubles == (told,)
