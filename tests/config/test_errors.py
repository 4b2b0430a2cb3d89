"""Messages about a wrong configuration: file, line, key, the fix, and never a value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.config import home_folder
from nanobot.config.load import load_settings
from nanobot.errors import ConfigError
from tests.config.homes import Home
from tests.privileges import without_privileges

SECTION_HINT = "Write `{0}:`, with its keys on indented lines below it."
BROKEN = (
    "is not valid YAML\n"
    "  In this line and the one above it, check the indentation (spaces, not tabs), and look for a "
    "missing ':' or quotation mark. Quote a value "
    "that contains ': ' or begins with one of @ ` % * ! & [ {."
)
MODEL_LINES = "model:\n  name: m\n  api_key: k\n"
MODEL = "model: {name: m, api_key: k}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "model:\n  name: m\n  api_kye: k\n",
            "HOME/config.yaml:3: model.api_kye: there is no such key\n  Did you mean 'api_key'?",
            id="unknown key",
        ),
        pytest.param(
            "agnet:\n  on_busy: queue\n",
            "HOME/config.yaml:1: agnet: there is no such key\n  Did you mean 'agent'?",
            id="unknown section",
        ),
        pytest.param(
            "log:\n  zzz: 1\n",
            "HOME/config.yaml:2: log.zzz: there is no such key\n  Valid keys: level, format.",
            id="unknown key far from any",
        ),
        pytest.param(
            "home: /x\n",
            "HOME/config.yaml:1: home: there is no such key\n"
            "  Valid keys: model, use, agent, memory, dream, tools, mcp, cron, heartbeat, skills, "
            "limits, log, http, health, backup, retention, team, models, owner, channels.",
            id="not a key of the file",
        ),
        pytest.param(
            "agent.on_busy: queue\n",
            "HOME/config.yaml:1: agent.on_busy: there is no such key\n  Did you mean 'agent'?",
            id="dotted key",
        ),
        pytest.param(
            "log:\n  level: info\n\nlog:\n  level: debug\n",
            "HOME/config.yaml:4: log: appears twice\n  Remove one of them.",
            id="duplicate key",
        ),
        pytest.param(
            "model:\n  name: a\n\nmodel:\n  base_url: http://127.0.0.1:1/v1\n",
            "HOME/config.yaml:4: model: appears twice\n  Remove one of them.",
            id="duplicate section, and nothing about what stands in the second",
        ),
        pytest.param(
            "log: debug\n",
            f"HOME/config.yaml:1: log: must be a section with keys\n  {SECTION_HINT.format('log')}",
            id="text for a section",
        ),
        pytest.param(
            "agent: [on_busy]\n",
            "HOME/config.yaml:1: agent: must be a section with keys\n"
            f"  {SECTION_HINT.format('agent')}",
            id="list for a section",
        ),
        pytest.param(
            "- model\n",
            "HOME/config.yaml:1: must contain sections with keys\n"
            "  Write sections with keys below them, such as `agent:` and `  on_busy: queue`.",
            id="not a mapping",
        ),
        pytest.param(
            "health:\n  enabled: true\n  host: 0.0.0.0\n",
            "HOME/config.yaml:1: health.token: is required if other machines can connect\n"
            "  Write `token: ${HEALTH_TOKEN}` and set that variable, or remove `health.host`.",
            id="health for everybody",
        ),
        pytest.param(
            "backup:\n  folder: workspace/kept\n",
            "HOME/config.yaml:2: backup.folder: would give the agent access to all secrets\n"
            "  Choose another folder, preferably on another disk.",
            id="backups where the agent reads",
        ),
        pytest.param(
            "backup:\n  folder: /srv/shown/kept\ntools:\n  exec:\n    paths: [/srv/shown]\n",
            "HOME/config.yaml:2: backup.folder: would give the agent access to all secrets\n"
            "  Choose another folder, preferably on another disk.",
            id="backups where commands read",
        ),
        pytest.param(
            "backup:\n  folder: ~nosuch/kept\n",
            "HOME/config.yaml:2: backup.folder: cannot be used: the home folder of the user in"
            " '~nosuch/kept' is unknown\n  Write the full path, beginning with /.",
            id="backups of a user that is not there",
        ),
        pytest.param(
            "backup:\n  folder: media\n",
            "HOME/config.yaml:2: backup.folder: is in nanobot's own folder, which is backed up\n"
            "  Choose another folder, preferably on another disk.",
            id="backups in backups",
        ),
        pytest.param(
            "agent:\n  max_iterations: many\n",
            "HOME/config.yaml:2: agent.max_iterations: must be a whole number",
            id="text for a whole number",
        ),
        pytest.param(
            "agent:\n  max_iterations: 1.5\n",
            "HOME/config.yaml:2: agent.max_iterations: must be a whole number",
            id="fraction for a whole number",
        ),
        pytest.param(
            "agent:\n  max_iterations: [1]\n",
            "HOME/config.yaml:2: agent.max_iterations: must be a whole number",
            id="list for a whole number",
        ),
        pytest.param(
            "agent:\n  max_iterations: 0\n",
            "HOME/config.yaml:2: agent.max_iterations: must be at least 1",
            id="too small",
        ),
        pytest.param(
            "model:\n  timeout_seconds: 0\n",
            "HOME/config.yaml:2: model.timeout_seconds: must be greater than 0",
            id="no time at all",
        ),
        pytest.param(
            "model:\n  retry_seconds: soon\n",
            "HOME/config.yaml:2: model.retry_seconds: must be a number",
            id="text for a number",
        ),
        pytest.param(
            "model:\n  retry_seconds: inf\n",
            "HOME/config.yaml:2: model.retry_seconds: must be a finite number",
            id="infinite",
        ),
        pytest.param(
            f"agent:\n  max_iterations: {'9' * 5000}\n",
            "HOME/config.yaml:2: agent.max_iterations: must be a whole number",
            id="huge",
        ),
        pytest.param(
            "model:\n  name: [m]\n  api_key: k\n",
            "HOME/config.yaml:2: model.name: must be text",
            id="list for a text",
        ),
        pytest.param(
            "model:\n  name: m\n  api_key: {a: k}\n",
            "HOME/config.yaml:3: model.api_key: must be text",
            id="mapping for a secret",
        ),
        pytest.param(
            "agent:\n  on_busy: que\n",
            "HOME/config.yaml:2: agent.on_busy: must be 'steer', 'queue' or 'interrupt'\n"
            "  Did you mean 'queue'?",
            id="unknown choice",
        ),
        pytest.param(
            "log:\n  level: 7\n",
            "HOME/config.yaml:2: log.level: must be 'debug', 'info', 'warning' or 'error'",
            id="choice far from any",
        ),
        pytest.param(
            "agent:\n  timezone: Europe/Berlim\n",
            "HOME/config.yaml:2: agent.timezone: is not a time zone\n"
            "  Did you mean 'Europe/Berlin'?",
            id="unknown time zone",
        ),
        pytest.param(
            "agent:\n  timezone: ../../etc/passwd\n",
            "HOME/config.yaml:2: agent.timezone: is not a time zone\n"
            "  Write it like Europe/Berlin.",
            id="a path for a time zone",
        ),
        pytest.param(
            "model:\n  name: m\n  api_key: k\n  fallbacks: small\n",
            "HOME/config.yaml:4: model.fallbacks: must be a list\n"
            "  Use [first, second], or one item per line after '- '.",
            id="text for a list",
        ),
        pytest.param(
            f"{MODEL_LINES}  fallbacks:\n    - a\n    - name: b\n      nmae: c\n",
            "HOME/config.yaml:7: model.fallbacks[1].nmae: there is no such key\n"
            "  Did you mean 'name'?",
            id="unknown key of a fallback",
        ),
        pytest.param(
            "model:\n  name: m\n  api_key: k\n  fallbacks:\n    - {api_key: k}\n",
            "HOME/config.yaml:5: model.fallbacks[0].name: is required",
            id="fallback without a name",
        ),
        pytest.param(
            "model:\n  name: m\n  api_key: k\n  fallbacks:\n    - ''\n",
            "HOME/config.yaml:5: model.fallbacks[0].name: must not be empty",
            id="fallback with an empty name",
        ),
        pytest.param(
            "model:\n  name: m\n  api_key: k\n  fallbacks:\n    -\n",
            "HOME/config.yaml:5: model.fallbacks[0]: must be a section with keys",
            id="empty fallback",
        ),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_line_and_the_fix(
    home: Home, text: str, expected: str
) -> None:
    assert home.complaint(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "agent:\n\ton_busy: queue\n",
            f"HOME/config.yaml:2: {BROKEN}",
            id="tab",
        ),
        pytest.param(
            "model:\n  name: m\n  api_key: a: b\n",
            f"HOME/config.yaml:3: {BROKEN}",
            id="colon in a value",
        ),
        pytest.param(
            "model:\n  api_key: @canary\n",
            f"HOME/config.yaml:2: {BROKEN}",
            id="reserved character",
        ),
        pytest.param(
            "model:\n  api_key: *canary\n",
            f"HOME/config.yaml:2: {BROKEN}",
            id="reference to nothing",
        ),
        pytest.param(
            "model:\n  api_key: !canary\n",
            "HOME/config.yaml:2: model.api_key: starts with '!', which YAML reads as a tag\n"
            "  Quote it.",
            id="tag",
        ),
        pytest.param(
            "model: !!python/object/apply:os.system [canary]\n",
            "HOME/config.yaml:1: model: starts with '!', which YAML reads as a tag\n  Quote it.",
            id="tag that would run code",
        ),
        pytest.param(
            "model:\n  name: 'canary\nlog:\n  level: info\n",
            f"HOME/config.yaml:2: {BROKEN}",
            id="open quote",
        ),
        pytest.param(
            "model:\n  fallbacks: [a, b\nlog:\n  level: info\n",
            f"HOME/config.yaml:2: {BROKEN}",
            id="open bracket",
        ),
        pytest.param(
            "model:\n  name: m\n api_key: k\n",
            f"HOME/config.yaml:3: {BROKEN}",
            id="indentation",
        ),
        pytest.param(
            "model\nlog:\n  level: info\n",
            f"HOME/config.yaml:2: {BROKEN}",
            id="missing colon",
        ),
        pytest.param(
            "log:\n  level: info\n---\nlog: {}\n",
            f"HOME/config.yaml:3: {BROKEN}",
            id="two documents",
        ),
        pytest.param(
            "log:\n  ? [a]\n  : b\n",
            "HOME/config.yaml:2: log: has a key that is not a plain word",
            id="list as a key",
        ),
        pytest.param(
            b"log:\n  level: caf\xe9\n",
            "HOME/config.yaml:2: is not UTF-8 text\n"
            "  Type the line again, and save the file as UTF-8.",
            id="not UTF-8",
        ),
        pytest.param(
            b"log:\n  level: a\x00b\n",
            "HOME/config.yaml:2: is not UTF-8 text\n"
            "  Type the line again, and save the file as UTF-8.",
            id="control character",
        ),
        pytest.param(
            b"#" * (2 << 20),
            "HOME/config.yaml: is not a regular file of at most 1 MiB\n  Move it away.",
            id="huge",
        ),
    ],
)
def test_a_file_that_is_no_yaml_is_explained(home: Home, text: str | bytes, expected: str) -> None:
    assert home.complaint(text) == expected


@pytest.mark.parametrize("text", ["[" * 2_000, "a: {" * 2_000, "- " * 2_000, "[" * 30 + "]" * 30])
def test_endless_nesting_is_an_error_like_any_other(home: Home, text: str) -> None:
    assert "config.yaml" in home.complaint(text)


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n"
        + "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 12)),
        "a: &a [*a, *a, *a]\n",
    ],
    ids=["of lists", "of itself"],
)
def test_references_that_make_a_few_lines_endless_are_an_error(home: Home, text: str) -> None:
    assert "has more than 20000 values" in home.complaint(text)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "api.openai.com/v1",
            "must be a URL that begins with http:// or https://\n"
            "  Write it like https://llm.example.com/v1 or http://127.0.0.1:11434/v1.",
        ),
        (
            "http://[::1/v1",
            "must be a URL that begins with http:// or https://\n"
            "  Write it like https://llm.example.com/v1 or http://127.0.0.1:11434/v1.",
        ),
        (
            "http://box:port/v1",
            "must be a URL that begins with http:// or https://\n"
            "  Write it like https://llm.example.com/v1 or http://127.0.0.1:11434/v1.",
        ),
        (
            "https://u:canary@box/v1",
            "must not contain a user name, '?', or '#'\n  Put the key into `api_key`.",
        ),
        (
            "https://box/v1?key=canary",
            "must not contain a user name, '?', or '#'\n  Put the key into `api_key`.",
        ),
        (
            "https://box/v1/chat/completions/",
            "must not include an endpoint, such as /chat/completions\n"
            "  Remove everything after /v1.",
        ),
    ],
)
def test_an_address_that_cannot_work_is_explained(home: Home, url: str, expected: str) -> None:
    text = f"model:\n  name: m\n  base_url: '{url}'\n"
    assert home.complaint(text) == f"HOME/config.yaml:3: model.base_url: {expected}"


@pytest.mark.parametrize("key", ["sk canary", "sk-canary\\n2", "sk-canary\\u2026"])
def test_a_key_that_no_server_takes_is_found_before_it_is_sent(home: Home, key: str) -> None:
    assert home.complaint(f'model:\n  name: m\n  api_key: "{key}"\n') == (
        "HOME/config.yaml:3: model.api_key: contains a space, a line break, or a non-ASCII "
        "character\n  Copy only the key, and paste it again."
    )


@pytest.mark.parametrize(
    "text",
    [
        "{provider: openai, api_key: k}",
        "{api_key: k}",
        "{fallbacks: [a], api_key: k}",
    ],
)
def test_openai_without_a_model_name_says_how_to_go_on(home: Home, text: str) -> None:
    assert home.complaint(f"model: {text}\n") == (
        "HOME/config.yaml:1: model.name: is required by the official OpenAI API\n"
        "  Write the model's name, or `provider: offline` to try nanobot without a model."
    )


def test_the_official_api_without_a_key_says_how_to_give_one(home: Home) -> None:
    hint = (
        "  Write `api_key: ${OPENAI_API_KEY}` and set that variable. "
        "For another server, set `base_url`."
    )
    assert home.complaint("log:\nmodel:\n  name: m\n") == (
        f"HOME/config.yaml:2: model.api_key: is required by the official OpenAI API\n{hint}"
    )
    official = "{name: f, base_url: https://api.openai.com/v1}"
    assert home.complaint(
        f"model:\n  name: m\n  base_url: http://127.0.0.1:1/v1\n  fallbacks:\n    - {official}\n"
    ) == (
        "HOME/config.yaml:5: model.fallbacks[0].api_key: is required by the official OpenAI API\n"
        f"{hint}"
    )
    assert home.complaint("", NANOBOT_MODEL__NAME="m") == (
        f"HOME/config.yaml: model.api_key: is required by the official OpenAI API\n{hint}"
    )


def test_too_little_room_for_the_prompt_says_which_numbers_would_do(home: Home) -> None:
    assert home.complaint("model:\n  context_window: 8192\n") == (
        "HOME/config.yaml:2: model.context_window: leaves 0 tokens for the prompt, "
        "which needs 2,000\n"
        "  Set it to at least 11,216, or reduce `max_completion_tokens`."
    )
    home.write("model: {context_window: 11216}\n")
    assert home.load().model.prompt_tokens == 2_000
    home.write("model: {context_window: 8192, max_completion_tokens: 5168}\n")
    assert home.load().model.prompt_tokens == 2_000


def test_several_problems_are_reported_together_in_reading_order(home: Home) -> None:
    home.write("agent:\n  on_busy: never\nlog:\n  levle: info\n  level: ${NOPE}\n")
    home.write_secrets("nonsense\n")
    error = home.error({"NANOBOT_QQ": "1"})
    assert str(error).replace(str(home.folder), "HOME").splitlines() == [
        "HOME/config.yaml:2: agent.on_busy: must be 'steer', 'queue' or 'interrupt'",
        "HOME/config.yaml:4: log.levle: there is no such key",
        "HOME/config.yaml:5: log.level: the variable NOPE is not set",
        "HOME/secrets.env:1: is not a NAME=value line",
        "environment: NANOBOT_QQ: this variable matches no key",
    ]
    assert (error.file, error.line, error.key) == (str(home.config), 2, "agent.on_busy")
    assert "Did you mean 'level'?" in error.for_people()


def test_what_a_broken_file_lacks_is_not_reported_as_well(home: Home) -> None:
    home.write("model:\n  name: m\n\tbase_url: http://127.0.0.1:1/v1\n")
    home.write_secrets("K=k\n")
    assert home.complaint(NANOBOT_MODEL__API_KEY="k") == (f"HOME/config.yaml:3: {BROKEN}")


def test_the_error_carries_its_parts_as_data(home: Home) -> None:
    home.write("log:\n  levle: info\n")
    error = home.error()
    assert (error.file, error.line, error.key) == (str(home.config), 2, "log.levle")
    assert error.hint == "Did you mean 'level'?"
    assert error.exit_code == 78
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_file_without_permission_says_how_to_mend_it(home: Home) -> None:
    home.write(MODEL, mode=0)
    with without_privileges():
        complaint = home.complaint()
    assert (
        "HOME/config.yaml: cannot be read: Permission denied\n"
        "  Run `chmod 600 HOME/config.yaml`, or run nanobot as its owner."
    ) in complaint


def test_what_is_no_file_is_an_error(home: Home) -> None:
    home.config.mkdir()
    os.mkfifo(home.secrets)
    assert home.complaint() == (
        "HOME/config.yaml: cannot be read: Is a directory\n"
        "  Check NANOBOT_HOME, the path, and the disk.\n"
        "HOME/secrets.env: is not a regular file of at most 1 MiB\n  Move it away."
    )


def test_a_home_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {})
    assert "cannot be read: Not a directory\n  Check NANOBOT_HOME" in caught.value.for_people()
    assert home_folder({"NANOBOT_HOME": str(file)}) == file


def test_a_link_to_itself_is_an_error(home: Home) -> None:
    home.config.symlink_to(home.config)
    assert "HOME/config.yaml: cannot be read: " in home.complaint()


CANARY = "sk-canary"
KEYS = st.sampled_from(
    ["model", "name", "api_key", "base_url", "fallbacks", "context_window", "on_busy", "timezone"]
)
VALUES = st.recursive(
    st.sampled_from(
        [CANARY, f"'{CANARY}", f"*{CANARY}", f"!{CANARY}", f"a: {CANARY}", f"${{{CANARY}}}", "${V}"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | st.tuples(KEYS, inner).map(lambda pair: f"{{{pair[0]}: {pair[1]}}}")
    ),
    max_leaves=4,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(["model", "agent", "log", "x"]), st.lists(st.tuples(KEYS, VALUES)))
def test_no_value_is_ever_repeated(
    home: Home, section: str, entries: list[tuple[str, str]]
) -> None:
    home.write(f"{section}:\n" + "".join(f"  {key}: {value}\n" for key, value in entries))
    said = _everything_said(home, {"V": CANARY, "NANOBOT_AGENT__ON_BUSY": CANARY})
    assert CANARY not in said


def _everything_said(home: Home, environ: Mapping[str, str]) -> str:
    try:
        home.load(environ)
    except ConfigError as error:
        return error.for_people() + str(error) + error.hint
    return ""
