"""`nanobot channels`: their output, and exclusive use of a channel during a sign-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import main
from nanobot.gateway.lock import home_lock

CHANNELS = [
    {"name": "cli", "state": "running", "detail": "", "who": ""},
    {"name": "whatsapp", "state": "off", "detail": "not linked\x1b[2J", "who": ""},
    {"name": "telegram", "state": "running", "detail": "", "who": "@bot"},
]
ADAPTER = """
from nanobot.errors import HomeLocked
from nanobot.gateway.lock import home_lock

async def login(request):
    assert request.state_folder.stat().st_mode & 0o777 == 0o700
    try:
        with home_lock(request.state_folder.parents[1]):
            pass
    except HomeLocked:
        request.say(f"nobody else runs; {request.number}")
    if request.is_set_up:
        request.say("set up already")
"""


@pytest.fixture
def wants_login(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install an adapter, `gate`, that requires a sign-in."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "gate_adapter.py").write_text(ADAPTER)
    info = folder / "gate_adapter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gate-adapter\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[nanobot.channel_logins]\ngate = gate_adapter:login\n"
        "[nanobot.channels]\ngate = gate_adapter:Never\n"
    )
    monkeypatch.syspath_prepend(folder)


def test_the_status_is_a_table_or_json(gateway: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.answers["channels.status"] = {"running": True, "channels": CHANNELS}
    command = ["--home", str(gateway.home), "channels", "status"]
    assert main(command) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["channel", "state", "account"],
        ["whatsapp", "off"],
        ["telegram", "running", "@bot"],
        [],
        ["whatsapp:", "not", "linked"],
    ]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["channels"] == CHANNELS


def test_without_a_gateway_the_status_says_what_is_set_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path), "channels", "status"]) == 0
    assert "No channel is enabled" in capsys.readouterr().out


@pytest.mark.usefixtures("wants_login")
def test_who_signs_in_without_a_gateway_owns_the_home_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--home", str(tmp_path), "channels", "login", "gate", "--pair-code", "15550001111"]
    assert main(command) == 0
    assert capsys.readouterr().out == "nobody else runs; 15550001111\n"
    with home_lock(tmp_path / "state"):
        pass  # it was given back


@pytest.mark.usefixtures("wants_login")
def test_a_running_gateway_lends_the_channel_until_the_login_ends(gateway: Any) -> None:
    gateway.answers |= {"channels.borrow": {"lent": True}, "channels.return": {"lent": False}}
    assert main(["--home", str(gateway.home), "channels", "login", "gate"]) == 0
    name = {"name": "gate"}
    assert gateway.asked == [("channels.borrow", name), ("channels.return", name)]


@pytest.mark.usefixtures("wants_login")
def test_where_nobody_has_to_sign_in_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path), "channels", "login", "telegram"]) == 1
    said = capsys.readouterr().err
    assert "the channel 'telegram' does not require a sign-in" in said
    assert "gate" in said


@pytest.mark.usefixtures("wants_login")
@pytest.mark.parametrize(
    ("written", "is_set_up"),
    [
        ({"channels": {"gate": {"enabled": True}}, "owner": {"gate": ["1"]}}, True),
        ({"channels": {"gate": {"enabled": True}}}, False),
        ({"channels": {"gate": {"enabled": False}}, "owner": {"gate": ["1"]}}, False),
    ],
)
def test_nobody_is_told_to_write_settings_that_are_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    written: dict[str, object],
    is_set_up: bool,
) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps(written))
    assert main(["--home", str(tmp_path), "channels", "login", "gate"]) == 0
    assert ("set up already" in capsys.readouterr().out) is is_set_up
