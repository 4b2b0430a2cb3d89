"""`nanobot onboard`, from the command line to a first reply, against local servers."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import INTERRUPTED
from tests.cli.support import Nanobot
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram.server import FakeTelegram

pytestmark = pytest.mark.process

KEY, WRONG = "sk-right-0123456789", "sk-wrong-0123456789"
MINE = """\
# my own words
model:
    name:   'other-model'   # for now
    base_url: http://127.0.0.1:9/v1
tools: {exec: {enabled: false}}
"""


@pytest.fixture
def serving() -> Iterator[Callable[[Any], None]]:
    """Run servers in a separate loop, because the command line needs the main thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    entered: list[Any] = []

    def serve(server: Any) -> None:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        entered.append(server)

    yield serve
    for server in entered:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def model(serving: Callable[[Any], None]) -> FakeOpenAI:
    server = FakeOpenAI(lambda _: "Here I am.", api_key=KEY)
    serving(server)
    return server


@pytest.fixture
def telegram(serving: Callable[[Any], None]) -> FakeTelegram:
    server = FakeTelegram()
    serving(server)
    return server


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.delenv("NANOBOT_HOME", raising=False)


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_without_questions_everything_is_tried_written_and_answers(
    home: Path, here: Nanobot, model: FakeOpenAI
) -> None:
    done = here(
        *("onboard", "--non-interactive", "--json", "--timezone", "Europe/Berlin"),
        *("--base-url", model.base_url, "--model-name", "tiny", "--api-key-env", "MY_KEY"),
        *("--owner-name", "Ada"),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["reply"] == "Here I am."
    assert model.requests[-1].last_user_text.endswith("Hello!")
    config, secrets = home / "config.yaml", home / "secrets.env"
    assert secrets.read_text() == f"MY_KEY={KEY}\n"
    assert "api_key: ${MY_KEY}" in config.read_text()
    assert {path.stat().st_mode & 0o777 for path in (config, secrets)} == {0o600}
    assert "- Name: Ada\n" in (home / "workspace/USER.md").read_text()
    asked = len(model.requests)
    again = here("onboard", "--non-interactive", "--owner-name", "Ada")
    assert "Nothing to change." in again.stderr
    assert len(model.requests) == asked


def test_what_does_not_work_is_said_and_nothing_is_written(
    home: Path, here: Nanobot, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, WRONG)
    asked = ("onboard", "--non-interactive", "--base-url", model.base_url, "--api-key-stdin")
    done = here(*asked)
    assert done.returncode == 1
    assert "401" in done.stderr
    assert WRONG not in done.stderr + done.stdout
    assert not home.exists()
    assert "a model is required" in here("onboard", "--non-interactive").stderr
    assert not home.exists()


def test_a_window_that_is_too_small_ends_a_script_and_nothing_is_written(
    home: Path, here: Nanobot, serving: Callable[[Any], None]
) -> None:
    props = {"default_generation_settings": {"n_ctx": 2_048}}
    server = FakeOpenAI(lambda _: "Here I am.", pages={"/props": props})
    serving(server)
    asked = ("--base-url", server.base_url, "--model-name", "fake-model")
    done = here("onboard", "--non-interactive", *asked)
    assert done.returncode == 1
    assert done.stderr.count("2,048") == 1
    assert "--ctx-size" in done.stderr
    assert "does not say" not in done.stderr
    assert not home.exists()


@pytest.mark.parametrize("test", [(), ("--no-test",)], ids=["tried", "not tried"])
def test_an_input_that_is_no_utf_8_is_an_error_in_words(
    home: Path,
    here: Nanobot,
    model: FakeOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    test: tuple[str, ...],
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"sk-\xff\n"), "utf-8", "strict"))
    asked = ("--non-interactive", "--base-url", model.base_url, "--model-name", "tiny")
    done = here("onboard", *asked, "--api-key-stdin", *test)
    assert done.returncode == 1
    assert re.search("Copy (only )?the key", done.stderr)
    assert not home.exists()


def test_with_questions_the_owner_is_found_and_the_rest_of_the_file_stays(
    home: Path,
    here: Nanobot,
    model: FakeOpenAI,
    telegram: FakeTelegram,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(MINE)
    telegram.say("it is me")
    asked = (
        *("onboard", "--no-test", "--base-url", model.base_url, "--api-key-env", "MY_KEY"),
        *("--model-name", "other-model", "--telegram-base-url", telegram.base_url),
    )
    type_lines(monkeypatch, telegram.token, "7", "n", "y", "Ada", "UTC", "n")
    assert "Nothing was changed." in here(*asked).stdout
    assert (home / "config.yaml").read_text() == MINE
    type_lines(monkeypatch, telegram.token, "7", "n", "y", "Ada", "UTC", "y")
    done = here(*asked)
    assert done.returncode == 0, done.stderr
    new = (home / "config.yaml").read_text()
    assert new.startswith(
        MINE.replace("http://127.0.0.1:9/v1", model.base_url).partition("tools:")[0]
    )
    assert "tools: {exec: {enabled: false}}\n" in new
    assert 'owner:\n  telegram: ["7"]' in new
    secrets = (home / "secrets.env").read_text()
    assert secrets == f"MY_KEY={KEY}\nTELEGRAM_TOKEN={telegram.token}\n"
    assert "nanobot --home" in done.stdout


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["--offline", "--model-name", "x"], "--offline cannot be combined with --model-name", 2),
        (["--api-key-stdin", "--api-key-env", "MY_KEY"], "cannot be combined", 2),
        (["--offline", "--owner-telegram", "12345"], "an answer is required", 1),
    ],
)
def test_options_that_make_no_sense_together_are_refused(
    home: Path, here: Nanobot, options: list[str], said: str, code: int
) -> None:
    done = here("onboard", "--non-interactive", *options)
    assert done.returncode == code
    assert said in done.stderr
    assert not home.exists()


def test_answers_that_end_too_early_leave_everything_as_it_was(
    home: Path, here: Nanobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(MINE)
    type_lines(monkeypatch, "n", "n", "n", "y", "Ada")
    done = here("onboard")
    assert done.returncode == 1
    assert "ended before the last question" in done.stderr
    assert [path.name for path in home.iterdir()] == ["config.yaml"]
    (home / "config.yaml").write_text("modell: {}\n")
    assert "Fix it, or move" in here("onboard", "--non-interactive", "--offline").stderr


def test_a_gateway_that_runs_with_other_settings_is_not_taken_for_the_new_one(
    gateway: Any, here: Nanobot
) -> None:
    done = here("onboard", "--non-interactive", "--offline", "--timezone", "UTC", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["restart_needed"] is True
    assert told["reply"] is None
    assert gateway.said == []
    again = here("onboard", "--non-interactive", "--offline", "--timezone", "UTC")
    assert "Nothing to change." in again.stderr
    assert gateway.said == []  # there is nothing new to try


def test_ctrl_c_leaves_nothing_behind(home: Path, environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    environment["TERM"] = "xterm"
    command = [sys.executable, "-m", "nanobot", "onboard", "--offline"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        seen = b""
        while b"Set up Telegram? [y/N]:" not in seen:
            seen += os.read(ours, 4_096)
        process.send_signal(signal.SIGINT)  # as Ctrl-C does in its own terminal
        while b"Nothing was changed" not in seen:
            if select.select([ours], [], [], 1.0)[0]:
                seen += os.read(ours, 4_096)
            else:  # it came just before the process began to wait for a line
                process.send_signal(signal.SIGINT)
        assert process.wait(30) == INTERRUPTED
    os.close(ours)
    assert not home.exists()
