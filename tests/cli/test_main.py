"""The command line itself: its imports, errors, and output."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanobot import __version__
from nanobot.cli.main import main
from nanobot.cli.parser import build_parser
from nanobot.errors import ConfigError, HomeLocked, NanobotError
from nanobot.gateway.lock import home_lock

HEAVY = {
    "asyncio", "pydantic", "loguru", "openai", "rich", "prompt_toolkit", "yaml", "aiohttp",
    "inspect", "dataclasses", "importlib.metadata", "shtab", "email", "logging", "ssl",
}  # fmt: skip


def modules_after(code: str, environment: dict[str, str]) -> set[str]:
    probe = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=environment, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_is_answered_without_loading_anything(environment: dict[str, str]) -> None:
    code = "from nanobot.cli.main import main; main(['--version'])"
    loaded = modules_after(code, environment)
    assert not loaded & (HEAVY | {"argparse", "json", "socket", "pathlib", "re"})


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--home", "x", "-h"], ["statsu"]])
def test_the_list_of_commands_loads_no_command(
    environment: dict[str, str], arguments: list[str]
) -> None:
    code = f"from nanobot.cli.main import main; main({arguments})"
    ours = {name for name in modules_after(code, environment) if name.startswith("nanobot")}
    assert ours <= {
        "nanobot", "nanobot.cli", "nanobot.cli.main", "nanobot.cli.search_paths",
        "nanobot.cli.parser", "nanobot.cli.command", "nanobot.errors",
        "nanobot.validation", "nanobot.text",  # to suggest a command
    }  # fmt: skip


def test_a_command_after_the_home_loads_no_other_command(environment: dict[str, str]) -> None:
    code = "from nanobot.cli.main import main; main(['--home', 'x', 'gateway', '--help'])"
    assert not modules_after(code, environment) & {"nanobot.cli.agent", "nanobot.cli.client"}


def test_a_message_to_a_running_gateway_loads_only_light_modules(
    gateway: Any, environment: dict[str, str]
) -> None:
    code = "from nanobot.cli.main import main; main(['agent', '-m', 'hi'])"
    loaded = modules_after(code, environment)
    assert not loaded & (HEAVY | {"datetime", "subprocess", "threading"})
    assert gateway.said == [("cli:direct", "hi")]


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main([option]) == 0
    assert capsys.readouterr().out == f"nanobot {__version__}\n"


def test_without_a_command_it_says_what_there_is(nanobot: Any) -> None:
    done = nanobot()
    assert done.returncode == 0
    assert "nanobot agent" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("dance", "nanobot: unknown command 'dance'. See `nanobot --help`."),
        ("statsu", "nanobot: unknown command 'statsu'. Did you mean status?"),
        ("mcp dd", "nanobot mcp: unknown command 'dd'. Did you mean add?"),
        ("status --jsn", "nanobot status: unknown option --jsn. Did you mean --json?"),
        (
            "status --home x",
            "nanobot status: --home must come before the command: nanobot --home DIR …",
        ),
        ("status extra", "nanobot status: unexpected argument 'extra'"),
        ("sessions --foo list", "nanobot sessions: unknown option --foo"),
        (
            "sessions show k -n 0",
            "nanobot sessions show: argument -n: '0' is not a positive number",
        ),
        ("mcp add", "nanobot mcp add: the following arguments are required: NAME. See"),
        ("mcp add x --ulr y -- a --foo", "unknown option --ulr. Did you mean --url?"),
        ("onboard --modl-name x", "Did you mean --model-name?"),
        ("onboard --provider opnai", "unknown --provider 'opnai'. Did you mean openai?"),
        ("onboard --own x", "could match --owner-telegram, --owner-whatsapp, --owner-name"),
        ("memory restore", "one of the arguments --list --version --to is required"),
        ("completion fish", "unknown shell 'fish'"),
    ],
)
def test_wrong_usage_is_said_in_one_line_and_exits_2(
    capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    assert main(arguments.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: nanobot")
    assert said in shown.err
    assert shown.err.count("\n") == 1, "no usage"


def commands_of(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """Yield each command that runs something, as typed."""
    below = [one for one in vars(parser)["_actions"] if isinstance(one.choices, dict)]
    if not below:
        yield parser.prog.split()[1:]
    for action in below:
        for inner in action.choices.values():
            yield from commands_of(inner)


def test_every_command_says_in_one_line_that_it_has_no_such_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = list(commands_of(build_parser()))
    assert len(commands) > 60
    for command in commands:
        assert main([*command, "--no-such-option"]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1, shown.err
        assert shown.err.startswith(f"error: nanobot {' '.join(command)}: ")


def test_home_is_an_option_an_environment_variable_or_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from nanobot.cli.command import home_of

    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("NANOBOT_HOME", str(tmp_path / "env"))
    monkeypatch.chdir(tmp_path)
    parse = build_parser().parse_args
    assert home_of(parse(["--home", "here", "status"])) == tmp_path / "here"
    assert home_of(parse(["status"])) == tmp_path / "env"
    monkeypatch.setenv("NANOBOT_HOME", "")
    assert home_of(parse(["status"])) == tmp_path / "me" / ".nanobot"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--home", "~nosuch/x", "status"), ("backup", "~nosuch/x"),
        ("backup", "keygen", "~nosuch/x"), ("backup", "verify", "~nosuch/x"),
        ("restore", "~nosuch/x"), ("import", "~nosuch/x"),
    ],
)  # fmt: skip
def test_a_path_of_a_user_that_is_not_there_is_an_error_in_words(
    home: Path, here: Any, arguments: tuple[str, ...]
) -> None:
    home.mkdir(mode=0o700)
    done = here(*arguments)
    assert done.returncode == 1
    assert "error: the home folder of the user in '~nosuch/x' is unknown\n" in done.stderr


def test_the_home_option_reaches_the_gateway_of_that_home(
    gateway: Any, nanobot: Any, environment: dict[str, str], home: Path
) -> None:
    environment["NANOBOT_HOME"] = str(home.parent / "elsewhere")
    assert nanobot("--home", str(home), "agent", "-m", "hi").stdout == "echo: hi\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NanobotError("it broke"), 1, "error: it broke\n"),
        (NanobotError("it broke", hint="Mend it."), 1, "error: it broke\n  Mend it.\n"),
        (ConfigError("is wrong", file="c.yaml", line=3, key="model"), 78, "c.yaml:3: model: is"),
        (HomeLocked(Path("/h"), 12), 75, "another nanobot (pid 12) is using /h"),
        (NanobotError("\x1b[2Jcleared"), 1, "error: cleared\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_expected_error_is_words_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    assert run_and_raise(monkeypatch, error) == code
    errors = capsys.readouterr().err
    assert text in errors
    assert "Traceback" not in errors


def test_an_unexpected_error_is_one_sentence_and_a_traceback_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NANOBOT_DEBUG", raising=False)
    assert run_and_raise(monkeypatch, ValueError("what\nnow")) == 70
    errors = capsys.readouterr().err
    assert errors.startswith("error: unexpected ValueError: what now\n")
    assert "logs/" in errors
    assert "NANOBOT_DEBUG=1" in errors
    assert "Traceback" not in errors
    monkeypatch.setenv("NANOBOT_DEBUG", "1")
    assert run_and_raise(monkeypatch, ValueError("what\nnow")) == 70
    assert "Traceback" in capsys.readouterr().err


def run_and_raise(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """Return the exit code of a command that ends with `error`."""

    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr("nanobot.config.schema.config_schema", fail)
    return main(["config", "schema"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_a_script_for_the_shell(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "nanobot" in script
    assert "sessions" in script


def test_the_bash_completion_is_valid_bash(nanobot: Any) -> None:
    script = nanobot("completion", "bash").stdout
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_the_schema_of_the_configuration_is_json(here: Any) -> None:
    done = here("config", "schema")
    assert json.loads(done.stdout)["type"] == "object"


def test_a_good_configuration_is_said_to_be_good(here: Any, home: Path) -> None:
    done = here("config", "check")
    assert (done.returncode, "the defaults apply" in done.stdout) == (0, True)
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("agent:\n  on_busy: queue\n")
    (home / "config.yaml").chmod(0o600)
    done = here("config", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "is valid" in done.stdout


def test_a_wrong_configuration_exits_78_with_file_and_line(here: Any, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("agent:\n  tmestamps: off\n")
    done = here("config", "check")
    assert done.returncode == 78
    assert f"{home / 'config.yaml'}:2" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gateway_on_a_home_in_use_exits_75_and_names_the_pid(nanobot: Any, home: Path) -> None:
    with home_lock(home / "state"):
        done = nanobot("gateway")
    assert done.returncode == 75
    assert "another nanobot (pid " in done.stderr
