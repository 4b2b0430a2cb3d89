"""The thin client against gateways that come and go."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.agent import replies
from nanobot.cli.client import Client
from nanobot.errors import ConnectionLost, NoGateway, StorageError
from nanobot_cli.wire import Reply


def answer(client: Client, text: str) -> str:
    *_, last = replies(client, client.send_message(text, "cli:direct"), "cli:direct")
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


@pytest.mark.parametrize(("text", "hangs_up", "sent"), [("hi", 9, 2), ("die now", 0, 2)])
def test_a_message_without_an_answer_is_sent_no_more_and_where_to_look_is_said(
    gateway: Any, home: Path, text: str, hangs_up: int, sent: int
) -> None:
    gateway.hangs_up = hangs_up
    with Client(home) as client, pytest.raises(ConnectionLost, match="lost the connection") as lost:
        answer(client, text)
    assert "`nanobot sessions show cli:direct`" in lost.value.hint
    assert len(gateway.ids) == sent
