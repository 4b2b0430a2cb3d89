"""Keys of programs: adding, listing, revoking, and their isolation."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nanobot.channel import CheckRequest
from nanobot.channel.keys import ApiKeys
from nanobot.cli.main import main
from nanobot.errors import NanobotError
from nanobot.testing import FakeClock
from nanobot_api.settings import ApiSettings
from nanobot_api.setup import check

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeys:
    return ApiKeys(tmp_path)


def test_a_key_is_found_by_itself_alone_and_is_nowhere_on_the_disk(
    keys: ApiKeys, tmp_path: Path
) -> None:
    secret = keys.add("laptop", "", NOW)
    other = keys.add("kitchen", "telegram:12345", NOW, writable=True)
    found = keys.find(secret)
    assert found is not None
    assert (found.name, found.person, found.writable) == ("laptop", "owner", False)
    for wrong in ("", secret[:-1], f"{secret}x", secret.upper(), found.digest):
        assert keys.find(wrong) is None
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in written
    assert other.encode() not in written


def test_another_process_sees_what_changed(keys: ApiKeys, tmp_path: Path) -> None:
    gateway = ApiKeys(tmp_path)
    secret = keys.add("laptop", "", NOW)
    assert gateway.find(secret) is not None
    keys.revoke("laptop")
    assert gateway.find(secret) is None
    again = keys.add("laptop", "", NOW)
    assert gateway.find(again) is not None
    assert gateway.find(secret) is None


def test_a_name_stays_its_persons(keys: ApiKeys) -> None:
    keys.add("kitchen", "telegram:12345", NOW)
    with pytest.raises(NanobotError, match="the key"):
        keys.add("kitchen", "telegram:12345", NOW)
    keys.revoke("kitchen")
    with pytest.raises(NanobotError, match="belong to telegram:12345"):
        keys.add("kitchen", "", NOW)
    with pytest.raises(NanobotError, match="there is no key"):
        keys.revoke("kitchen")


@pytest.mark.parametrize("name", ["", "Laptop", "a b", "a:b", "../x", "a/b", "-a", "x" * 33])
def test_a_name_is_plain(keys: ApiKeys, name: str) -> None:
    with pytest.raises(NanobotError, match="a key's name can have"):
        keys.add(name, "", NOW)


@pytest.mark.parametrize("person", ["robin", "api:owner", "web:owner", "cli:owner", "telegram:"])
def test_a_key_is_a_persons_who_has_an_account(keys: ApiKeys, person: str) -> None:
    with pytest.raises(NanobotError, match="is not an account"):
        keys.add("kitchen", person, NOW)


def test_the_last_use_is_known_to_the_minute(keys: ApiKeys) -> None:
    keys.add("laptop", "", NOW)
    for seconds in (0, 30, 90):
        keys.note_use("laptop", NOW + timedelta(seconds=seconds))
    assert keys.last_used() == {"laptop": "2026-11-25T12:01:30+00:00"}


def test_the_command_line_shows_a_key_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(tmp_path / "home")

    def run(*words: str) -> str:
        assert main(["--home", home, "api", "keys", *words]) == 0
        return capsys.readouterr().out

    made = json.loads(run("add", "laptop", "--json"))
    listed = run("list")
    assert made["key"] not in listed
    assert "laptop" in listed
    assert "channels.api.enabled" in run("add", "kitchen", "--person", "telegram:12345")
    (first, second) = json.loads(run("list", "--json"))["keys"]
    assert (first["name"], first["person"], first["last_used"]) == ("laptop", "owner", "")
    assert (second["name"], second["person"]) == ("kitchen", "telegram:12345")
    run("revoke", "laptop")
    assert "laptop" not in run("list")


async def test_doctor_says_whether_a_program_could_use_it(keys: ApiKeys, tmp_path: Path) -> None:
    request = CheckRequest(ApiSettings(), tmp_path, FakeClock(), 1.0)
    (found,) = await check(request)
    assert (found.state, "no key" in found.text) == ("warn", True)
    keys.add("laptop", "", NOW)
    (found,) = await check(request)
    assert (found.state, found.text) == ("ok", "1 key for programs")
