"""Variables within values, overrides, and secrets.env."""

from __future__ import annotations

import pytest

from tests.config.homes import Home
from tests.config.test_errors import BROKEN


def test_a_variable_takes_its_place_inside_a_text(home: Home) -> None:
    home.write("model: {name: '${KIND}-${SIZE}', base_url: 'http://${HOST}:1/v1', api_key: k}\n")
    model = home.load({"KIND": "llama", "SIZE": "3", "HOST": "box"}).model
    assert (model.name, model.base_url) == ("llama-3", "http://box:1/v1")


def test_a_variable_can_be_a_number_or_within_a_list(home: Home) -> None:
    home.write("model:\n  name: m\n  api_key: k\n  timeout_seconds: ${T}\n  fallbacks: ['${F}']\n")
    model = home.load({"T": "7", "F": "small"}).model
    assert (model.timeout_seconds, model.fallbacks[0].name) == (7, "small")


def test_a_doubled_dollar_stands_for_itself(home: Home) -> None:
    home.write("model: {name: 'a$${X}$b$', api_key: k}\n")
    assert home.load({"X": "no"}).model.name == "a${X}$b$"


def test_what_a_variable_holds_is_taken_as_it_is(home: Home) -> None:
    home.write("model: {name: '${X}', api_key: k}\n")
    assert home.load({"X": "${Y} # [z]: *"}).model.name == "${Y} # [z]: *"


def test_the_switch_for_tracebacks_is_no_misspelt_key(home: Home) -> None:
    assert home.load({"NANOBOT_DEBUG": "1"}).warnings == ()


def test_the_environment_overrides_the_file(home: Home) -> None:
    home.write("model: {name: file, api_key: k}\nagent: {on_busy: queue}\n")
    settings = home.load(
        {
            "NANOBOT_MODEL__NAME": "env",
            "NANOBOT_MODEL__CONTEXT_WINDOW": "64000",
            "NANOBOT_LOG__LEVEL": "debug",
            "NANOBOT_MODEL__FALLBACKS": "[a, {name: b, api_key: '#x'}]",
            "NANOBOT_HOME": "/elsewhere",
            "OTHER": "x",
        }
    )
    assert (settings.model.name, settings.model.context_window) == ("env", 64_000)
    assert (settings.agent.on_busy, settings.log.level) == ("queue", "debug")
    assert [model.name for model in settings.model.fallbacks] == ["a", "b"]
    assert settings.model.fallbacks[1].api_key.get_secret_value() == "#x"


def test_an_override_needs_no_file(home: Home) -> None:
    settings = home.load({"NANOBOT_MODEL__NAME": "m", "NANOBOT_MODEL__API_KEY": "*a#b:${c}&"})
    assert settings.model.provider == "openai"
    assert settings.model.api_key.get_secret_value() == "*a#b:${c}&"


@pytest.mark.parametrize("empty", ["", " ", "~", "null"])
def test_an_empty_override_restores_the_default(home: Home, empty: str) -> None:
    home.write("agent: {on_busy: queue}\n")
    assert home.load({"NANOBOT_AGENT__ON_BUSY": empty}).agent.on_busy == "steer"


def test_quotes_around_an_override_are_taken_off(home: Home) -> None:
    settings = home.load({"NANOBOT_MODEL__NAME": "'null'", "NANOBOT_MODEL__API_KEY": '"k"'})
    assert (settings.model.name, settings.model.api_key.get_secret_value()) == ("null", "k")


def test_secrets_stand_in_for_what_the_environment_lacks(home: Home) -> None:
    home.write("model: {name: '${A}-${B}-${C}-${D}', api_key: k}\n")
    home.write_secrets("\ufeff# mine\r\nA=file\r\n\r\nexport B = 'quo#ted'\nC=x=y # z\nD=\n")
    assert home.load({"A": "env"}).model.name == "env-quo#ted-x=y # z-"


def test_secrets_can_override_keys_and_the_environment_wins(home: Home) -> None:
    home.write_secrets("NANOBOT_LOG__LEVEL=debug\nNANOBOT_AGENT__ON_BUSY=queue\n")
    settings = home.load({"NANOBOT_LOG__LEVEL": "error"})
    assert (settings.log.level, settings.agent.on_busy) == ("error", "queue")


