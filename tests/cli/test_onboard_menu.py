"""A list that is chosen from: what keys do, what a line does, and both at a real terminal."""

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
from nanobot.cli.onboard.menu import Menu, matching
from nanobot.cli.onboard.people import Answers

MODELS = tuple(f"vendor{at % 7}/model-{at}-{'mini' if at % 3 else 'large'}" for at in range(120))


def after(menu: Menu, *keys: str) -> Menu:
    for key in keys:
        menu = menu.after(key)
    return menu


def test_words_narrow_a_list_whatever_their_order_and_case() -> None:
    assert [MODELS[at] for at in matching(MODELS, "LARGE model-11")] == [
        "vendor4/model-11-mini".replace("11-mini", "111-large").replace("vendor4", "vendor6"),
        "vendor2/model-114-large",
        "vendor5/model-117-large",
    ]
    assert matching(MODELS, "") == [*range(120)]


def test_what_is_typed_narrows_and_the_mark_stays_among_what_is_left() -> None:
    menu = after(Menu(MODELS, at=5), *"model-117")
    assert [MODELS[at] for at in menu.left] == ["vendor5/model-117-large"]
    assert menu.at == 117
    assert after(menu, *["c-h"] * 9).left == [*range(120)]
    assert after(menu, "c-u").left == [*range(120)]
    nothing = after(menu, *"xyz", "down")
    assert nothing.left == []
    assert "nothing has that" in "\n".join(nothing.lines("Which?", 80))


def test_a_number_marks_the_one_that_has_it_and_hides_none() -> None:
    menu = after(Menu(MODELS), "7", "7")
    assert (menu.at, len(menu.left)) == (76, 120)
    assert after(menu, "7").left == [], "there is no 777, in a name neither"
    assert after(menu, "c-h").at == 6


def test_arrows_go_round_and_pages_stop_at_the_ends() -> None:
    menu = Menu(MODELS, rows=16)
    assert after(menu, "up").at == 119
    assert after(menu, "up", "down").at == 0
    assert after(menu, "pagedown", "pagedown", "pageup").at == 16
    assert after(menu, "pageup").at == 0
    assert after(menu, "end", "pagedown").at == 119
    assert after(menu, "end", "home").at == 0
    assert after(after(menu, *"large"), "down").at == 3


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_line_is_wider_than_the_terminal_nor_more_than_it_holds(width: int) -> None:
    wide = (*MODELS, "漢字" * 60)
    lines = after(Menu(wide, rows=10), "end").lines("Which of its models?", width)
    assert len(lines) == 12
    assert all(sum(1 + (letter > "\u2e80") for letter in line) < width for line in lines)
    assert any(line.startswith("> 121. ") for line in lines)


def test_keys_that_mean_nothing_type_nothing() -> None:
    assert after(Menu(MODELS), "right", "c-a", "\x1b") == Menu(MODELS)


def piped(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Answers:
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
    person = piped(monkeypatch, *lines)
    assert asyncio.run(person.choose("Which?", MODELS, 3)) == chosen
    assert "… and 100 more" in capsys.readouterr().out


def test_back_is_an_answer_to_every_question(monkeypatch: pytest.MonkeyPatch) -> None:
    person = piped(monkeypatch, "<", "<", "<", "<")
    for question in (
        person.ask("Name"),
        person.ask("Key", secret=True),
        person.confirm("Sure?"),
        person.choose("Which?", MODELS),
    ):
        with pytest.raises(WentBack):
            asyncio.run(question)


_CHOOSE = """
import asyncio, fcntl, termios
from nanobot.channel import WentBack
from nanobot.cli.onboard.people import Answers
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that its Ctrl-C is for this process
was = termios.tcgetattr(0)
names = [f"model-{at}" for at in range(120)]
try:
    did = f"took {names[asyncio.run(Answers(back=True).choose('Which?', names))]}"
except WentBack:
    did = "went back"
except KeyboardInterrupt:
    did = "left"
print(did, "- all as before" if termios.tcgetattr(0) == was else "- changed", flush=True)
"""


_SECRET = """
import asyncio, fcntl, hashlib, os, sys, termios
from nanobot.channel import WentBack
from nanobot.cli.onboard.people import Answers
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
was = termios.tcgetattr(0)
size = os.environ.get("WIDTH", "80")
os.environ["COLUMNS"] = size
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


@pytest.mark.parametrize(
    ("term", "typed", "said"),
    [
        ("xterm", "\x1b[B\x1b[B\r", "took model-2"),
        ("xterm", "117\x1b[A\r", "took model-115"),
        ("xterm", "l-99\r", "took model-99"),
        ("xterm", "117\n", "took model-116"),
        ("xterm", "117\x1bx\r", "took model-116"),
        ("xterm", "\x1b[D", "went back"),
        ("xterm", "<", "went back"),
        ("xterm", "\x03", "left"),
        ("dumb", "l-99\n", "took model-99"),
        ("dumb", "<\n", "went back"),
    ],
)
def test_at_a_terminal_keys_do_what_they_say_and_the_terminal_is_as_it_was(
    environment: dict[str, str], term: str, typed: str, said: str
) -> None:
    begins = b"<: back)" if term == "xterm" else b"[1]:"
    seen = at_a_terminal(_CHOOSE, environment | {"TERM": term}, begins, typed, said)
    assert (b"\x1b[" in seen) == (term == "xterm"), "a dumb terminal gets lines alone"


KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyz0123456"


def digest(text: str) -> str:
    return f"got {hashlib.sha256(text.encode()).hexdigest()[:8]}"


@pytest.mark.parametrize("width", ["60", "100"])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize(
    ("typed", "said", "shown"),
    [
        (f"{KEY}\r", digest(KEY), "51 characters"),
        (f"\x1b[200~{KEY}\n\x1b[201~\r", digest(KEY), "51 characters"),
        (f"{KEY}x\x7f\r", digest(KEY), "51 characters"),
        (f"wrong\x15{KEY}\r", digest(KEY), "51 characters"),
        ("k\r", digest("k"), "•••• 1 character"),
        ("\r", digest("sk-old"), ""),
        ("<\r", "went back", ""),
        ("\x03", "left", ""),
        ("\x04", "Unanswered", ""),
        ("sk-\udcff\r", "NanobotError", ""),
    ],
    ids=["typed", "pasted", "mended", "again", "one", "kept", "back", "left", "ended", "no text"],
)
def test_of_a_secret_only_the_length_is_shown(
    environment: dict[str, str], term: str, width: str, typed: str, said: str, shown: str
) -> None:
    if term == "dumb":  # it marks no paste
        typed = re.sub(r"\x1b\[20[01]~", "", typed)
    more = {"TERM": term, "WIDTH": width, "NO_COLOR": "1"}
    seen = at_a_terminal(_SECRET, environment | more, b"there]", typed, said)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\s+", " ", seen.decode())
    assert shown in re.sub(" +", " ", text), "how much was typed can be seen"
    assert not any(part in text for part in ("sk-", "0123", "wrong"))


def at_a_terminal(
    program: str, environment: dict[str, str], begins: bytes, typed: str, said: str
) -> bytes:
    """Run a program at a terminal of its own, and type once it `begins` to ask; what it shows until
    it has `said` how it ended."""
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
    """What a program shows up to some words. Fails where it ends, or says nothing more; `again` is
    typed then, once."""
    seen = b""
    while wanted not in seen:
        if again and not select.select([terminal], [], [], 5.0)[0]:
            os.write(terminal, again)
            again = b""
        assert select.select([terminal], [], [], 60.0)[0], seen
        seen += os.read(terminal, 4_096)
    return seen
