"""The stored input of strangers is bounded, and the owner can find it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot.channel.documents import Quarantine
from nanobot.testing.clock import FakeClock
from tests.channels.telegram.support import RecordingHost


def quarantine(folder: Path) -> Quarantine:
    return Quarantine("telegram", RecordingHost(folder, FakeClock()))


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    said: list[str] = []
    sink = logger.add(said.append, level="WARNING", format="{message}")
    yield said
    logger.remove(sink)


def test_the_same_is_kept_and_told_once_and_for_its_owner_alone(
    tmp_path: Path, warnings: list[str]
) -> None:
    aside = quarantine(tmp_path)
    for _ in range(3):
        aside.keep({"text": "früher"}, "no id")
    kept = tmp_path / "quarantine.jsonl"
    assert len(kept.read_text().splitlines()) == 1
    assert kept.stat().st_mode & 0o777 == 0o600
    words = "telegram: unreadable input is set aside (no id): quarantine.jsonl\n"
    assert warnings == [words]


def test_letters_stand_in_the_file_as_they_were_written(tmp_path: Path) -> None:
    quarantine(tmp_path).keep({"text": "früher"}, "no id")
    assert "früher" in (tmp_path / "quarantine.jsonl").read_text()
    assert r"\\u00fc" not in (tmp_path / "quarantine.jsonl").read_text()


def test_the_file_is_bounded(tmp_path: Path) -> None:
    aside = quarantine(tmp_path)
    for number in range(60):
        aside.keep([number, "x" * 100_000], "no id")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2_200_000


def test_where_there_is_no_space_that_is_said_and_nothing_raised(
    tmp_path: Path, warnings: list[str]
) -> None:
    (tmp_path / "quarantine.jsonl").mkdir()
    quarantine(tmp_path).keep({}, "no id")
    assert "cannot write" in warnings[-1]
