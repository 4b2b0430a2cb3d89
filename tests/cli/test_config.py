"""`nanobot config get|set|unset`, `nanobot mcp add|remove`: changes, output, and rejections."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.support import MCP_PROGRAM, Nanobot, Terminal


@pytest.fixture
def config(home: Path) -> Path:
    """A configuration with comments."""
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.write_text("# mine\nagent:\n  # what a message does\n  on_busy: steer  # for now\n")
    return path


def test_a_setting_is_changed_once_the_difference_was_seen(
    here: Nanobot, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = config.read_text()
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    declined = here("config", "set", "agent.on_busy", "queue")
    assert declined.returncode == 1
    assert config.read_text() == before
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    done = here("config", "set", "agent.on_busy", "queue")
    assert done.stdout == (
        f"{config}\n  -  on_busy: steer  # for now\n  +  on_busy: queue  # for now\n"
        "\nSave these changes? [y/N] Saved. The change takes effect when nanobot next starts.\n"
    )
    assert config.read_text() == before.replace("steer", "queue")
    again = here("config", "set", "agent.on_busy", "queue", "--yes")
    assert again.stdout == "Nothing to change.\n"


def test_a_value_is_read_as_its_key_takes_it(here: Nanobot, config: Path) -> None:
    def value(key: str, *words: str) -> object:
        assert here("config", "set", key, *words, "--yes").returncode == 0
        return json.loads(here("config", "get", key, "--json").stdout)["value"]

    assert value("agent.max_iterations", "9") == 9
    assert value("model.temperature", "0.5") == 0.5
    assert value("memory.notices", "on") is True
    assert value("owner.telegram", "12345") == ["12345"]
    assert value("tools.web.domains", "example.org", "example.com") == [
        "example.org", "example.com",
    ]  # fmt: skip
    assert value("tools.web.domains", "[example.org]") == ["example.org"]
    assert value("tools.exec.environment", "{LANG: de}") == {"LANG": "…"}
    assert "max_iterations: 9\n" in config.read_text()


def test_get_shows_values_alone_and_sections_as_tables(here: Nanobot, config: Path) -> None:
    assert here("config", "get", "agent.on_busy").stdout == "steer\n"
    assert here("config", "get", "cron").stdout == (
        "key           value  from\ncron.enabled  true   default\n"
    )
    everything = here("config", "get").stdout
    assert "agent.on_busy" in everything
    assert "config.yaml:4" in everything
    unknown = here("config", "get", "agent.on_bussy")
    assert (unknown.returncode, "Did you mean 'agent.on_busy'?" in unknown.stderr) == (1, True)


def test_careful_is_said_of_what_decides_about_security(here: Nanobot, config: Path) -> None:
    careful = "can give others access or send data elsewhere: tools.exec.sandbox"
    assert careful in here("config", "set", "tools.exec.sandbox", "none", "--yes").stdout
    assert "careful" not in here("config", "set", "log.level", "debug", "--yes").stdout
    assert "careful" not in here("config", "set", "http.port", "9000", "--yes").stdout


def test_unset_brings_the_default_back(here: Nanobot, config: Path) -> None:
    done = here("config", "unset", "agent.on_busy", "--yes", "--json")
    assert json.loads(done.stdout) == {
        "changed": ["agent.on_busy"], "secrets": [], "warnings": [],
        "diff": ["-  on_busy: steer  # for now"],
    }  # fmt: skip
    assert config.read_text() == "# mine\nagent:\n  # what a message does\n"


def test_what_would_be_wrong_is_not_written(here: Nanobot, config: Path) -> None:
    before = config.read_text()
    wrong = here("config", "set", "agent.on_busy", "quue", "--yes")
    assert wrong.returncode == 78
    assert "agent.on_busy: must be 'steer', 'queue' or 'interrupt'" in wrong.stderr
    assert here("config", "set", "agent.onbusy", "queue", "--yes").returncode == 78
    assert here("config", "set", "agent.on_busy", "queue").returncode == 2  # no one to ask
    assert here("config", "set", "agent.on_busy", "--yes").returncode == 2
    assert config.read_text() == before


def test_a_broken_configuration_can_be_put_right_one_key_at_a_time(
    here: Nanobot, config: Path
) -> None:
    config.write_text("agent:\n  on_busy: quue\n  max_iterations: never\n")
    first = here("config", "set", "agent.on_busy", "queue", "--yes")
    assert first.returncode == 0
    assert "still not valid" in first.stdout
    assert here("config", "set", "log.level", "loud", "--yes").returncode == 78
    assert here("config", "unset", "agent.max_iterations", "--yes").returncode == 0
    assert here("config", "check").returncode == 0


def test_a_secret_goes_into_secrets_env_and_is_never_shown(here: Nanobot, config: Path) -> None:
    refused = here("config", "set", "model.api_key", "hush-1234567", "--yes")
    assert refused.returncode == 1
    assert "`nanobot config set --secret model.api_key`" in refused.stderr
    words = ("config", "set", "model.name", "gpt-5", "--secret", "model.api_key", "--yes")
    done = here(*words, stdin="hush-1234567\n")
    assert done.returncode == 0
    assert "+MODEL_API_KEY=…" in done.stdout
    assert "api_key: ${MODEL_API_KEY}\n" in config.read_text()
    assert (config.parent / "secrets.env").read_text() == "MODEL_API_KEY=hush-1234567\n"
    shown = here("config", "get", stdin="").stdout + here("config", "get", "--json").stdout
    assert "hush" not in done.stdout + shown
    known = here("config", "set", "model.base_url", "sk-ant-" + "abc123" * 4, "--yes")
    assert (known.returncode, "a secret" in known.stderr) == (1, True)


def test_a_server_is_added_looked_at_and_removed(
    here: Nanobot, config: Path, tmp_path: Path
) -> None:
    before, folder = config.read_text(), tmp_path / "little"
    folder.mkdir()
    added = here(
        "mcp", "add", "little", "--env", "LANG=de", "--yes", "--json", "--path", str(folder),
        "--no-test", "--", sys.executable, "-S", "-I", str(MCP_PROGRAM), str(folder), "--yes",
    )  # fmt: skip
    assert json.loads(added.stdout)["diff"] == [
        "+mcp:", "+  servers:", "+    little:", f"+      command: {sys.executable}",
        "+      args: " + json.dumps(["-S", "-I", str(MCP_PROGRAM), str(folder), "--yes"]),
        "+      env:", "+        LANG: de", f'+      paths: ["{folder}"]',
    ]  # fmt: skip
    unshut = here("config", "set", "mcp.servers.little.sandbox", "false", "--yes")
    assert "gives this server all your permissions" in unshut.stdout
    assert "not started yet" in here("mcp", "list").stdout
    assert here("mcp", "add", "little", "--url", "https://e.example/mcp", "--yes").returncode == 1
    assert here("mcp", "remove", "little", "--yes").returncode == 0
    assert config.read_text() == before + "\nmcp:\n  servers:\n"
    assert here("mcp", "remove", "little", "--yes").returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ["x"], ["x", "--url", "https://e.example/mcp", "--", "program"], [],
        ["x", "--env", "A", "--", "program"],
    ],
)  # fmt: skip
def test_a_server_is_a_program_or_an_address(here: Nanobot, home: Path, words: list[str]) -> None:
    assert here("mcp", "add", *words, "--yes").returncode == 2


def test_a_key_in_a_header_is_refused_and_a_variable_is_not(here: Nanobot, config: Path) -> None:
    there = ("mcp", "add", "t", "--url", "https://e.example/mcp")
    words = (*there, "--no-test", "--yes", "--json", "--header")
    refused = here(*words, "Authorization: Bearer abcdefgh")
    assert (refused.returncode, "--secret" in refused.stderr) == (1, True)
    (config.parent / "secrets.env").write_text("T=abc\n")
    done = here(*words, "Authorization: Bearer ${T}")
    assert '+        Authorization: "Bearer ${T}"' in json.loads(done.stdout)["diff"]


def test_the_example_is_a_configuration_with_the_defaults(here: Nanobot, config: Path) -> None:
    config.write_text(here("config", "example").stdout)
    assert here("config", "check").returncode == 0
    assert here("config", "get", "agent.on_busy").stdout == "steer\n"
