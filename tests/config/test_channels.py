"""Sections of channels, with really installed adapters next to the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import asdict

from nanobot.app.base import secret_values
from nanobot.config.channels import COMMON
from nanobot.config.schema import config_schema
from nanobot.config.values import secrets_in
from tests.config.homes import Home

MODULE = """
from typing import Annotated
from msgspec import Meta
from nanobot.validation import Check, Checked, SecretStr

def flies(speed):
    if speed > 200:
        raise ValueError(f"No bird flies at {speed} km/h")
    return speed

class Pigeon(Checked, frozen=True):
    token: SecretStr
    webhook_url: str = ""
    lofts: Annotated[tuple[str, ...], Meta(description="Where the birds live.")] = ()
    speed: Annotated[int, Check(flies)] = 60

not_a_model = 1
"""
ENTRY_POINTS = """
[nanobot.channels]
cli = pigeon_for_tests:nothing
pigeon = pigeon_for_tests:nothing
plain = pigeon_for_tests:nothing
absent = pigeon_for_tests:nothing
number = pigeon_for_tests:nothing

[nanobot.channel_settings]
pigeon = pigeon_for_tests:Pigeon
absent = module_that_is_not_there:Settings
number = pigeon_for_tests:not_a_model
"""
GOOD = "channels:\n  pigeon:\n    enabled: yes\n    token: sk-canary\n    lofts: [a, b]\n"


@pytest.fixture(autouse=True)
def pigeon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution that brings channels."""
    site = tmp_path / "site"
    info = site / "pigeon_for_tests-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "pigeon_for_tests.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-for-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("pigeon_for_tests", None)


def test_a_channel_has_common_settings_and_those_of_its_adapter(home: Home) -> None:
    home.write(f"{GOOD}    allow_from: [+4915, 0123, ada]\n")
    channel = home.load().channels["pigeon"]
    assert channel.enabled
    assert channel.allow_from == ("+4915", "0123", "ada")
    assert channel.options is not None
    shown = asdict(channel.options)
    del shown["token"]
    assert shown == {"webhook_url": "", "lofts": ("a", "b"), "speed": 60}
    assert "canary" not in repr(channel)


def test_an_adapter_without_settings_has_the_common_ones(home: Home) -> None:
    home.write("channels: {plain: }\n")
    channel = home.load().channels["plain"]
    assert (channel.enabled, channel.allow_from, channel.options) == (False, (), None)


def test_groups_have_their_own_list_of_people(home: Home) -> None:
    home.write(
        "channels:\n  plain:\n    enabled: yes\n    groups: mention\n    allow_groups:\n"
        "      -100123: ['*']\n      \"-1\": [7, ada]\n      -2: []\n      -3:\n"
    )
    settings = home.load()
    channel = settings.channels["plain"]
    assert channel.groups == "mention"
    assert channel.allow_groups == {"-100123": ("*",), "-1": ("7", "ada"), "-2": (), "-3": ()}
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("written", "groups"),
    [("off", "off"), ("'off'", "off"), ("", "off"), ("open", "open")],
)
def test_groups_may_be_off_in_every_spelling(home: Home, written: str, groups: str) -> None:
    home.write(f"channels:\n  plain:\n    groups: {written}\n")
    assert home.load().channels["plain"].groups == groups


def test_an_override_names_groups(home: Home) -> None:
    environ = {"NANOBOT_CHANNELS__PLAIN__ALLOW_GROUPS": "{-100123: ['*'], -2: }"}
    groups = home.load(environ).channels["plain"].allow_groups
    assert groups == {"-100123": ("*",), "-2": ()}


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param(
            "enabled: yes\n    allow_from: [7, '*']\n",
            ":4: channels.plain.allow_from: gives everyone access to the agent. "
            "List the allowed ids, or remove the key and approve people through pairing.",
            id="everyone",
        ),
        pytest.param(
            "enabled: yes\n    allow_groups: {-1: []}\n",
            ":4: channels.plain.allow_groups: has no effect while `groups` is off. "
            "Also set `groups: mention`.",
            id="groups that are off",
        ),
        pytest.param(
            "enabled: yes\n    groups: open\n    allow_groups: {-1: ['*'], '*': ['*']}\n",
            ":5: channels.plain.allow_groups: gives everyone in any group access to the agent. "
            "List groups or people.",
            id="everyone everywhere",
        ),
        pytest.param("enabled: no\n    allow_from: ['*']\n", "", id="a channel that is off"),
    ],
)
def test_doubtful_access_is_a_warning(home: Home, text: str, warning: str) -> None:
    home.write(f"channels:\n  plain:\n    {text}")
    assert home.load().warnings == ((f"{home.config}{warning}",) if warning else ())


