"""The thin client against gateways that come and go."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.agent import Consent
from nanobot.cli.client import Client, ConnectionLost, NoGateway
from nanobot.errors import StorageError
from nanobot_cli.wire import Reply


def answer(client: Client, text: str) -> str:
    *_, last = Consent(client, "cli:direct").events(client.say(text, "cli:direct"))
    assert isinstance(last, Reply)
    return last.text


@pytest.mark.parametrize("left_behind", ["nothing", "an empty state", "a dead socket"])
def test_where_nobody_listens_there_is_no_gateway(tmp_path: Path, left_behind: str) -> None:
    state = tmp_path / "state"
    if left_behind != "nothing":
        state.mkdir()
    if left_behind == "a dead socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(state / "gateway.sock"))
    with pytest.raises(NoGateway):
        Client(state.parent)


def test_a_home_that_may_not_be_entered_comes_with_what_mends_it(closed_home: Path) -> None:
    with pytest.raises(StorageError, match="Permission denied") as refused:
        Client(closed_home)
    assert re.search(f"{closed_home}.*(chmod|chown)", refused.value.hint)


def test_a_gateway_started_anew_between_two_messages_is_found_again(
    gateway: Any, home: Path
) -> None:
    with Client(home) as client:
        assert answer(client, "one") == "echo: one"
        gateway.restart()
        assert answer(client, "two") == "echo: two"


def test_a_message_that_was_not_confirmed_is_sent_again_under_the_same_id(
    gateway: Any, home: Path
) -> None:
    gateway.hangs_up = 1
    with Client(home) as client:
        assert answer(client, "hi") == "echo: hi"
    assert len(gateway.ids) == 2
    assert len(set(gateway.ids)) == 1


def test_a_message_that_is_never_confirmed_is_said_to_be_unconfirmed(
    gateway: Any, home: Path
) -> None:
    gateway.hangs_up = 9
    with Client(home) as client, pytest.raises(ConnectionLost) as lost:
        answer(client, "hi")
    assert "before it confirmed your message" in str(lost.value)
    assert "nanobot sessions show cli:direct" in lost.value.hint
    assert len(gateway.ids) == 2


def test_a_confirmed_message_is_never_sent_again(gateway: Any, home: Path) -> None:
    with Client(home) as client, pytest.raises(ConnectionLost, match="is kept"):
        answer(client, "die now")
    assert len(gateway.ids) == 1
