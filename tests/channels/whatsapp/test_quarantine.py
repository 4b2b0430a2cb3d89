"""Whatever strangers send, what is kept of it is bounded, and the owner can find it again."""

from __future__ import annotations

from pathlib import Path

from loguru import logger

from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.quarantine import Quarantine


def test_the_same_is_kept_and_told_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, FakeClock())
    for _ in range(3):
        quarantine.keep({"text": "früher"}, "no id")
    kept = tmp_path / "quarantine.jsonl"
    assert len(kept.read_text().splitlines()) == 1
    assert kept.stat().st_mode & 0o777 == 0o600


def test_letters_are_escaped_once_as_whoever_searches_the_file_expects(tmp_path: Path) -> None:
    Quarantine(tmp_path, FakeClock()).keep({"text": "früher"}, "no id")
    assert r"fr\u00fcher" in (tmp_path / "quarantine.jsonl").read_text()
    assert r"\\u00fc" not in (tmp_path / "quarantine.jsonl").read_text()


def test_neither_file_nor_log_fills_up(tmp_path: Path) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING")
    quarantine = Quarantine(tmp_path, FakeClock())
    for number in range(60):
        quarantine.keep([number, "x" * 100_000], "no id")
    logger.remove(sink)
    assert 0 < len(lines) < 10
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2_200_000