def test_the_hosts_of_webhooks_are_those_of_the_http_server(home: Home) -> None:
    webhook = "    webhook_url: https://Bot.example.org:8443/pigeon\n"
    home.write(f"http: {{public_hosts: [other.example.org]}}\n{GOOD}{webhook}")
    assert home.load().http.public_hosts == ("other.example.org", "bot.example.org")
    home.write(f"{GOOD}{webhook}".replace("yes", "no"))
    assert home.load().http.public_hosts == ()


def test_every_secret_of_a_channel_is_known(home: Home) -> None:
    home.write(f"model: {{name: m, api_key: key-12345, transcription: {{model: t}}}}\n{GOOD}")
    settings = home.load()
    assert {*secret_values(settings)} == {"", "key-12345", "sk-canary"}
    found = {".".join(map(str, path)): secret for path, secret in secrets_in(settings)}
    assert {key: secret.get_secret_value() for key, secret in found.items()} == {
        "model.api_key": "key-12345",
        "model.transcription.api_key": "key-12345",
        "model.speech.api_key": "",
        "memory.embeddings.api_key": "",
        "tools.web.proxy": "",
        "tools.web.search.api_key": "",
        "health.token": "",
        "team.database": "",
        "channels.pigeon.options.token": "sk-canary",
    }


def test_variables_and_overrides_reach_a_channel(home: Home) -> None:
    home.write("channels: {pigeon: {token: '${T}'}}\n", mode=0o644)
    settings = home.load(
        {
            "T": "sk",
            "NANOBOT_CHANNELS__PIGEON__ENABLED": "true",
            "NANOBOT_CHANNELS__PLAIN__ALLOW_FROM": "['*']",
        }
    )
    assert settings.channels["pigeon"].enabled
    assert settings.channels["plain"].allow_from == ("*",)
    assert settings.warnings == ()


