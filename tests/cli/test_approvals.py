"""`nanobot approvals`: requests to a gateway, work on the files, and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import main

GIVEN = {
    "id": "9f3a01bc", "subject": "each call of light\x1b[2J", "session": "", "day": "",
    "given_by": "telegram:7", "given_at": "2026-11-25T10:00:00+00:00", "lasts": "always",
}  # fmt: skip


def test_the_list_shows_what_it_is_who_allowed_it_and_for_how_long(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers["approvals.list"] = {"approvals": [GIVEN], "trouble": ""}
    assert main(["--home", str(gateway.home), "approvals", "list"]) == 0
    printed = capsys.readouterr().out
    for text in ("9f3a01bc", "2026-11-25 10:00", "telegram:7", "always", "each call of light"):
        assert text in printed
    assert "\x1b" not in printed


WAITING = {
    "code": "K7\x1b[2J", "asked_in": "telegram:7", "session": "whatsapp:49@s", "turn": "t",
    "scope": "people/x", "what": "run a command with network access", "details": "curl x",
    "because": "Someone other than the owner requested this.", "seconds_left": 421,
    "asked_at": "2026-11-25T10:00:00+00:00", "answers": ["once", "no"],
}  # fmt: skip


def test_alone_it_lists_the_pending_questions_first_and_how_to_answer_them(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers["approvals.list"] = {"waiting": [WAITING], "approvals": [GIVEN], "trouble": ""}
    assert main(["--home", str(gateway.home), "approvals"]) == 0
    printed = capsys.readouterr().out
    assert "Run a command with network access?" in printed
    assert (
        "Within 8 min, send /approve K7 or /deny K7 in telegram:7, or answer on the web" in printed
    )
    assert "conversation: whatsapp:49@s" in printed
    assert printed.index("/approve K7") < printed.index("9f3a01bc")
    assert "\x1b" not in printed
    assert main(["--home", str(gateway.home), "approvals", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"][0]["code"] == WAITING["code"]


def test_approvals_that_cannot_be_read_are_said_once(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers["approvals.list"] = {"approvals": [GIVEN], "trouble": "some are set aside"}
    assert main(["--home", str(gateway.home), "approvals", "list"]) == 0
    assert capsys.readouterr().out.count("some are set aside") == 1


def test_revoking_names_one(gateway: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.answers["approvals.revoke"] = {"text": "Revoked: each call of light."}
    assert main(["--home", str(gateway.home), "approvals", "revoke", "9f3a01bc"]) == 0
    assert capsys.readouterr().out == "Revoked: each call of light.\n"
    assert gateway.asked == [("approvals.revoke", {"id": "9f3a01bc"})]


def test_without_a_gateway_it_reads_and_changes_the_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path), "approvals", "list"]) == 0
    assert capsys.readouterr().out == ("No pending questions and no standing approvals.\n")
    assert main(["--home", str(tmp_path), "approvals", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "waiting": [],
        "approvals": [],
        "trouble": "",
    }
    assert main(["--home", str(tmp_path), "approvals", "revoke", "nothing"]) == 1
    assert "no standing approval" in capsys.readouterr().err
