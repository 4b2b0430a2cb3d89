"""Routes of a new message, as a table."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nanobot.agent.loop import Route, route
from nanobot.bus.events import Delivery, InboundMessage
from nanobot.commands import Answer, Command, CommandCall
from tests.bus.support import make_message


async def answer(_: CommandCall) -> Answer:
    return Answer("done")


STOP = Command("stop", "stops", answer, immediate=True)
NEW = Command("new", "begins a new conversation", answer, ordered=True)
STATUS = Command("status", "shows the status", answer, ordered=False)
HELLO = make_message("m1", "hello")


@pytest.mark.parametrize(
    ("message", "command", "joins", "damaged", "way"),
    [
        (HELLO, None, False, False, "wait"),
        (HELLO, None, True, False, "pass"),  # part of the running turn
        (HELLO, None, False, True, "wait"),
        (replace(HELLO, delivery=Delivery(edits="m0")), None, False, False, "pass"),
        (replace(HELLO, delivery=Delivery(deletes="m0")), None, False, False, "at once"),
        (replace(HELLO, delivery=Delivery(unanswered=True)), None, False, False, "pass"),
        (HELLO, STOP, False, False, "at once"),
        (HELLO, STOP, False, True, "at once"),
        (HELLO, NEW, False, False, "wait"),
        (HELLO, NEW, False, True, "renew"),
        (HELLO, STATUS, False, False, "pass"),
        (HELLO, STATUS, True, True, "pass"),
    ],
)
def test_the_way_of_a_message(
    message: InboundMessage, command: Command | None, joins: bool, damaged: bool, way: Route
) -> None:
    assert route(message, command, joins=joins, damaged=damaged) == way
