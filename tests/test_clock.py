"""The system's time zone is read with its rules, so that schedules know its clock changes."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import pytest

from nanobot.clock import SystemClock, system_zone, system_zone_name

SUMMER, WINTER = (datetime(2026, month, 1, tzinfo=UTC) for month in (7, 1))
BERLIN = (timedelta(hours=2), timedelta(hours=1))


def rules_of(name: str) -> Path:
    return next(file for folder in TZPATH if (file := Path(folder, name)).is_file())


def offsets(environ: dict[str, str], etc: Path) -> tuple[timedelta | None, timedelta | None]:
    zone = system_zone(environ, etc)
    assert zone is not None
    return SUMMER.astimezone(zone).utcoffset(), WINTER.astimezone(zone).utcoffset()


def test_the_name_is_told_by_the_environment_or_by_a_file(tmp_path: Path) -> None:
    assert system_zone_name({}, tmp_path) == ""
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert system_zone_name({}, tmp_path) == "Europe/Berlin"
    assert system_zone_name({"TZ": ":America/Lima"}, tmp_path) == "America/Lima"
    assert system_zone_name({"TZ": "../etc/passwd"}, tmp_path) == ""


def test_a_zone_knows_summer_and_winter(tmp_path: Path) -> None:
    assert offsets({"TZ": "Europe/Berlin"}, tmp_path) == BERLIN
    (tmp_path / "localtime").symlink_to(rules_of("Europe/Berlin"))
    assert offsets({}, tmp_path) == BERLIN


def test_a_copied_file_without_a_name_does_as_well(tmp_path: Path) -> None:
    shutil.copy(rules_of("Europe/Berlin"), tmp_path / "localtime")
    assert offsets({}, tmp_path) == BERLIN
    assert system_zone_name({}, tmp_path) == ""


def test_what_is_neither_a_name_nor_a_file_of_rules_gives_no_zone(tmp_path: Path) -> None:
    assert system_zone({"TZ": "CET-1CEST"}, tmp_path) is None
    assert system_zone({}, tmp_path) is None
    (tmp_path / "localtime").write_text("nonsense")
    assert system_zone({}, tmp_path) is None


def test_the_clock_goes_by_the_systems_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert SystemClock().now().tzinfo == ZoneInfo("Europe/Berlin")
    monkeypatch.setenv("TZ", "CET-1CEST")  # the C library knows more than we do
    assert SystemClock().now().utcoffset() is not None
    assert SystemClock("Asia/Tokyo").now().tzinfo == ZoneInfo("Asia/Tokyo")
