"""Every page answers malformed parameters with a page or a readable error, and never fails."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from loguru import logger

from nanobot_web.channel import routes
from tests.channels.web.support import Visit, serving

pytestmark = pytest.mark.campaign

MALFORMED = (
    *("", "0", "-1", "x", "1.5", "9" * 15, "9" * 5_000, "٣", "²", "NaN", "\x00", "\ud83d", "é"),
    *("a\r\nb", "../../etc/passwd", "[", '{"a": 1}', "null", "%", "a" * 5_000, "2026-02-30"),
    *("owner", "telegram:9", "web:0123456789ab", "people/telegram_7"),
)
FORM = "application/x-www-form-urlencoded"
ENTRY = {
    "cursor": 1, "timestamp": "2026-03-10T14:23:00+01:00", "type": "consolidation",
    "session": "cli:long", "range": [1, 4], "summary": "[2026-03-10 14:23] We planned it.",
    "key_facts": ["The trip is in June"], "operations": [], "origin": [],
}  # fmt: skip
PEOPLE = {"enabled": False, "token": "1:" + "x" * 35, "allow_from": ["7"]}
CONFIG = {"channels": {"web": {"enabled": True}, "telegram": PEOPLE}}

_NAME = re.compile(r"""(?:query|number|form\.get)\(\s*["'](\w+)["']""")
_ELSEWHERE = ("/live", "/settings/restart", "/health/backup")
"""A stream, the end of the gateway, and an action that makes a file each time."""


def names_of(method: str, path: str) -> Sequence[str]:
    """Return the parameters of a page."""
    module = sys.modules[routes()[method, path].handler.__module__]
    return sorted({*_NAME.findall(inspect.getsource(module)), "scope"})


def requests(share: int) -> Iterator[tuple[str, str, str]]:
    """Yield method, path and parameters: none, all malformed alike, one malformed, one twice. Each
    page gets one in `share` of the malformed values, different from the page before it."""
    for number, (method, path) in enumerate(sorted(routes())):
        if path in _ELSEWHERE:
            continue
        names = names_of(method, path)
        yield method, path, ""
        for malformed in map(_encode, MALFORMED[number % share :: share]):
            yield method, path, "&".join(f"{name}={malformed}" for name in names)
        for at, name in enumerate(names):
            yield method, path, f"{name}={_encode(MALFORMED[(number + 7 * at) % len(MALFORMED)])}"
            yield method, path, f"{name}=1&{name}=2&{name}[]=3&=&{name}"


def _encode(value: str) -> str:
    return quote_plus(value.encode("utf-8", "surrogatepass"))


def _furnish(home: Path) -> None:
    for folder in ("memory", "people/telegram_7/memory"):
        memory = home / "workspace" / folder
        memory.mkdir(parents=True)
        (memory / "MEMORY.md").write_text("# Memory\n\n- Ana was born on 3 May\n")
        (memory / "2026-11-20.md").write_text("# 2026-11-20\n\n- 10:00 the key is there\n")
        (memory / "history.jsonl").write_text(json.dumps(ENTRY) + "\n")


async def _ask(visit: Visit, method: str, path: str, given: str) -> tuple[int, str]:
    if method == "GET":
        return await visit.get(f"{path}?{given}")
    kinds = {"Content-Type": FORM, "Accept": "text/html"}
    return await visit.post(path, given.encode(), **kinds)


@pytest.mark.parametrize("account", ["", "telegram:7"], ids=["furnished", "with nothing yet"])
async def test_no_parameter_makes_a_page_fail(tmp_path: Path, account: str) -> None:
    wrong: list[object] = []
    if not account:
        _furnish(tmp_path)
    async with serving(tmp_path, config=CONFIG) as web, web.visit(account) as visit:
        if not account:
            await visit.say(await visit.new_chat(), "hello")
        failures = logger.add(lambda line: wrong.append(str(line)), level="ERROR")
        for method, path, given in requests(6 if account else 1):
            status, _ = await _ask(visit, method, path, given)
            if status >= 500:
                wrong.append((status, method, path, given[:80]))
        logger.remove(failures)
    assert wrong == []


async def test_a_version_of_no_versions_is_refused_in_words(tmp_path: Path) -> None:
    async with serving(tmp_path, config=CONFIG) as web, web.visit("telegram:7") as visit:
        for given in ("", "?n=x", "?n=", "?part=1"):
            status, text = await visit.get(f"/memory/version{given}")
            assert status == 404, given
            assert "There are no versions yet" in text
            assert "<html" in text
