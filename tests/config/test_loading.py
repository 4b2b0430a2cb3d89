"""The settings from a valid configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.config import home_folder
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.errors import ConfigError
from tests.config.homes import Home


def test_a_home_without_files_is_offline_with_the_defaults(home: Home) -> None:
    settings = home.load()
    assert settings.home == home.folder
    assert settings.model.provider == "offline"
    assert settings.model.base_url == "https://api.openai.com/v1"
    assert (settings.model.context_window, settings.model.max_completion_tokens) == (128_000, 8_192)
    assert (settings.model.timeout_seconds, settings.model.retry_seconds) == (120, 60)
    assert (settings.agent.max_iterations, settings.agent.max_concurrent_turns) == (50, 64)
    assert (settings.agent.on_busy, settings.agent.shutdown_grace_seconds) == ("steer", 20)
    assert (settings.agent.timezone, settings.log.level) == ("", "info")
    assert not settings.channels
    assert settings.warnings == ()


def test_a_home_that_does_not_exist_has_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "nowhere", {}).model.provider == "offline"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "~\n", "model:\nagent: {}\n"])
def test_an_empty_file_is_the_defaults(home: Home, text: str) -> None:
    home.write(text)
    assert home.load() == replace(load_settings(home.folder / "none", {}), home=home.folder)


def test_settings_cannot_be_changed(home: Home) -> None:
    with pytest.raises(AttributeError):
        home.load().model.name = "other"  # type: ignore[misc]


def test_settings_can_be_made_by_hand_with_defaults(tmp_path: Path) -> None:
    assert Settings(home=tmp_path) == load_settings(tmp_path, {})


def test_every_kind_of_value_is_read(home: Home) -> None:
    home.write(
        "model:\n"
        "  name: gpt-5\n"
        "  api_key: sk-1\n"
        "  timeout_seconds: 1.5\n"
        "  context_window: 64_000\n"
        "agent: {on_busy: queue, timezone: Europe/Berlin, max_iterations: 7}\n"
        "log: {level: 'debug'}\n"
    )
    settings = home.load()
    assert settings.model.provider == "openai"
    assert settings.model.name == "gpt-5"
    assert settings.model.api_key.get_secret_value() == "sk-1"
    assert (settings.model.timeout_seconds, settings.model.context_window) == (1.5, 64_000)
    assert (settings.agent.on_busy, settings.agent.max_iterations) == ("queue", 7)
    assert (settings.agent.timezone, settings.log.level) == ("Europe/Berlin", "debug")


def test_the_word_off_is_not_mistaken_for_false(home: Home) -> None:
    home.write("model: {speech: {when: off}}\n")
    assert home.load().model.speech.when == "off"


@pytest.mark.parametrize("name", ["0123", "1e3", "true", "null-model", "12:30", "2026-01-01", "="])
def test_a_model_name_stays_as_it_was_written(home: Home, name: str) -> None:
    home.write(f"model: {{name: {name}, api_key: k}}\n")
    assert home.load().model.name == name


@pytest.mark.parametrize(
    ("text", "provider"),
    [
        ("{}", "offline"),
        ("{timeout_seconds: 5}", "offline"),
        ("{base_url: 'https://api.openai.com/v1'}", "offline"),
        ("{name: '', api_key: ''}", "offline"),
        ("{name: m, api_key: k}", "openai"),
        ("{name: m, base_url: 'http://127.0.0.1:1/v1'}", "openai"),
        ("{provider: offline, name: m}", "offline"),
    ],
)
def test_the_provider_follows_from_the_rest_unless_it_is_chosen(
    home: Home, text: str, provider: str
) -> None:
    home.write(f"model: {text}\n")
    assert home.load().model.provider == provider


def test_a_base_url_loses_its_last_slash(home: Home) -> None:
    home.write("model: {name: m, base_url: 'http://127.0.0.1:11434/v1/'}\n")
    assert home.load().model.base_url == "http://127.0.0.1:11434/v1"


def test_a_fallback_takes_what_it_lacks_from_the_main_model(home: Home) -> None:
    home.write(
        "model:\n"
        "  name: main\n"
        "  base_url: https://one.example/v1\n"
        "  api_key: key-one\n"
        "  fallbacks:\n"
        "    - small\n"
        "    - {name: other, api_key: key-two}\n"
        "    - {name: far, base_url: https://two.example/v1/, api_key: key-three}\n"
    )
    found = [
        (model.name, model.base_url, model.api_key.get_secret_value())
        for model in home.load().model.chain[1:]
    ]
    assert found == [
        ("small", "https://one.example/v1", "key-one"),
        ("other", "https://one.example/v1", "key-two"),
        ("far", "https://two.example/v1", "key-three"),
    ]


def test_a_key_is_never_lent_to_another_server(home: Home) -> None:
    home.write(
        "model: {name: m, api_key: k, fallbacks: [{name: f, base_url: 'http://127.0.0.1:1/v1'}]}\n"
    )
    assert home.load().model.chain[1].api_key.get_secret_value() == ""


def test_prompt_tokens_are_what_the_answer_and_the_reserve_leave(home: Home) -> None:
    home.write("model: {context_window: 10000, max_completion_tokens: 1000}\n")
    assert home.load().model.prompt_tokens == 10_000 - 1_000 - 1_024


def test_secrets_are_not_shown_by_repr(home: Home) -> None:
    home.write("model: {name: m, api_key: sk-canary, fallbacks: [{name: f, api_key: sk-canary}]}\n")
    assert "canary" not in repr(home.load())


def test_the_home_is_the_one_named_or_that_of_the_user(tmp_path: Path) -> None:
    assert home_folder({"NANOBOT_HOME": "/srv/bot"}) == Path("/srv/bot")
    assert home_folder({"HOME": "/home/ada"}) == Path("/home/ada/.nanobot")
    assert home_folder({"HOME": "/home/ada", "NANOBOT_HOME": "~/bot"}) == Path("/home/ada/bot")
    assert home_folder({"HOME": "/home/ada", "NANOBOT_HOME": " "}) == Path("/home/ada/.nanobot")
    assert load_settings(environ={"NANOBOT_HOME": str(tmp_path)}).home == tmp_path


def test_a_home_of_nobody_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the user's home folder is unknown"):
        home_folder({"NANOBOT_HOME": "~nobody-by-this-name/x"})


def test_the_package_loads_nothing_until_it_is_used() -> None:
    assert _modules_after("import nanobot.config") == set()


def test_without_a_file_no_yaml_is_loaded_and_without_channels_no_adapters(tmp_path: Path) -> None:
    code = f"from nanobot.config.load import *; load_settings(Path({str(tmp_path)!r}), {{}})"
    assert _modules_after(code) == set()


def _modules_after(code: str) -> set[str]:
    heavy = {"pydantic", "yaml", "importlib.metadata", "openai", "aiohttp", "asyncio"}
    script = f"{code}\nimport sys; print(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(done.stdout.decode().split())
