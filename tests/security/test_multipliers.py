"""Every value that a request can multiply has a bound. `python -m bench.multipliers` measures how
long the event loop is blocked. These tests check the outcome of each request.

| entry point | multiplied value | bound |
|---|---|---|
| all JSON | values | `parsing.MOST_MARKS`; nested deeper than 64 is null |
| API | bytes; messages; parts; files | `MOST_MEGABYTES`, `_MESSAGES`, `_PARTS`, `_FILES` |
| API, MCP endpoint | bytes; characters of an argument | `_BODY_BYTES`; `_LONGEST` |
| page | bytes of a form; fields; pages open at once | `MAX_BODY`; aiohttp's 1,000; `MOST_PAGES` |
| webhooks | bytes, one and all together | `MAX_BODY`; `_MAX_HELD`, `_MAX_EXPECTED` |
| Telegram | values of an update | `ingest._MOST_VALUES` |
| WhatsApp, Cloud API | messages, statuses and others of a call | `payload._MOST_ITEMS` |
| WhatsApp, linked | bytes of a line; unconfirmed events | `MAX_LINE`; `WINDOW` |
| control socket | bytes of a line; requests at once | `MAX_FRAME`; `_MAX_RUNNING` |
| model | bytes of an answer | `response_body.MOST_BYTES` |
| MCP servers | bytes; values; tools; pages of them | `MOST_BYTES`, `_VALUES`, `_TOOLS`, `_PAGES` |
| search in memory | characters | `MOST_OF_FACT` |
| archive of a skill | bytes; files; levels | `MOST_UNPACKED`; `MOST_ENTRIES`; `_DEEPEST` |
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.multipliers import start_gateway
from bench.multipliers_requests import REQUESTS, Way
from nanobot.parsing import MOST_MARKS, TooManyValues, ValueCounter, parse_json
from nanobot.providers.dialect import Dialect
from nanobot.providers.dialogue import well_formed
from nanobot.providers.port import assistant_message, user_message
from nanobot.testing import ScriptedModel
from nanobot.testing.channel import FakeChannel
from tests.growth import assert_linear
from tests.support import running

pytestmark = pytest.mark.campaign

BY_NAME = {request.name: request for request in REQUESTS}

OUTCOMES = {
    "api messages: most": "413",
    "api parts: most": "413",
    "api images: as many as are let in": "413",
    "api values: most": "413",
    "api items: most": "413",
    "api 900 levels": "200",
    "api 2,000 messages of 14 kB": "200",
    "api a large text: halves": "413",
    "api mcp, batch": "400",
    "telegram entities: 1,000,000,000 at most": "200",
    "telegram lists in lists": "200",
    "whatsapp messages of nothing: most": "200",
    "whatsapp 10,000 messages": "200",
    "page fields": "413",
    "control {}: most": '{"ok":false,"error":"the request is not JSON: more than 300,',
    "control deep": '{"ok":false,"error":"the request is not JSON: more than 300,',
}
"""Webhooks answer 200 and set the call aside, because the platform would repeat it otherwise."""


async def test_no_door_takes_more_than_it_can_work_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with start_gateway(home) as stage:
        came = {name: await stage.send(BY_NAME[name].with_body()) for name in OUTCOMES}
        assert came == OUTCOMES
        # The loop runs, and no rejected request has become a message.
        assert await stage.send(BY_NAME["api 900 levels"].with_body()) == "200"
    kept = (home / "state" / "channels" / "whatsapp" / "quarantine.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in kept]
    assert "more than 1,000 items in one call" in reasons or "TooManyValues" in reasons


def test_the_requests_knock_at_every_door() -> None:
    assert {request.way for request in REQUESTS} == set(Way)
    assert len(BY_NAME) == len(REQUESTS)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "{}," * MOST_MARKS + "1]",
        "[" + '"",' * MOST_MARKS + "1]",
        "[" * (MOST_MARKS + 1),
        '"a",' * MOST_MARKS,
        '["' + "\\ud83d" * (MOST_MARKS + 1) + '"]',
        '["a\\\\",' + "1," * MOST_MARKS + "1]",
    ],
    ids=["objects", "texts", "levels", "no JSON", "halves", "behind an escape"],
)
def test_json_of_too_many_values_is_not_parsed(text: str) -> None:
    with pytest.raises(TooManyValues):
        parse_json(text)


@pytest.mark.parametrize("text", [", [{ " * MOST_MARKS, '\\" , ' * MOST_MARKS, "\\\\" * MOST_MARKS])
def test_what_stands_in_a_text_does_not_count(text: str) -> None:
    assert parse_json(json.dumps({"a": text})) == {"a": text}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_pieces_count_like_the_whole(size: int) -> None:
    body = rb'[{"a\\\",[{":"b\\"},"\n","\u00e9",[1,2,3]]'
    marks = 16
    for most, is_allowed in ((marks, True), (marks - 1, False)):
        counter = ValueCounter(most)
        try:
            for start in range(0, len(body), size):
                counter.feed(body[start : start + size])
        except TooManyValues:
            assert not is_allowed
        else:
            assert is_allowed


@pytest.mark.parametrize("command", ["/forget", "/forget --erase", "/memory why"])
async def test_what_is_asked_about_is_no_longer_than_a_fact(tmp_path: Path, command: str) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert "text is too long" in await channel.ask(f"{command} {'word ' * 1_000}")


def test_messages_of_one_role_become_one_in_linear_time() -> None:
    def join(messages: int) -> object:
        said = [user_message("a few words") for _ in range(messages)]
        return well_formed([*said, assistant_message("hm"), *said], Dialect(strict_roles=True))

    assert_linear(join, 200)
