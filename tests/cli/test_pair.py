"""`nanobot pair`: requests to a gateway, work on the files, and output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot.app.base import make_home
from nanobot.bus.journal_file import SqliteState
from nanobot.cli.main import main
from nanobot.clock import SystemClock
from nanobot.security.access import Access, AccessRules
from tests.security.homes import asks

REQUEST = {
    "code": "K7MPQRST", "seconds_left": 480, "address": "telegram:7", "name": "Anna",
    "kind": "person",
}  # fmt: skip
KNOWN = {
    "address": "telegram:8", "name": "Bob", "kind": "person", "owner": True,
    "since": "2026-03-02T09:00:00Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "operation", "asked"),
    [
        (["approve", "K7MPQRST"], "pair.approve", {"code": "K7MPQRST", "owner": False}),
        (["approve", "k7mp", "--owner"], "pair.approve", {"code": "k7mp", "owner": True}),
        (["revoke", "telegram:-100"], "pair.revoke", {"id": "telegram:-100"}),
    ],
)
def test_each_change_asks_one_operation_and_prints_its_text_or_its_data(
    gateway: Any,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    operation: str,
    asked: dict[str, object],
) -> None:
    gateway.answers[operation] = {"text": "It says so.\x1b[2J", "new": True}
    command = ["--home", str(gateway.home), "pair", *arguments]
    assert main(command) == 0
    assert capsys.readouterr().out == "It says so.\n"
    assert gateway.asked == [(operation, asked)]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"new": True}


def test_the_list_shows_who_asked_and_who_is_in(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    late = REQUEST | {"code": "", "seconds_left": 0, "name": "An\x1b[2Jna", "kind": "group"}
    gateway.answers["pair.list"] = {
        "requests": [REQUEST, late],
        "approved": [KNOWN],
        "trouble": "access.json is not used",
    }
    assert main(["--home", str(gateway.home), "pair", "list"]) == 0
    assert capsys.readouterr().out == (
        "warning: access.json is not used\n\n"
        "requests in the last hour\n"
        "  code      expires in  id          name\n"
        "  K7MPQRST  8 min       telegram:7  Anna\n"
        "  -         expired     telegram:7  Anna (group)\n"
        "People choose these names themselves. Approve only a code that someone gave you.\n\n"
        "approved through pairing\n"
        "  id          since              name\n"
        "  telegram:8  2026-03-02  owner  Bob\n"
    )
    assert main(["--home", str(gateway.home), "pair", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gateway.answers["pair.list"]


def test_what_the_gateway_refuses_is_said_with_exit_code_1(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(gateway.home), "pair", "approve", "K7MPQRST"]) == 1
    assert capsys.readouterr().err == "error: nothing for pair.approve\n  Look elsewhere.\n"


@pytest.mark.parametrize(
    "arguments", [["approve"], ["approve", " "], ["revoke", "7"], ["revoke", ":7"], []]
)
def test_wrong_use_is_exit_code_2(home: Path, arguments: list[str]) -> None:
    assert main(["--home", str(home), "pair", *arguments]) == 2


def test_without_a_gateway_the_home_itself_is_changed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        code = main(["--home", str(home), "pair", *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    assert run("list") == (
        0, "No pending requests and no approvals.\n"
    )  # fmt: skip
    code = _stranger_asks(home)
    assert code in run("list")[1]
    assert run("approve", "BBBBBBBB")[0] == 1
    assert run("approve", code.lower(), "--owner") == (
        0, "`Anna` (`telegram:7`) now has access, as the owner.\n"
    )  # fmt: skip
    assert run("approve", code)[0] == 1
    with _access(home) as access:
        assert access.owners("telegram") == ("7",)
    assert run("revoke", "telegram:7")[0] == 0
    assert run("revoke", "telegram:7")[0] == 1
    with _access(home) as access:
        assert access.owners("telegram") == ()


@contextmanager
def _access(home: Path) -> Iterator[Access]:
    with closing(SqliteState(home / "state")) as state:
        yield Access(state, {"telegram": AccessRules()}, {}, SystemClock())


def _stranger_asks(home: Path) -> str:
    make_home(home)
    with _access(home) as access:
        return asyncio.run(asks(access))
