"""A gateway's health: one assessment for the command, the endpoint and the watchdog."""

from __future__ import annotations

import pytest

from nanobot.bus.journal import QueueCounts
from nanobot.errors import StorageError
from nanobot.gateway.channels import ChannelState
from nanobot.gateway.health import Concern, assess

NOW, ANSWERS = 1_000.0, (0.0, None)
WELL = ChannelState("telegram", "running", heard_at=990.0, due=1_040.0)


def channel(state: str, detail: str = "", due: float | None = None) -> ChannelState:
    return ChannelState("telegram", state, detail, heard_at=910.0, due=due)


@pytest.mark.parametrize(
    ("channels", "journal", "queue", "others", "state", "stuck", "said"),
    [
        ([WELL], ANSWERS, QueueCounts(received=3), (), "ok", False, ""),
        (
            [channel("running", due=999.0)],
            ANSWERS,
            QueueCounts(),
            (),
            "failing",
            True,
            "telegram: the platform has been silent for 90 s",
        ),
        # A channel that restarts, is lent or off may be silent.
        ([channel("lent", due=999.0)], ANSWERS, QueueCounts(), (), "ok", False, ""),
        (
            [channel("backoff", "it broke", due=999.0)],
            ANSWERS,
            QueueCounts(),
            (),
            "degraded",
            False,
            "telegram crashed: it broke",
        ),
        (
            [channel("off", "no token")],
            ANSWERS,
            QueueCounts(),
            (),
            "degraded",
            False,
            "telegram is off: no token",
        ),
        (
            [channel("running", "cannot be reached")],
            ANSWERS,
            QueueCounts(),
            (),
            "degraded",
            False,
            "telegram: cannot be reached",
        ),
        (
            [],
            (61.0, None),
            QueueCounts(),
            (),
            "failing",
            True,
            "the journal has not responded for 61 s",
        ),
        ([], (59.0, None), QueueCounts(), (), "ok", False, ""),
        # A new process would find the same disk.
        (
            [],
            (0.0, StorageError("journal.db", "disk full", hint="Free some space.")),
            QueueCounts(),
            (),
            "failing",
            False,
            "the journal rejects writes: cannot use journal.db: disk full",
        ),
        (
            [],
            ANSWERS,
            QueueCounts(failed=2, dead=1),
            (),
            "degraded",
            False,
            "failed messages: 2; undelivered parts of replies: 1",
        ),
        (
            [],
            ANSWERS,
            QueueCounts(received=5, put_off=4),
            (),
            "degraded",
            False,
            "the model cannot be reached (pending messages: 4)",
        ),
        (
            [],
            ANSWERS,
            QueueCounts(failed=1),
            (Concern("failing", "no room"),),
            "failing",
            False,
            "no room; failed messages: 1",
        ),
    ],
)
def test_what_is_wrong_is_judged_and_said(
    channels: list[ChannelState],
    journal: tuple[float, StorageError | None],
    queue: QueueCounts,
    others: tuple[Concern, ...],
    state: str,
    stuck: bool,
    said: str,
) -> None:
    health = assess(channels, NOW, queue, others, waiting=journal[0], refusal=journal[1])
    assert (health.state, health.stuck) == (state, stuck)
    assert "; ".join(concern.text for concern in health.concerns) == said
    if journal[1] is not None:
        assert health.concerns[0].hint.startswith(journal[1].hint)
