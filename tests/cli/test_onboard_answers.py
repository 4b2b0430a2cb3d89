"""Choices from a list by a typed line, and secrets at a real terminal."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterable

import pytest

from nanobot.channel import WentBack
from nanobot.cli.onboard.people import Answers, matching

MODELS = tuple(f"vendor{at % 7}/model-{at}-{'mini' if at % 3 else 'large'}" for at in range(120))


def test_words_narrow_a_list_whatever_their_order_and_case() -> None:
    assert [MODELS[at] for at in matching(MODELS, "LARGE model-11")] == [
        "vendor4/model-11-mini".replace("11-mini", "111-large").replace("vendor4", "vendor6"),
        "vendor2/model-114-large",
        "vendor5/model-117-large",
    ]
    assert matching(MODELS, "") == [*range(120)]


def answer_by_pipe(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Answers:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return Answers(back=True)


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (["118"], 117),
        (["model-117"], 117),
        (["model-11", ""], 11),
        (["model-11", "large", "MODEL-114"], 114),
        (["no such", "0", "121", "vendor6/model-6-large"], 6),
        ([""], 3),
    ],
)
def test_without_a_terminal_a_line_is_a_number_or_part_of_a_name(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lines: Iterable[str],
    chosen: int,
) -> None:
    person = answer_by_pipe(monkeypatch, *lines)
    assert asyncio.run(person.choose("Which?", MODELS, 3)) == chosen
    assert "… and 100 more" in capsys.readouterr().out


def test_back_is_an_answer_to_every_question(monkeypatch: pytest.MonkeyPatch) -> None:
    person = answer_by_pipe(monkeypatch, "<", "<", "<", "<")
    for question in (
        person.ask("Name"),
        person.ask("Key", secret=True),
        person.confirm("Sure?"),
        person.choose("Which?", MODELS),
    ):
        with pytest.raises(WentBack):
            asyncio.run(question)


_SECRET = """
import asyncio, fcntl, hashlib, os, sys, termios
from nanobot.channel import WentBack
from nanobot.cli.onboard.people import Answers
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
was = termios.tcgetattr(0)
try:
    key = asyncio.run(Answers(back=True).ask("The API key of Google Gemini", "sk-old", secret=True))
    did = f"got {hashlib.sha256(key.encode()).hexdigest()[:8]}"
except WentBack:
    did = "went back"
except KeyboardInterrupt:
    did = "left"
except Exception as error:
    did = type(error).__name__
print(did, "- all as before" if termios.tcgetattr(0) == was else "- changed", flush=True)
"""


KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyz0123456"


def digest(text: str) -> str:
    return f"got {hashlib.sha256(text.encode()).hexdigest()[:8]}"


@pytest.mark.parametrize(
    ("typed", "said", "shown"),
    [
        (f"{KEY}\r", digest(KEY), "51 characters"),
        (f"{KEY}x\x7f\r", digest(KEY), "51 characters"),
        (f"wrong\x15{KEY}\r", digest(KEY), "51 characters"),
        ("k\r", digest("k"), "•••• 1 character"),
        ("\r", digest("sk-old"), ""),
        ("<\r", "went back", ""),
        ("\x03", "left", ""),
        ("\x04", "NoAnswer", ""),
        ("sk-\udcff\r", "NanobotError", ""),
    ],
    ids=["typed", "mended", "again", "one", "kept", "back", "left", "ended", "no text"],
)
def test_of_a_secret_only_the_length_is_shown(
    environment: dict[str, str], typed: str, said: str, shown: str
) -> None:
    seen = at_a_terminal(_SECRET, environment, b"value]: ", typed, said)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\s+", " ", seen.decode())
    assert shown in re.sub(" +", " ", text), "how much was typed can be seen"
    assert not any(part in text for part in ("sk-", "0123", "wrong"))


def at_a_terminal(
    program: str, environment: dict[str, str], begins: bytes, typed: str, said: str
) -> bytes:
    """Run a program at a separate terminal, and type after the prompt `begins`. Return the output
    up to the outcome `said`."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            seen = read_until(ours, begins)
            os.write(ours, typed.encode(errors="surrogateescape"))
            # A signal that comes just before the program begins to read is seen with the next.
            again = typed.encode() if typed in ("\x03", "\x04") else b""
            seen += read_until(ours, f"{said} - all as before".encode(), again)
            assert process.wait(30) == 0
        finally:
            process.kill()
    os.close(ours)
    return seen


def read_until(terminal: int, wanted: bytes, again: bytes = b"") -> bytes:
    """Return the output of a program up to some words. Fail if it ends or is silent. In that case
    `again` is typed first, once."""
    seen = b""
    while wanted not in seen:
        if again and not select.select([terminal], [], [], 5.0)[0]:
            os.write(terminal, again)
            again = b""
        assert select.select([terminal], [], [], 60.0)[0], seen
        seen += os.read(terminal, 4_096)
    return seen
