"""Status of a nanobot: the same for the command, `/health` and `/metrics`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.agent.hooks import TurnMetrics
from nanobot.bus.events import TurnEnded
from nanobot.bus.journal import Completion
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.gateway.channels import ChannelState
from nanobot.gateway.health import Concern, HealthMonitor
from nanobot.gateway.status import HealthEndpoint, RuntimeStatus, Status
from nanobot.gateway.webserver import WebServer
from nanobot.logs import LogCounter
from nanobot.origin import how_to_install
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background
from nanobot.testing import FakeClock
from tests.bus.support import end_turn, make_message, open_journal
from tests.gateway.test_webserver import Platform

REPORT = json.dumps(
    {
        "prompt_tokens": 3_000_000,
        "cached_tokens": 1_000_000,
        "completion_tokens": 9,
        "cost": 4_500_072,
    }
)


class StatusKit:
    """A home and its status, with or without a running gateway."""

    def __init__(self, home: Path, journal: SqliteJournal, clock: FakeClock) -> None:
        self.journal, self.clock = journal, clock
        self.channel = ChannelState("telegram", "running", who="@bot", heard_at=0.0, due=60.0)
        self.concern: Concern | None = None
        self.turn_metrics, self.sessions = (
            TurnMetrics(),
            SessionManager(home / "sessions", clock),
        )
        self.background = Background()
        self.counted = LogCounter()
        self.counted.errors, self.counted.warnings = 1, 4
        self.monitor = HealthMonitor(
            {"telegram": self.channel},
            journal,
            clock,
            self.background,
            (lambda: filter(None, (self.concern,)),),
        )
        self.live = RuntimeStatus(
            born=0.0,
            turns_running=lambda: 2,
            monitor=self.monitor,
            turn_metrics=self.turn_metrics,
            counted=self.counted,
        )
        self.running, self.idle = (
            Status(
                {"version": "1.2.3", "home": str(home), "provider": "openai", "model": "gpt-x"},
                journal,
                self.sessions,
                clock,
                live,
            )
            for live in (self.live, None)
        )

    async def work(self) -> None:
        """Store a finished turn, a failed one, and a pending message."""
        first, second = await self.journal.receive("fake", (make_message("m1"), make_message("m2")))
        await self.journal.receive("fake", (make_message("m3"),))
        for turn, entry in (("t1", first), ("t2", second)):
            self.journal.claim(turn, "fake:1", (entry.id,), at_once=True)
        await self.journal.complete(end_turn("t1", first, report=REPORT))
        failed = Completion("t2", "fake:1", (second.id,), "failed", report="{}")
        await self.journal.complete(failed)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[StatusKit]:
    clock = FakeClock()
    async with open_journal(tmp_path / "journal.db", clock) as journal:
        kit = StatusKit(tmp_path, journal, clock)
        yield kit
        await kit.background.drain(0.0)
        await kit.sessions.close()


async def test_it_says_what_runs_what_waits_and_what_it_took(
    kit: StatusKit, tmp_path: Path
) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "a.png").write_bytes(b"x" * 1_000)
    await kit.work()
    await kit.clock.advance(20)
    status = await kit.running.status({})
    assert (status["version"], status["uptime_seconds"]) == ("1.2.3", 20)
    assert status["turns_running"] == 2
    assert status["today"] == {
        "turns": {"done": 1, "failed": 1, "stopped": 0},
        "prompt_tokens": 3_000_000,
        "cached_tokens": 1_000_000,
        "completion_tokens": 9,
        "memory_tokens": 0,
        "cost": pytest.approx(4.500072),
    }
    assert status["queue"] == {
        "received": 1, "working": 0, "failed": 1, "outbox_pending": 0, "dead": 0, "put_off": 0,
    }  # fmt: skip
    assert status["channels"] == [
        {
            "name": "telegram",
            "state": "running",
            "detail": "",
            "who": "@bot",
            "heard_seconds": 20.0,
        }
    ]
    sizes, process = status["sizes"], status["process"]
    assert isinstance(sizes, dict)
    assert isinstance(process, dict)
    assert sizes["media"] == 1_000
    assert min(process.values()) > 0


async def test_yesterday_is_not_today(kit: StatusKit) -> None:
    await kit.work()
    kit.clock.jump(86_400)
    today = (await kit.idle.status({}))["today"]
    assert isinstance(today, dict)
    assert (today["turns"], today["prompt_tokens"]) == ({"done": 0, "failed": 0, "stopped": 0}, 0)


async def test_where_no_gateway_runs_the_files_tell_what_they_can(kit: StatusKit) -> None:
    await kit.work()
    status = await kit.idle.status({})
    assert (status["running"], status["pid"], status["channels"]) == (False, 0, [])
    assert status["health"] == {"state": "stopped", "concerns": []}
    assert isinstance(status["queue"], dict)
    assert status["queue"]["failed"] == 1


@pytest.mark.parametrize(
    ("concern", "due", "code", "state"),
    [
        (None, 60.0, 200, "ok"),
        (Concern("degraded", "the disk is nearly full", "Make room."), 60.0, 200, "degraded"),
        (None, 5.0, 503, "failing"),
    ],
)
async def test_health_over_http_is_the_health_that_status_has(
    kit: StatusKit, concern: Concern | None, due: float, code: int, state: str
) -> None:
    kit.concern, kit.channel.due = concern, due
    await kit.clock.advance(20)
    told = (await kit.running.status({}))["health"]
    answer = await request_as(kit, "/health")
    assert (answer[0], json.loads(answer[2])) == (code, told)
    assert isinstance(told, dict)
    assert told["state"] == state


@pytest.mark.parametrize(
    ("authorization", "code"),
    [("", 401), ("Bearer other", 401), ("Basic word", 401), ("Bearer word", 200)],
)
async def test_with_a_token_only_who_has_it_is_told(
    kit: StatusKit, authorization: str, code: int
) -> None:
    assert (await request_as(kit, "/health", "word", authorization))[0] == code
    assert (await request_as(kit, "/metrics", "word", authorization))[0] == code


@pytest.mark.parametrize("header", ["Via", "X-Forwarded-Proto", "CF-Connecting-IP", "Forwarded"])
async def test_by_a_proxy_nobody_is_told_without_a_token(kit: StatusKit, header: str) -> None:
    for path in ("/health", "/metrics"):
        assert (await request_as(kit, path, **{header: "x"}))[0] == 403
        assert (await request_as(kit, path, "word", "Bearer word", **{header: "x"}))[0] == 200


async def test_prometheus_gets_numbers(kit: StatusKit) -> None:
    await kit.work()
    ended = TurnEnded("fake", "1", "t1", ("m1",), "done", prompt_tokens=70, completion_tokens=5)
    kit.turn_metrics(ended)
    kit.channel.state = "backoff"
    status, headers, body = await request_as(kit, "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = body.decode().splitlines()
    assert {
        'nanobot_health{state="degraded"} 1.0',
        'nanobot_channel_up{channel="telegram"} 0.0',
        'nanobot_queue{state="received"} 1.0',
        'nanobot_turns_total{outcome="done"} 1.0',
        'nanobot_tokens_total{kind="prompt"} 70.0',
        'nanobot_logged_total{level="error"} 1.0',
        'nanobot_today_tokens{kind="cached"} 1e+06',
    } <= set(lines)


async def test_without_their_extra_metrics_say_what_to_install(
    kit: StatusKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, body = await request_as(kit, "/metrics")
    assert status == 501
    assert how_to_install("metrics").encode() in body


async def request_as(
    kit: StatusKit, path: str, token: str = "", authorization: str = "", **more: str
) -> tuple[int, dict[str, str], bytes]:
    """Return the endpoint's answer to this client."""
    web = WebServer(port=0)
    endpoint = HealthEndpoint(web, kit.monitor, kit.running, token)
    serving = asyncio.ensure_future(endpoint.run_forever())
    try:
        async with web.serve("/here", Platform().handle) as url:
            status, headers, body = await Platform().send(
                url.removesuffix("/here") + path,
                method="GET",
                headers={**({"Authorization": authorization} if authorization else {}), **more},
            )
    finally:
        endpoint.stop()
        await serving
    return status, dict(headers), body