def test_a_token_written_out_in_a_file_that_others_read_is_a_warning(home: Home) -> None:
    home.write(GOOD, mode=0o644)
    (warning,) = home.load().warnings
    assert warning.startswith(
        f"{home.config}:4: channels.pigeon.token: is in a file that other users can read"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "channels:\n  pigoen: {}\n",
            "HOME/config.yaml:2: channels.pigoen: no such channel is installed\n"
            "  Did you mean 'pigeon'?",
            id="misspelt channel",
        ),
        pytest.param(
            "channels:\n  plain: true\n",
            "HOME/config.yaml:2: channels.plain: must be a section with keys\n"
            "  Write `plain:`, with its keys on indented lines below it.",
            id="text for a section",
        ),
        pytest.param(
            "channels: [pigeon]\n",
            "HOME/config.yaml:1: channels: must be a section with keys\n"
            "  Write `channels:`, with its keys on indented lines below it.",
            id="list for the sections",
        ),
        pytest.param(
            f"{GOOD}    enable: no\n",
            "HOME/config.yaml:6: channels.pigeon.enable: there is no such key\n"
            "  Did you mean 'enabled'?",
            id="misspelt common key",
        ),
        pytest.param(
            f"{GOOD}    options: {{}}\n",
            "HOME/config.yaml:6: channels.pigeon.options: there is no such key\n"
            "  Valid keys: token, webhook_url, lofts, speed, enabled, allow_from, groups, "
            "allow_groups.",
            id="unknown key",
        ),
        pytest.param(
            "channels:\n  plain:\n    enabled: perhaps\n    allow_from: ada\n",
            "HOME/config.yaml:3: channels.plain.enabled: must be true or false\n"
            "HOME/config.yaml:4: channels.plain.allow_from: must be a list\n"
            "  Use [first, second], or one item per line after '- '.",
            id="wrong common values",
        ),
        pytest.param(
            "channels:\n  plain:\n    allow_from: [7, '@ada']\n",
            "HOME/config.yaml:3: channels.plain.allow_from[1]: must be an id, not a name\n"
            "  Names can change hands. Use the numeric id, which `nanobot pair list` shows after "
            "the person has written to the bot.",
            id="a name for an id",
        ),
        pytest.param(
            "channels:\n  plain:\n    groups: sometimes\n    allow_groups: {'@g': []}\n",
            "HOME/config.yaml:3: channels.plain.groups: must be 'off', 'mention' or 'open'\n"
            "HOME/config.yaml:4: channels.plain.allow_groups.@g: must be an id, not a name\n"
            "  Names can change hands. Use the numeric id, which `nanobot pair list` shows after "
            "the person has written to the bot.",
            id="wrong groups",
        ),
        pytest.param(
            "channels:\n  plain:\n    allow_groups:\n      -1: '*'\n      ' -2': []\n",
            "HOME/config.yaml:4: channels.plain.allow_groups.-1: must be a list\n"
            "  Use [first, second], or one item per line after '- '.",
            id="people of a group that are no list",
        ),
        pytest.param(
            "channels:\n  plain:\n    allow_groups: [-1]\n",
            "HOME/config.yaml:3: channels.plain.allow_groups: must be a section with keys",
            id="a list of groups",
        ),
        pytest.param(
            "channels:\n  pigeon: {enabled: yes}\n",
            "HOME/config.yaml:2: channels.pigeon.token: is required",
            id="required by the adapter",
        ),
        pytest.param(
            f"{GOOD}    speed: 999\n",
            "HOME/config.yaml:6: channels.pigeon.speed: no bird flies at … km/h",
            id="refused by the adapter",
        ),
        pytest.param(
            "channels:\n  absent: {}\n",
            "HOME/config.yaml:2: channels.absent: its settings are broken: "
            "module_that_is_not_there:Settings cannot be imported (ModuleNotFoundError)\n"
            "  Update or reinstall this channel's package.",
            id="adapter that cannot be imported",
        ),
        pytest.param(
            "channels:\n  number: {}\n",
            "HOME/config.yaml:2: channels.number: its settings are broken: "
            "pigeon_for_tests:not_a_model is not a subclass of nanobot.validation.Checked\n"
            "  Update or reinstall this channel's package.",
            id="adapter without a model",
        ),
    ],
)
def test_a_mistake_in_a_channel_is_explained(home: Home, text: str, expected: str) -> None:
    assert home.complaint(text) == expected


def test_an_unknown_channel_far_from_any_lists_those_installed(home: Home) -> None:
    said = home.complaint("channels: {zzz: {}}")
    assert "\n  Valid keys: absent, " in said
    assert ", number, pigeon, plain, " in said


def test_a_misspelt_override_gets_the_nearest_one(home: Home) -> None:
    assert home.complaint("", NANOBOT_CHANNELS__PLAIN__ENABELD="1") == (
        "environment: NANOBOT_CHANNELS__PLAIN__ENABELD: there is no such key\n"
        "  Did you mean 'enabled'?"
    )


def test_the_schema_describes_the_installed_channels() -> None:
    channels = config_schema()["properties"]["channels"]["properties"]
    assert set(channels) >= {"pigeon", "plain"}
    assert set(channels["pigeon"]["properties"]) == {
        *COMMON,
        "token",
        "webhook_url",
        "lofts",
        "speed",
    }
    assert channels["pigeon"]["required"] == ["token"]
    assert set(channels["plain"]["properties"]) == set(COMMON)
    assert channels["pigeon"]["additionalProperties"] is False
