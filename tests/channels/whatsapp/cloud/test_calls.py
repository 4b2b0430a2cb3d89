"""Voice calls: nanobot cannot answer them, so each is noted once in its person's conversation and
begins no turn. Shapes: https://developers.facebook.com/docs/whatsapp/cloud-api/calling"""

from __future__ import annotations

import pytest

from nanobot_whatsapp.cloud.payload import BrokenItem, Remark
from nanobot_whatsapp.ingest import IncomingMessage
from tests.channels.whatsapp.cloud.samples import ANN, OUR_ID, OURS, Json, items, make_call

MISSED = ("a missed voice call: nanobot cannot answer calls",)


def rung(**fields: object) -> Json:
    """Return a webhook of a call."""
    given = {
        "id": "wacid.ABGGFjFVU2AfAgo6V-Hc5eCgK5Gh",
        "from": ANN,
        "to": OURS,
        "event": "terminate",
        "direction": "USER_INITIATED",
        "timestamp": "1777723200",
        "status": "FAILED",
        **fields,
    }
    own = {"display_phone_number": OURS, "phone_number_id": OUR_ID}
    return make_call({"field": "calls", "value": {"metadata": own, "calls": [given]}})


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({}, MISSED),
        ({"status": None}, MISSED),
        ({"direction": None}, MISSED),
        ({"from": OURS, "to": ANN}, MISSED),
        ({"status": "COMPLETED", "duration": 33}, ("a voice call",)),
    ],
)
def test_a_call_is_noted_and_asks_for_nothing(fields: Json, notes: tuple[str, ...]) -> None:
    (one,) = items(rung(**fields))
    assert isinstance(one, IncomingMessage)
    assert (one.text, one.notes, one.unanswered) == ("", notes, True)
    assert one.person.ids == (ANN,)


@pytest.mark.parametrize(
    "fields", [{"event": "connect"}, {"direction": "BUSINESS_INITIATED"}, {"event": 7}]
)
def test_other_news_of_calls_say_nothing(fields: Json) -> None:
    (one,) = items(rung(**fields))
    assert isinstance(one, Remark)


@pytest.mark.parametrize("fields", [{"id": ""}, {"from": None, "to": None}, {"from": [1]}])
def test_one_that_names_nobody_costs_itself_alone(fields: Json) -> None:
    (one,) = items(rung(**fields))
    assert isinstance(one, BrokenItem)
