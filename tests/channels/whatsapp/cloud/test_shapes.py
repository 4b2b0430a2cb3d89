"""Each shape of a Cloud API call is parsed without losing any."""

from __future__ import annotations

import pytest

from nanobot_whatsapp.cloud.payload import BrokenItem, DeliveryFailure, IdChange, Remark
from nanobot_whatsapp.ingest import IncomingMessage
from tests.channels.whatsapp.cloud.quiet import QUIET_MESSAGES, STATUSES, elsewhere
from tests.channels.whatsapp.cloud.samples import call, find_incoming, items
from tests.channels.whatsapp.cloud.shapes import HEARD


@pytest.mark.parametrize("name", HEARD)
def test_what_is_said_is_heard(name: str) -> None:
    raw, text, notes = HEARD[name]
    (one,) = find_incoming(call(raw))
    assert one.text == text
    assert bool(one.notes) >= bool(notes)
    for note in notes:
        assert any(note in told for told in one.notes)
    assert text or notes or one.media
    assert one.addressed
    assert one.person.name == "Ann"


def test_what_says_nothing_is_no_message_and_nothing_of_it_is_unreadable() -> None:
    for raw in QUIET_MESSAGES.values():
        assert all(isinstance(item, Remark) for item in items(call(raw)))
    for status in STATUSES.values():
        (item,) = items(call(statuses=[status]))
        assert isinstance(item, DeliveryFailure | Remark)
    for document in elsewhere():
        assert not any(
            isinstance(item, IncomingMessage | IdChange | DeliveryFailure | BrokenItem)
            for item in items(document)
        )
