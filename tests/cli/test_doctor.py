"""`nanobot doctor`: its findings and hints, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanobot.cli.checks import CheckContext, check_home
from nanobot.cli.main import main
from nanobot.cli.unit import Unit
from nanobot.config.settings import Settings
from nanobot.testing import FakeClock
from tests.cli.test_onboard_window import Ollama, serving
from tests.doubles.anthropic.rules import SONNET
from tests.doubles.anthropic.server import FakeAnthropic
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram import FakeTelegram
from tests.voice.support import speaker

NO_SHELL = "tools: {exec: {enabled: false}}\n"
Report = dict[str, list[dict[str, str]]]


@pytest.fixture(autouse=True)
def own_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder of this user's services."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "systemd" / "user"


@pytest.fixture
def doctor(home: Path, here: Any) -> Any:
    """Write a configuration and examine it. Return the exit code, and the findings by check."""

    def examine(config: str = NO_SHELL, *options: str) -> tuple[int, Report]:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(config)
        (home / "config.yaml").chmod(0o600)
        done = here("doctor", "--json", *options)
        found: Report = {}
        for finding in json.loads(done.stdout):
            found.setdefault(finding["check"], []).append(finding)
        return done.returncode, found

    return examine


def test_a_fresh_machine_gets_a_whole_report_a_proven_sandbox_and_no_home(
    home: Path, here: Any
) -> None:
    done = here("doctor")
    assert done.returncode == 0
    checks = [line[6:21].strip() for line in done.stdout.splitlines() if line[:4].strip()]
    assert [*dict.fromkeys(checks)] == [
        "home", "disk", "packages", "configuration", "gateway", "model", "sandbox", "channels",
        "time",
    ]  # fmt: skip
    assert re.search(r"(?m)^(ok +sandbox +bubblewrap|warn +sandbox +landlock), tested", done.stdout)
    assert "will be created when nanobot first starts" in done.stdout
    assert "only the small built-in model is set up\n" in done.stdout
    assert "Run `nanobot onboard`, or set" in done.stdout
    assert not home.exists()


def test_no_sandbox_by_the_owners_choice_is_a_warning(doctor: Any) -> None:
    code, found = doctor("tools: {exec: {sandbox: none}}\n")
    assert code == 0
    assert found["sandbox"][0]["state"] == "warn"
    assert any(
        "gives commands all your permissions" in one["text"] for one in found["configuration"]
    )


def test_a_configuration_that_is_wrong_is_said_and_the_rest_still_looked_at(doctor: Any) -> None:
    code, found = doctor("model:\n  nmae: x\n")
    assert code == 1
    (wrong,) = found["configuration"]
    assert wrong["state"] == "fail"
    assert "config.yaml:2: model.nmae: there is no such key" in wrong["text"]
    assert {*found} == {"configuration", "home", "disk", "packages"}


def test_each_error_of_a_configuration_has_its_own_hint(doctor: Any) -> None:
    _, found = doctor("agent: {timezone: Nowhere/Land}\nlog: {levle: debug}\n")
    hints = [one["hint"] for one in found["configuration"]]
    assert hints == ["Write it like Europe/Berlin.", "Did you mean 'level'?"]


def test_a_home_that_others_can_look_into_is_warned_of(home: Path, doctor: Any) -> None:
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    _, found = doctor()
    assert found["home"][0]["state"] == "warn"
    assert found["home"][0]["hint"] == f"Run `chmod 700 {home}`."


def test_a_home_that_may_not_be_entered_is_named_with_what_mends_it(closed_home: Path) -> None:
    (found,) = check_home(CheckContext(Settings(home=closed_home), FakeClock()))
    assert found.state == "fail"
    assert str(closed_home) in found.text
    theirs = closed_home.stat().st_uid != os.geteuid()
    command = r"`sudo chown -R .+ " if theirs else "`chmod u+rwx "
    assert re.search(f"{command}{closed_home}`", found.hint)


async def test_a_model_server_is_asked_what_it_has_and_no_model_is_asked(doctor: Any) -> None:
    async with FakeOpenAI() as server:
        given = (
            f"model: {{name: fake-model, base_url: '{server.base_url}', api_key: k}}\n{NO_SHELL}"
        )
        _, found = await asyncio.to_thread(doctor, given)
        _, other = await asyncio.to_thread(doctor, given.replace("fake-model", "fake-mode"))
        assert not any("chat" in request.path for request in server.requests)
    assert found["model"][0]["text"] == "fake-model, server reachable"
    assert (other["model"][0]["state"], other["model"][0]["hint"]) == (
        "warn", "Did you mean fake-model? The server offers fake-model.",
    )  # fmt: skip


def test_a_model_that_cannot_be_reached_fails_without_telling_the_key(doctor: Any) -> None:
    code, found = doctor(
        "model: {name: m, base_url: 'http://127.0.0.1:1/v1', api_key: sk-canary}\n" + NO_SHELL
    )
    assert (code, found["model"][0]["state"]) == (1, "fail")
    assert "canary" not in json.dumps(found)


def test_a_server_must_have_a_program(doctor: Any, tmp_path: Path) -> None:
    program = tmp_path / "programs" / "tool"
    program.parent.mkdir()
    program.touch(0o755)
    servers = {
        "here": "command: sh",
        "gone": "command: no-such-program",
        "own": f"command: {program}",
        "off": "command: no-such-program, enabled: false",
        "far": "url: https://example.org/mcp",
    }
    written = ", ".join(f"{name}: {{{entry}}}" for name, entry in servers.items())
    code, found = doctor(f"mcp: {{servers: {{{written}}}}}\n{NO_SHELL}")
    states = {one["text"].partition(":")[0]: one["state"] for one in found["mcp"]}
    well = dict.fromkeys(("here", "own", "far"), "ok")
    assert (code, states) == (1, well | {"gone": "fail"})


async def test_a_model_is_asked_something_only_where_that_is_wished_for(doctor: Any) -> None:
    async with FakeOpenAI(["Ready."]) as server:
        given = f"model: {{name: fake-model, base_url: '{server.base_url}'}}\n{NO_SHELL}"
        _, found = await asyncio.to_thread(doctor, given, "--ask-model")
        assert any("chat" in request.path for request in server.requests)
    assert re.match(r"answered “Ready.” in \d", found["model"][1]["text"])


async def test_a_model_is_asked_by_the_api_that_is_configured(doctor: Any) -> None:
    async with FakeAnthropic(["Ready."]) as server:
        model = {"name": SONNET.name, "base_url": f"{server.base_url}/v1", "api_key": "key"}
        given = f"model: {json.dumps(model | {'api': 'messages'})}\n{NO_SHELL}"
        _, found = await asyncio.to_thread(doctor, given, "--ask-model")
    assert "answered “Ready.”" in "".join(one["text"] for one in found["model"])


async def test_a_fallback_that_is_away_is_a_warning(doctor: Any) -> None:
    async with FakeOpenAI() as server:
        fallback = "{name: spare, base_url: 'http://127.0.0.1:1/v1', api_key: k}"
        code, found = await asyncio.to_thread(
            doctor,
            f"model: {{name: fake-model, base_url: '{server.base_url}', fallbacks: [{fallback}]}}\n"
            + NO_SHELL,
        )
    assert (code, [one["state"] for one in found["model"]]) == (0, ["ok", "warn"])
    assert found["model"][1]["text"].startswith("fallback spare: ")


OFF = "base_url: 'http://127.0.0.1:1'"
TELEGRAM = f"channels: {{telegram: {{enabled: true, token: '123456:ABC-def', {OFF}}}}}\n" + NO_SHELL


def test_a_channel_without_an_owner_is_warned_of(doctor: Any) -> None:
    code, found = doctor(TELEGRAM)
    assert [one["state"] for one in found["channels"]] == ["ok", "fail", "warn"]
    assert found["channels"][0]["text"] == "cli, telegram"
    assert (code, "cannot be reached" in found["channels"][1]["text"]) == (1, True)
    _, found = doctor(TELEGRAM + "owner: {telegram: ['7']}\n")
    assert [one["state"] for one in found["channels"]] == ["ok", "fail"]


@pytest.mark.parametrize(("owner", "warned"), [(True, []), (False, ["warn"])])
def test_an_owner_by_pairing_is_one_as_well(
    home: Path, doctor: Any, owner: bool, warned: list[str]
) -> None:
    known = {"channel": "telegram", "kind": "person", "id": "7", "owner": owner}
    (home / "state").mkdir(parents=True)
    (home / "state" / "access.json").write_text(json.dumps({"approved": [known]}))
    _, found = doctor(TELEGRAM)
    assert [one["state"] for one in found["channels"]] == ["ok", "fail", *warned]


@pytest.mark.parametrize("known", [None, "{", "[]"])
def test_looking_for_the_owner_changes_nothing_in_the_home(
    home: Path, doctor: Any, known: str | None
) -> None:
    home.mkdir(mode=0o700)
    if known is not None:
        (home / "state").mkdir(mode=0o755)
        (home / "state" / "access.json").write_text(known)
    before = {path: path.stat().st_mode for path in home.rglob("*")}
    _, found = doctor(TELEGRAM)
    assert found["channels"][-1]["state"] == "warn"
    after = {path: path.stat().st_mode for path in home.rglob("*")}
    assert after.keys() - before.keys() == {home / "config.yaml"}
    assert before.items() <= after.items()


async def test_telegram_is_asked_whether_it_knows_the_bot(doctor: Any) -> None:
    async with FakeTelegram() as server:
        entry = f"{{enabled: true, base_url: '{server.base_url}', token: '{server.token}'}}"
        given = f"channels: {{telegram: {entry}}}\nowner: {{telegram: ['7']}}\n{NO_SHELL}"
        _, found = await asyncio.to_thread(doctor, given)
        _, refused = await asyncio.to_thread(doctor, given.replace(server.token, "1:" + "x" * 35))
        assert {call.method for call in server.calls} == {"getMe"}
    assert found["channels"][1]["text"].endswith(f"Telegram recognizes the bot @{server.username}")
    assert "does not accept the bot token" in refused["channels"][1]["text"]


def test_whatsapp_needs_its_helper_and_an_account(doctor: Any) -> None:
    _, found = doctor("channels: {whatsapp: {enabled: true, node: /no/such/node}}\n" + NO_SHELL)
    node, _, account, _ = found["channels"][1:]
    assert (node["state"], account["state"]) == ("fail", "fail")
    assert "`nanobot channels login whatsapp`" in account["hint"]


def test_a_check_that_breaks_is_a_finding_and_stops_no_other(home: Path, doctor: Any) -> None:
    home.mkdir(mode=0o700)
    (home / "backups").write_text("not a folder")
    code, found = doctor()
    assert (code, [one["state"] for one in found["backups"]]) == (1, ["fail"])
    assert found["time"]


def test_a_gateway_that_judges_itself_is_believed(gateway: Any, doctor: Any) -> None:
    hangs = {"level": "failing", "text": "the journal hangs", "hint": "See to the disk."}
    stands = {"level": "degraded", "text": "telegram is off", "hint": ""}
    health = {"state": "failing", "concerns": [hangs, stands]}
    gateway.answers["status"] = {"pid": 7, "health": health, "version": "0.0.1"}
    code, found = doctor()
    assert [(one["state"], one["text"]) for one in found["gateway"][:2]] == [
        ("fail", "the journal hangs"), ("warn", "telegram is off"),
    ]  # fmt: skip
    assert found["gateway"][2]["text"].startswith("nanobot 0.0.1 is running, ")
    assert code == 1


def test_a_unit_for_this_home_must_start_this_nanobot(
    home: Path, doctor: Any, own_units: Path
) -> None:
    own_units.mkdir(parents=True)
    for name, its_home in (("nanobot", home), ("nanobot-other", home.parent / "elsewhere")):
        unit = Unit(("/no/such/nanobot", "gateway"), its_home, "/usr/bin", 20.0)
        (own_units / f"{name}.service").write_text(unit.text)
    code, found = doctor()
    (service,) = found["service"]
    assert (code, service["state"]) == (1, "fail")
    assert "starts /no/such/nanobot, not this installation" in service["text"]


def test_the_hint_to_write_a_unit_anew_means_that_unit_and_its_home(
    home: Path, doctor: Any, own_units: Path
) -> None:
    own_units.mkdir(parents=True)
    unit = Unit(("/no/such/nanobot", "gateway"), home, "/usr/bin", 20.0)
    (own_units / "nanobot-work.service").write_text(unit.text)
    _, found = doctor()
    command = f"nanobot --home {home} service install --name work"
    assert found["service"][0]["hint"] == f"Update it with `{command}`."
    assert main([*command.split()[1:], "--dry-run"]) == 0


def test_less_room_than_the_reserve_is_an_error(doctor: Any) -> None:
    code, found = doctor("retention: {disk_reserve_megabytes: 1000000000}\n" + NO_SHELL)
    assert (code, found["disk"][0]["state"]) == (1, "fail")


def test_a_disk_that_does_not_tell_its_room_is_a_warning(
    doctor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    untold = os.statvfs("/proc")
    monkeypatch.setattr("os.statvfs", lambda _: untold)
    _, found = doctor()
    assert [(one["state"], one["text"]) for one in found["disk"]] == [
        ("warn", "cannot determine the free disk space: Operation not supported")
    ]


async def test_what_is_set_is_compared_with_what_the_models_server_takes(doctor: Any) -> None:
    async with serving(Ollama()) as wanted:
        given = f"model: {{name: 'qwen3:8b', base_url: '{wanted.base_url}'}}\n{NO_SHELL}"
        _, found = await asyncio.to_thread(doctor, given)
        small = given.replace("/v1'", "/v1', context_window: 4096, max_completion_tokens: 1024")
        _, fitting = await asyncio.to_thread(doctor, small)
    warned, less = found["model"][1], fitting["model"][1]
    assert (warned["state"], less["state"]) == ("warn", "warn")
    assert "Ollama accepts 4,096 tokens, but model.context_window is 128,000" in warned["text"]
    assert "a context window of 4,096 tokens" in less["text"]
    assert "OLLAMA_CONTEXT_LENGTH" in less["hint"]


def test_what_is_found_is_said_before_a_slow_server_answers(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"object": "list", "data": [{"id": "tiny"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (home / "config.yaml").write_text(
            f"model: {{name: tiny, base_url: 'http://127.0.0.1:{port}/v1'}}\n{NO_SHELL}"
        )
        doctor = threading.Thread(target=main, args=(["--home", str(home), "doctor"],))
        doctor.start()
        asked, _ = server.accept()
        with asked:
            assert "ok    packages" in capsys.readouterr().out
            asked.sendall(head % len(body) + body)
            server.close()  # the next request is refused
            doctor.join(30)
    assert "ok    model" in capsys.readouterr().out


def test_voices_are_tried_what_one_says_the_other_hears(disk_path: Path, doctor: Any) -> None:
    programs = {
        "speech": {"command": speaker(disk_path)},
        "transcription": {"command": ["tail", "-c", "16", "{input}"]},
    }
    code, found = doctor(json.dumps({"model": programs, **yaml.safe_load(NO_SHELL)}))
    assert [one["text"] for one in found["voice"]] == [
        "“One, two, three.” was turned into a voice message (0.1 kB)",
        "recognized “One, two, three.” in a test recording",
    ]
    assert code == 0


def test_a_voice_that_does_not_work_says_why(doctor: Any) -> None:
    programs = {
        "speech": {"command": ["no-such-voice"]},
        "transcription": {"command": ["sh", "-c", "echo no model >&2; exit 1", "{input}"]},
    }
    code, found = doctor(json.dumps({"model": programs}))
    assert [one["state"] for one in found["voice"]] == ["fail", "fail"]
    assert "cannot run no-such-voice" in found["voice"][0]["text"]
    assert "no model" in found["voice"][1]["text"]
    assert code == 1


def test_servers_for_voices_are_asked_only_where_that_is_wanted(doctor: Any) -> None:
    server = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
    models = {"model": {"speech": server, "transcription": server}}
    _, found = doctor(json.dumps(models))
    assert [one["text"] for one in found["voice"]] == [
        "voice servers are tested only with --ask-model"
    ]
