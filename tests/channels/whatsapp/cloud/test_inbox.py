"""The messages of a call are stored in the core's inbox, all or none, and its other contents are
processed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from loguru import logger

from nanobot.bus.events import EXPIRED_BUTTON, Quote
from nanobot.errors import StorageError
from nanobot.testing import FakeClock
from nanobot_whatsapp.cloud.inbound import Inbox
from nanobot_whatsapp.ingest import OURS, Ingest, RecentMessages
from nanobot_whatsapp.people import People
from tests.channels.telegram.support import RecordingHost
from tests.channels.whatsapp.cloud.samples import (
    ANN,
    ANN_ID,
    NOW,
    OUR_ID,
    SENT,
    call,
    make_call,
    message,
)

TEXT = {"body": "hi"}
NEW = "15550003333"


@dataclass(frozen=True, slots=True)
class Rig:
    """The inbox and its targets."""

    inbox: Inbox
    host: RecordingHost
    recent: RecentMessages


def rig_in(folder: Path) -> Rig:
    """Use the same folder again, like the adapter after a restart."""
    host, recent, people = RecordingHost(folder, FakeClock(NOW)), RecentMessages(), People(folder)
    taking = Ingest(host, people, self_chat=False, pairing=True)
    return Rig(Inbox(host, people, taking, recent, OUR_ID), host, recent)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return rig_in(tmp_path)


def press(kind: str, id: str, title: str) -> dict[str, object]:
    """Return a press of a button."""
    return message("interactive", {"type": kind, kind: {"id": id, "title": title}})


async def test_a_press_says_the_value_of_the_button_and_an_unknown_one_its_label(rig: Rig) -> None:
    rig.host.buttons = {"b-1": "/approve 1"}
    known = press("button_reply", "b-1", "Yes") | {"id": "wamid.1"}
    unknown = press("list_reply", "b-9", "Other") | {"id": "wamid.2"}
    template = message("button", {"payload": "b-8", "text": "Stop"}, id="wamid.3")
    await rig.inbox.ingest(call(known, unknown, template))
    assert [said.content for said in rig.host.stored] == ["/approve 1", "Other", "Stop"]
    assert rig.host.published == 1


async def test_a_press_of_a_button_of_ours_that_is_over_is_no_talk(rig: Rig) -> None:
    await rig.inbox.ingest(call(press("button_reply", "0123456789abcdef01234567", "Approve")))
    assert [said.content for said in rig.host.stored] == [EXPIRED_BUTTON]


async def test_what_is_quoted_is_told_as_far_as_it_is_remembered(rig: Rig) -> None:
    rig.recent.remember("wamid.ours", OURS, "Shall I?")
    first = message("text", {"body": "a plan"}, id="wamid.1")
    second = message("text", TEXT, id="wamid.2", context={"from": ANN, "id": "wamid.1"})
    third = message("text", TEXT, id="wamid.3", context={"from": OUR_ID, "id": "wamid.ours"})
    lost = message("text", TEXT, id="wamid.4", context={"from": ANN, "id": "wamid.lost"})
    await rig.inbox.ingest(call(first))
    await rig.inbox.ingest(call(second, third, lost))
    assert [said.reply_to for said in rig.host.stored] == [
        None,
        Quote("wamid.1", "Ann", "a plan"),
        Quote("wamid.ours", OURS, "Shall I?"),
        Quote("wamid.lost", "", ""),
    ]


async def test_strangers_leave_nothing_behind(rig: Rig) -> None:
    rig.host.strangers = {ANN}
    await rig.inbox.ingest(call(message("text", {"body": "secret"}, id="wamid.1")))
    assert rig.host.stored == []
    assert rig.inbox.last_in(ANN) == ""
    assert rig.recent.find("wamid.1") is None


async def test_a_new_number_is_the_same_person_after_a_restart(tmp_path: Path, rig: Rig) -> None:
    await rig.inbox.ingest(call(message("text", TEXT, id="wamid.1"), contacts=[]))
    moved = message("system", {"type": "user_changed_number", "wa_id": NEW}, id="wamid.2")
    await rig.inbox.ingest(call(moved, contacts=[]))
    again = rig_in(tmp_path)
    told = message("text", TEXT, id="wamid.3", **{"from": NEW})
    await again.inbox.ingest(call(told, contacts=[]))
    assert [said.chat_id for said in again.host.stored] == [ANN]


async def test_what_was_said_before_a_new_number_is_theirs_who_said_it(rig: Rig) -> None:
    before = message("text", {"body": "one"}, id="wamid.1")
    moved = message("system", {"type": "user_changed_number", "wa_id": NEW}, id="wamid.2")
    after = message("text", {"body": "two"}, id="wamid.3", **{"from": NEW})
    for _ in range(2):  # Meta may call again
        await rig.inbox.ingest(call(before, moved, after, contacts=[]))
        told = [(said.chat_id, said.content) for said in rig.host.stored]
        assert told == [(ANN, "one"), (ANN, "two")]


async def test_nothing_is_remembered_of_what_the_disk_refused(rig: Rig) -> None:
    rig.host.disk_full = True
    with pytest.raises(StorageError):
        await rig.inbox.ingest(call(message("text", TEXT)))
    assert rig.inbox.last_in(ANN) == ""


async def test_a_malformed_item_is_kept_for_a_developer_once(tmp_path: Path, rig: Rig) -> None:
    for _ in range(2):
        await rig.inbox.ingest(call("malformed", message("text", TEXT)))
    rig.inbox.quarantine.keep("no JSON", "JSONDecodeError")
    kept = tmp_path / "quarantine.jsonl"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert len(kept.read_text().splitlines()) == 2
    assert len(rig.host.stored) == 1


async def test_what_did_not_arrive_is_reported_and_what_meta_decides_is_in_the_log(
    rig: Rig,
) -> None:
    logged: list[str] = []
    sink = logger.add(logged.append, level="WARNING", format="{message}")
    failed = {"id": "a", "status": "failed", "recipient_id": ANN, "errors": [{"code": 131047}]}
    await rig.inbox.ingest(call(statuses=[failed]))
    value = {"event": "ACCOUNT_RESTRICTION"}
    await rig.inbox.ingest(make_call({"field": "account_update", "value": value}))
    logger.remove(sink)
    (decision,) = logged
    ((id, reason),) = rig.host.undelivered
    assert id == "a"
    assert "24 hours" in reason
    assert "ACCOUNT_RESTRICTION" in decision


async def test_who_hides_their_number_by_now_stays_in_the_same_chat(rig: Rig) -> None:
    await rig.inbox.ingest(call(message("text", TEXT, id="wamid.1")))
    hidden = {"from": None, "from_user_id": ANN_ID, "timestamp": str(SENT + 60)}
    await rig.inbox.ingest(call(message("text", TEXT, id="wamid.2", **hidden), contacts=[]))
    assert {said.chat_id for said in rig.host.stored} == {ANN}
