"""The operations over the audit log and the log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nanobot.gateway.operations import audit_records, log_lines
from nanobot.logs import LOG_FILE, Level, LogFile, LogLine
from nanobot.security.audit import FILE, AuditLog
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock


async def test_the_audit_log_is_paged_from_its_end(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / FILE, Redactor(), FakeClock())
    for number in range(5):
        audit.write({"tool": "a" if number % 2 else "b", "session": "fake:1", "n": number})
    first: Any = audit_records(tmp_path, {"limit": 2})
    assert ([one["n"] for one in first["records"]], first["more"]) == ([4, 3], True)
    rest: Any = audit_records(tmp_path, {"limit": 3, "offset": 2})
    assert ([one["n"] for one in rest["records"]], rest["more"]) == ([2, 1, 0], False)
    one: Any = audit_records(tmp_path, {"tool": "a"})
    assert [record["n"] for record in one["records"]] == [3, 1]


async def test_the_log_goes_on_where_an_answer_ended(tmp_path: Path) -> None:
    log = LogFile(tmp_path / LOG_FILE, 400, 3)

    def put(level: Level, message: str) -> None:
        log.put(LogLine("2026-03-01T10:00:00", level, "here:1", message, "t1"))

    async def tail_log(**wanted: object) -> tuple[list[str], str]:
        found: Any = await asyncio.to_thread(log_lines, tmp_path, wanted)
        return [line["message"] for line in found["lines"]], found["position"]

    assert (await tail_log())[0] == []
    put("info", "one")
    put("debug", "two")
    lines, position = await tail_log(level="info")
    assert lines == ["one"]
    for number in range(6):  # which moves the file on
        put("info", f"more {number}")
    lines, position = await tail_log(after=position)
    assert lines == [f"more {number}" for number in range(6)]
    assert (await tail_log(after=position))[0] == []
    assert (await tail_log(after="nonsense", limit=1))[0] == ["more 5"]
