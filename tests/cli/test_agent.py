"""`nanobot agent` as a process, through the socket of a running gateway."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import main


def test_a_one_shot_prints_the_reply_and_nothing_else(gateway: Any, here: Any) -> None:
    done = here("agent", "-m", "hi\nthere")
    assert (done.stdout, done.stderr, done.returncode) == ("echo: hi\nthere\n", "", 0)
    assert gateway.said == [("cli:direct", "hi\nthere")]


def test_a_one_shot_can_speak_in_any_session(gateway: Any, here: Any) -> None:
    assert here("agent", "-m", "hi", "--session", "telegram:123").returncode == 0
    assert gateway.said == [("telegram:123", "hi")]


def test_json_has_the_reply_and_what_it_took(gateway: Any, here: Any) -> None:
    done = here("agent", "-m", "tool please", "--json")
    assert json.loads(done.stdout) == {
        "reply": "used it",
        "messages": [],
        "tools": ["read_file"],
        "tokens": {"prompt": 11, "completion": 22},
        "milliseconds": 33,
        "session": "cli:direct",
        "turn": "t-1",
        "outcome": "done",
    }
    assert done.stderr == "note: the disk is nearly full\n"


def test_what_is_said_before_the_reply_is_printed_first_with_where_its_files_lie(
    gateway: Any, here: Any
) -> None:
    done = here("agent", "-m", "send your file")
    assert done.stdout == ("your file\n[file] a.txt (1,234 bytes): /h/media/ab.txt\nthat was it\n")


def test_a_reply_that_was_said_before_is_not_printed_again(gateway: Any, here: Any) -> None:
    done = here("agent", "-m", "send it all")
    assert done.stdout == "it all\n[file] a.txt (1,234 bytes): /h/media/ab.txt\n"


def test_json_lists_what_was_said_before_the_reply(gateway: Any, here: Any) -> None:
    told = json.loads(here("agent", "-m", "send your file", "--json").stdout)
    file = {"name": "a\x1b[1m.txt", "path": "/h/media/ab.txt", "size": 1_234}
    assert told["messages"] == [{"text": "your file", "files": [file]}]
    assert told["reply"] == "that was it"


def test_without_a_terminal_a_question_is_not_approved_at_once_and_said_on_the_error_stream(
    gateway: Any, here: Any
) -> None:
    done = here("agent", "-m", "ask A1 A2")
    assert (done.stdout, done.returncode) == ("/deny /deny\n", 0)
    assert [text for _, text in gateway.said][1:] == ["/deny A1 unseen", "/deny A2 unseen"]
    assert done.stderr.splitlines() == [
        "May I do A1?",
        "Not approved, because approval requires a terminal.",
        "May I do A2?",
        "Not approved, because approval requires a terminal.",
    ]


def test_at_a_terminal_the_person_is_asked_one_question_after_the_other(
    gateway: Any, environment: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    told = ""
    with subprocess.Popen(
        [sys.executable, "-m", "nanobot", "agent", "-m", "ask A1 A2"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment,
    ) as process:  # fmt: skip
        for asked, answer in enumerate((b"what?\n", b"y\n", b"n\n"), 1):
            while told.count("n: Deny: ") < asked:
                told += os.read(ours, 65_536).decode()
            os.write(ours, answer)
        output, _ = process.communicate(timeout=30)
    os.close(theirs)
    os.close(ours)
    assert (output, process.returncode) == (b"/approve /deny\n", 0)
    assert told.index("May I do A1?") < told.index("May I do A2?")
    assert told.count("y: Approve · n: Deny: ") == 3
    assert [text for _, text in gateway.said] == ["ask A1 A2", "/approve A1", "/deny A2"]


@pytest.mark.parametrize("word", ["fail", "wait"])
def test_a_turn_that_failed_or_waits_prints_its_text_and_exits_1(
    gateway: Any, here: Any, word: str
) -> None:
    done = here("agent", "-m", f"{word} now")
    assert (done.stdout, done.returncode) == (f"{word}: sorry\n", 1)


def test_a_dash_reads_the_whole_of_standard_input(gateway: Any, here: Any) -> None:
    assert here("agent", "-m", "-", stdin="one\n\ntwo\n").stdout == "echo: one\n\ntwo\n"


def test_each_line_of_a_pipe_is_a_message_and_gets_one_reply_in_order(
    gateway: Any, here: Any
) -> None:
    done = here("agent", stdin="one\n\n   \ntwo\u2028still two\r\nthree")
    assert done.stdout == "echo: one\necho: two\nstill two\necho: three\n"
    assert done.returncode == 0


def test_a_pipe_with_one_failure_goes_on_and_exits_1(gateway: Any, here: Any) -> None:
    done = here("agent", "--json", stdin="fail\nok\n")
    assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == ["failed", "done"]
    assert done.returncode == 1


def test_an_empty_pipe_is_no_error_and_needs_no_gateway(here: Any) -> None:
    done = here("agent", stdin="\n")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_ten_megabytes_go_there_and_back(gateway: Any, here: Any) -> None:
    text = "x" * 10_000_000
    assert here("agent", "-m", "-", stdin=f"say {text}").stdout == f"{text}\n"


def test_a_message_beyond_the_cap_is_refused_in_words(
    gateway: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(home), "agent", "-m", "x" * (64 * 1024 * 1024)]) == 1
    errors = capsys.readouterr().err
    assert "too large" in errors
    assert "file in the workspace" in errors
    assert gateway.said == []


def test_bytes_that_are_no_text_do_not_stop_a_pipe(gateway: Any, here: Any) -> None:
    assert here("agent", stdin=b"a\xffb\n").stdout == "echo: a\ufffdb\n"


@pytest.mark.parametrize("arguments", [("-m", " "), ("-m", "x", "--session", "nocolon")])
def test_what_makes_no_sense_is_wrong_usage(here: Any, arguments: tuple[str, ...]) -> None:
    done = here("agent", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_a_refusal_is_an_error_with_its_hint(gateway: Any, here: Any) -> None:
    done = here("agent", "-m", "refuse this")
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == "error: not today\n  Try tomorrow.\n"


def test_a_gateway_that_goes_away_keeps_the_message_and_says_so(gateway: Any, here: Any) -> None:
    done = here("agent", "-m", "die", "--session", "cli:work")
    assert done.returncode == 69
    assert "Accepted messages are kept and answered after a restart" in done.stderr
    assert "nanobot sessions show cli:work" in done.stderr


def test_escape_sequences_in_a_reply_do_not_reach_a_pipe(gateway: Any, here: Any) -> None:
    done = here("agent", "-m", "say \x1b]0;owned\x07\x1b[2Jtext \x9b31mred\ttab")
    assert done.stdout == "text red\ttab\n"


def test_ctrl_c_stops_the_turn_and_exits_130(gateway: Any, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "nanobot", "agent", "-m", "hang on"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        assert gateway.arrived.get(timeout=30) == "hang on"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (130, b"", b"")
    assert gateway.said[-1] == ("cli:direct", "/stop")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["agent", "-m", "hi"], ["agent", "-m", "say “hi”"]]
)
def test_a_full_disk_under_the_output_is_said_and_exits_74(
    gateway: Any, environment: dict[str, str], arguments: list[str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nanobot", *arguments],
            stdout=full, stderr=subprocess.PIPE, env=environment, timeout=30, check=False,
        )  # fmt: skip
    assert done.stderr == b"error: cannot write the output: No space left on device\n"
    assert done.returncode == 74


@pytest.mark.parametrize("arguments", [["agent", "-m", "hi"], ["doctor"]])
def test_a_closed_pipe_ends_it_quietly(
    gateway: Any, environment: dict[str, str], arguments: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "nanobot", *arguments],
            stdout=writing, stderr=subprocess.PIPE, timeout=30, check=False,
            env=environment | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
