"""The audit log records changes by the owner's operations, with the person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from nanobot.app.operations import record_calls
from nanobot.channel import Operation
from nanobot.errors import NanobotError
from nanobot.security.audit import AuditLog
from nanobot.security.redaction import Redactor
from nanobot.testing.clock import FakeClock

SECRET = "my diagnosis"


async def _forget(arguments: Mapping[str, object]) -> object:
    if arguments["text"] == "nothing":
        raise NanobotError(f"nothing says {SECRET}")
    return {"text": f"forgot {SECRET}", "versions": [4], "entries": [*range(30)], "found": True}


async def _show(_: Mapping[str, object]) -> object:
    return {"text": SECRET}


def _table(folder: Path) -> dict[str, Operation]:
    audit = AuditLog(folder / "audit.jsonl", Redactor(), FakeClock())
    return record_calls({"memory.forget": _forget, "memory.show": _show}, audit)


def _lines(folder: Path) -> list[dict[str, object]]:
    path = folder / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_change_is_recorded_by_numbers_and_never_by_its_text(tmp_path: Path) -> None:
    given = {"text": SECRET, "scope": "people/telegram_7", "by": "web:telegram:7"}
    assert (await _table(tmp_path)["memory.forget"](given)) == await _forget(given)
    (line,) = _lines(tmp_path)
    del line["time"]
    assert line == {
        "event": "changed",
        "outcome": "done",
        "tool": "memory.forget",
        "by": "web:telegram:7",
        "scope": "people/telegram_7",
        "changed": "versions 4, entries 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 20 more",
    }


async def test_what_failed_is_recorded_too_and_the_terminal_asks_where_nobody_else_does(
    tmp_path: Path,
) -> None:
    with pytest.raises(NanobotError):
        await _table(tmp_path)["memory.forget"]({"text": "nothing"})
    (line,) = _lines(tmp_path)
    assert (line["outcome"], line["by"]) == ("failed", "terminal")
    assert SECRET not in json.dumps(line)


async def test_looking_is_not_recorded(tmp_path: Path) -> None:
    await _table(tmp_path)["memory.show"]({})
    assert _lines(tmp_path) == []


async def test_nobody_makes_a_second_line_by_their_name(tmp_path: Path) -> None:
    await _table(tmp_path)["memory.forget"]({"text": "x", "by": 'web:x\n{"event": "forged"}'})
    (line,) = _lines(tmp_path)
    assert "\n" not in str(line["by"])
