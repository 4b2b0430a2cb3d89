"""`nanobot doctor`: what it finds, what it says to do, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nanobot.testing import FakeOpenAI

NO_SHELL = "tools: {exec: {enabled: false}}\n"
Report = dict[str, list[dict[str, str]]]


@pytest.fixture
def doctor(home: Path, here: Any) -> Any:
    """Writes a configuration, then examines it: the exit code, and the findings by check."""

    def examine(config: str = NO_SHELL) -> tuple[int, Report]:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(config)
        (home / "config.yaml").chmod(0o600)
        done = here("doctor", "--json")
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
    assert checks == [
        "home", "disk", "configuration", "gateway", "model", "sandbox", "web", "channels", "time",
    ]  # fmt: skip
    assert re.search(r"(?m)^ok +sandbox +(bubblewrap|landlock), proven to hold", done.stdout)
    assert "is made at the first start" in done.stdout
    assert "only the small built-in one\n" in done.stdout
    assert "Set model.name and model.api_key" in done.stdout
    assert not home.exists()


def test_no_sandbox_by_the_owners_choice_is_a_warning(doctor: Any) -> None:
    code, found = doctor("tools: {exec: {sandbox: none}}\n")
    assert code == 0
    assert found["sandbox"][0]["state"] == "warn"
    assert any("lets commands do all" in one["text"] for one in found["configuration"])


def test_a_configuration_that_is_wrong_is_said_and_the_rest_still_looked_at(doctor: Any) -> None:
    code, found = doctor("model:\n  nmae: x\n")
    assert code == 1
    (wrong,) = found["configuration"]
    assert wrong["state"] == "fail"
    assert "config.yaml:2: model.nmae: there is no such key" in wrong["text"]
    assert {*found} == {"configuration", "home", "disk"}


def test_a_home_that_others_can_look_into_is_warned_of(home: Path, doctor: Any) -> None:
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    _, found = doctor()
    assert found["home"][0]["state"] == "warn"
    assert found["home"][0]["hint"] == f"`chmod 700 {home}`"


async def test_a_model_server_is_asked_for_its_models_and_nothing_else(doctor: Any) -> None:
    async with FakeOpenAI() as server:
        given = (
            f"model: {{name: fake-model, base_url: '{server.base_url}', api_key: k}}\n{NO_SHELL}"
        )
        _, found = await asyncio.to_thread(doctor, given)
        _, other = await asyncio.to_thread(doctor, given.replace("fake-model", "fake-mode"))
        assert {request.path for request in server.requests} == {"/v1/models"}
    assert found["model"][0]["text"] == "fake-model; its server answers"
    assert (other["model"][0]["state"], other["model"][0]["hint"]) == (
        "warn", "It offers fake-model.",
    )  # fmt: skip


def test_a_model_that_cannot_be_reached_fails_without_telling_the_key(doctor: Any) -> None:
    code, found = doctor(
        "model: {name: m, base_url: 'http://127.0.0.1:1/v1', api_key: sk-canary}\n" + NO_SHELL
    )
    assert (code, found["model"][0]["state"]) == (1, "fail")
    assert "canary" not in json.dumps(found)


def test_a_server_must_have_a_program_that_its_sandbox_shows(doctor: Any, tmp_path: Path) -> None:
    program = tmp_path / "programs" / "tool"
    program.parent.mkdir()
    program.touch(0o755)
    servers = {
        "here": "command: sh",
        "gone": "command: no-such-program",
        "hidden": f"command: {program}",
        "shown": f"command: {program}, paths: [{program.parent}]",
        "open": f"command: {program}, sandbox: false",
        "off": "command: no-such-program, enabled: false",
        "far": "url: https://example.org/mcp",
    }
    written = ", ".join(f"{name}: {{{entry}}}" for name, entry in servers.items())
    code, found = doctor(f"mcp: {{servers: {{{written}}}}}\n{NO_SHELL}")
    states = {one["text"].partition(":")[0]: one["state"] for one in found["mcp"]}
    well = dict.fromkeys(("here", "shown", "open", "far"), "ok")
    assert (code, states) == (1, well | {"gone": "fail", "hidden": "fail"})


TELEGRAM = "channels: {telegram: {enabled: true, token: '123456:ABC-def'}}\n" + NO_SHELL


def test_a_channel_without_an_owner_is_warned_of(doctor: Any) -> None:
    _, found = doctor(TELEGRAM)
    assert [one["state"] for one in found["channels"]] == ["ok", "warn"]
    assert found["channels"][0]["text"] == "cli, telegram"
    _, found = doctor(TELEGRAM + "owner: {telegram: ['7']}\n")
    assert [one["state"] for one in found["channels"]] == ["ok"]


def test_an_owner_by_pairing_is_one_as_well(gateway: Any, doctor: Any) -> None:
    gateway.answers["pair.list"] = {"approved": [{"address": "telegram:7", "owner": True}]}
    _, found = doctor(TELEGRAM)
    assert [one["state"] for one in found["channels"]] == ["ok"]


def test_a_check_that_breaks_is_a_finding_and_stops_no_other(gateway: Any, doctor: Any) -> None:
    gateway.answers["pair.list"] = ["nonsense"]
    code, found = doctor(TELEGRAM)
    assert (code, found["channels"][-1]["state"]) == (1, "fail")
    assert found["time"]


def test_a_running_gateway_is_asked_how_its_channels_are(gateway: Any, doctor: Any) -> None:
    gateway.answers["status"] = {
        "pid": 7, "channels": [{"name": "telegram", "state": "off", "detail": "token revoked"}],
    }  # fmt: skip
    _, found = doctor()
    assert found["gateway"] == [
        {
            "check": "gateway",
            "state": "warn",
            "text": "running, but telegram is off: token revoked",
            "hint": "`nanobot status` says more.",
        }
    ]