def test_a_missing_variable_says_where_to_set_it(home: Home) -> None:
    assert home.complaint("model:\n  name: m\n  api_key: ${OPENAI_API_KEY}\n") == (
        "HOME/config.yaml:3: model.api_key: the variable OPENAI_API_KEY is not set\n"
        "  Set it in the environment, or add a line OPENAI_API_KEY=… to HOME/secrets.env."
    )


def test_a_misspelt_variable_gets_the_nearest_one(home: Home) -> None:
    assert "\n  Did you mean OPENAI_API_KEY? Otherwise, set it in" in home.complaint(
        "model: {name: m, api_key: '${OPENAI_APIKEY}'}\n", OPENAI_API_KEY="sk-canary"
    )


@pytest.mark.parametrize("bad", ["${", "${}", "${A B}", "${a-b}", "x${1}"])
def test_a_reference_that_is_none_is_explained(home: Home, bad: str) -> None:
    assert home.complaint(f"model:\n  name: '{bad}'\n  api_key: k\n") == (
        "HOME/config.yaml:2: model.name: '${' is not followed by a variable's name\n"
        "  Use letters, digits, and '_' in names. To write the characters ${, use $${."
    )


def test_an_unknown_override_gets_the_nearest_one(home: Home) -> None:
    assert home.complaint(NANOBOT_MODEL__NMAE="x") == (
        "environment: NANOBOT_MODEL__NMAE: this variable matches no key\n"
        "  Did you mean NANOBOT_MODEL__NAME?"
    )
    assert "Did you mean NANOBOT_LOG__LEVEL?" in home.complaint(NANOBOT_LOG_LEVEL="x")
    assert "See `nanobot config schema`." in home.complaint(NANOBOT_QQ="x")


def test_a_wrong_override_names_the_variable_and_where_it_was_set(home: Home) -> None:
    assert home.complaint(NANOBOT_MODEL__TIMEOUT_SECONDS="soon") == (
        "environment: NANOBOT_MODEL__TIMEOUT_SECONDS: must be a number"
    )
    home.write_secrets("\nNANOBOT_MODEL__TIMEOUT_SECONDS=soon\n")
    assert home.complaint() == (
        "HOME/secrets.env:2: NANOBOT_MODEL__TIMEOUT_SECONDS: must be a number"
    )


def test_a_mistake_within_an_override_is_located(home: Home) -> None:
    key = {"NANOBOT_MODEL__NAME": "m", "NANOBOT_MODEL__API_KEY": "k"}
    assert home.complaint(NANOBOT_MODEL__FALLBACKS="[{nmae: x}]", **key) == (
        "environment: NANOBOT_MODEL__FALLBACKS[0].name: is required\n"
        "environment: NANOBOT_MODEL__FALLBACKS[0].nmae: there is no such key\n"
        "  Did you mean 'name'?"
    )
    assert home.complaint(NANOBOT_MODEL__FALLBACKS="[a", **key) == (
        f"environment: NANOBOT_MODEL__FALLBACKS: {BROKEN}"
    )


@pytest.mark.parametrize("line", ["just text", "=x", "A-B=1", "1A=2"])
def test_a_bad_line_among_the_secrets_is_located_and_not_repeated(home: Home, line: str) -> None:
    home.write_secrets(f"A=1\n{line}\n")
    assert home.complaint() == (
        "HOME/secrets.env:2: is not a NAME=value line\n  Write one NAME=value per line."
    )


def test_a_secret_given_twice_is_an_error(home: Home) -> None:
    home.write_secrets("A=1\nB=2\nA=3\n")
    assert home.complaint() == ("HOME/secrets.env:3: A: appears twice\n  Remove one of them.")


def test_the_home_cannot_be_moved_from_within(home: Home) -> None:
    home.write_secrets("NANOBOT_HOME=/x\n")
    assert home.complaint() == (
        "HOME/secrets.env:1: NANOBOT_HOME: cannot be set here\n"
        "  Set it in the environment, because it determines the folder of this file."
    )
