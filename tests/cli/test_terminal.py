"""The chat on a real pseudo-terminal, against a gateway with a scripted chat behind it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

PATIENCE = 20.0
"""Seconds until a test gives up. No test waits for time to pass."""


class Screen:
    """The person's side of the terminal: its output and their keys."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor, self.process = descriptor, process
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, text: str) -> str:
        """Read until `text` comes. Return and forget everything up to its end."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert self._read(), f"it ended without {text!r}: {self.seen!r}"
            assert time.monotonic() < deadline, f"not shown: {text!r}: {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def echoes(self) -> bool:
        """Return True if the terminal echoes and reads line by line."""
        flags = termios.tcgetattr(self._descriptor)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

    def end(self) -> int:
        """Read the rest of the output, and return the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        """Read available output. Return False at the end."""
        assert select.select([self._descriptor], [], [], PATIENCE)[0], f"silent: {self.seen!r}"
        try:
            block = os.read(self._descriptor, 65_536)
        except OSError:  # the other side is closed
            return False
        self.seen += block.decode("utf-8", "replace")
        return bool(block)


Chat = Callable[..., Any]


@pytest.fixture
def chat(gateway: Any, environment: dict[str, str]) -> Chat:
    @contextmanager
    def start(*arguments: str, **variables: str) -> Iterator[Screen]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "nanobot", "agent", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=environment
            | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
            | variables,
        )  # fmt: skip
        os.close(theirs)
        try:
            yield Screen(ours, process)
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    return start


def test_it_greets_answers_and_leaves_with_ctrl_d(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        assert "tiny-1" in screen.wait_for("/help")
        screen.wait_for(">")
        screen.type("hello\r")
        screen.wait_for("echo: hello")
        screen.wait_for(">")
        screen.type("\x04")
        assert screen.end() == 0
    assert gateway.said == [("cli:direct", "hello")]


def test_the_built_in_model_says_what_it_is_and_how_a_real_one_is_connected(
    chat: Chat, gateway: Any
) -> None:
    gateway.answers["status.conversation"] = {"model": "offline", "offline": True}
    with chat() as screen:
        header = " ".join(screen.wait_for("Try:").split())
    assert "a small program, not a language model. It remembers, reminds" in header
    assert "run: nanobot onboard" in header


@pytest.mark.parametrize("leave", ["exit\r", "/quit\r"])
def test_a_word_or_a_key_at_the_empty_prompt_leaves(chat: Chat, gateway: Any, leave: str) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type(leave)
        assert screen.end() == 0
    assert gateway.said == []


def test_what_is_sent_before_the_reply_is_shown_once_with_where_the_file_lies(
    chat: Chat, gateway: Any
) -> None:
    with chat(TERM="dumb") as screen:
        screen.wait_for(">")
        screen.type("send it all\r")
        shown = screen.wait_for("[file] a.txt (1,234 bytes): /h/media/ab.txt")
        assert "it all" in shown.rpartition("send it all")[2]
        assert "it all" not in screen.wait_for(">")
        screen.type("send more\r")
        screen.wait_for("that was it")


def test_alt_enter_breaks_the_line_ctrl_c_clears_it_and_pasted_lines_are_one_message(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("wrong\x03")
        screen.type("one\x1b\rtwo\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "one\ntwo"
        screen.type("\x1b[200~three\nfour\x1b[201~\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "three\nfour"


def test_a_long_paste_is_folded_can_be_opened_and_is_sent_in_full(chat: Chat, gateway: Any) -> None:
    pasted = "\n".join(f"line {number}" for number in range(120))
    with chat() as screen:
        screen.wait_for(">")
        screen.type(f"see \x1b[200~{pasted}\x1b[201~")
        screen.wait_for("see [pasted 120 lines]")
        screen.type("\r")
        assert gateway.arrived.get(timeout=PATIENCE) == f"see {pasted}"
        assert "line 7" not in screen.wait_for("echo: see").split("see [pasted 120 lines]")[-1]
        screen.wait_for(">")
        screen.type(f"\x1b[200~{pasted}\x1b[201~\x7fgone\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "gone"
        screen.type(f"\x1b[200~{pasted}\x1b[201~\x0f\x7f\r")
        assert gateway.arrived.get(timeout=PATIENCE) == pasted[:-1]
        screen.type(f"\x1b[200~!{pasted}\x1b[201~\r")
        assert gateway.arrived.get(timeout=PATIENCE) == f"!{pasted}"


def test_a_file_after_at_is_completed_and_attached(
    chat: Chat, gateway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my notes.txt").write_text("tea")
    monkeypatch.chdir(tmp_path)
    with chat() as screen:
        screen.wait_for(">")
        screen.type("read @no\t")
        screen.wait_for("my notes.txt")
        screen.type("\t and @missing\r")
        assert gateway.arrived.get(timeout=PATIENCE) == 'read @"my notes.txt" and @missing'
        screen.wait_for("[attached: my notes.txt (3 bytes)]")
        pasted = "\n" * 6 + 'see @"my notes.txt"'
        screen.type(f"\x1b[200~{pasted}\x1b[201~\r")
        assert gateway.arrived.get(timeout=PATIENCE) == pasted
    assert gateway.attached == [{"name": "my notes.txt", "data": "dGVh"}]


def test_a_file_that_cannot_be_attached_keeps_the_message_in_the_line(
    chat: Chat, gateway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(21 << 20)
    monkeypatch.chdir(tmp_path)
    with chat() as screen:
        screen.wait_for(">")
        screen.type("read @big\r")
        screen.wait_for("big is too large to attach (limit: 20 MB per message)")
        screen.type("\x7f\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "read @bi"


def test_an_exclamation_mark_runs_a_command_whose_output_is_shown_once(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("!print it\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/run print it"
        assert "!print it" in screen.wait_for("line 9")
        screen.type("/stop\r")
        assert "line 9" not in screen.wait_for("built").rpartition("/stop")[2]


def test_the_menu_takes_as_many_rows_as_it_has_entries(chat: Chat, gateway: Any) -> None:
    gateway.answers["commands"] = [{"name": f"c{n}", "summary": "…"} for n in range(30)]
    with chat() as screen:
        screen.wait_for(">")
        screen.type("/c2")
        shown = screen.wait_for("/c28")
        assert [f"/c{n}" in shown for n in (2, 20, 28)] == [True] * 3


def test_ctrl_c_stops_the_turn_and_the_chat_goes_on(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("hang on\r")
        screen.wait_for("so far")
        os.kill(screen.process.pid, signal.SIGINT)
        screen.wait_for("stopped")
        screen.wait_for(">")
        screen.type("still here\r")
        screen.wait_for("echo: still here")
    assert ("cli:direct", "/stop") in gateway.said


def test_what_a_turn_does_is_shown_while_it_runs(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("tool\r")
        screen.wait_for("· read_file a.txt — 1 kB")
        screen.wait_for("the disk is nearly full")
        screen.wait_for("used it")


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_reply_cannot_control_the_terminal(chat: Chat, gateway: Any, terminal: str) -> None:
    gateway.texts["be evil"] = (
        "\x1b]0;owned\x07\x1b[2J\x9b2J &#27;[2J `\x1b[8m` [x](http://y\x1b[2J)"
    )
    with chat(TERM=terminal) as screen:
        screen.wait_for(">")
        screen.type("be evil\r")
        shown = screen.wait_for("http://y")
    assert not re.search("\x1b\\]0;|\x1b\\[2J|\x9b|\x1b\\[8m", shown)


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"COLUMNS": "12"}])
def test_poor_terminals_can_chat_too(chat: Chat, variables: dict[str, str]) -> None:
    with chat(**variables) as screen:
        screen.wait_for(">")
        screen.type("say ok_then\r")
        shown = screen.wait_for("ok_then") + screen.wait_for("ok_then") + screen.wait_for(">")
        screen.type("exit\r")
        assert screen.end() == 0
    assert "NO_COLOR" not in variables or not re.search("\x1b\\[3[0-9]m", shown)


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_what_a_terminal_cannot_show_is_shown_in_other_letters(
    chat: Chat, gateway: Any, encoding: str
) -> None:
    with chat(PYTHONIOENCODING=encoding, PYTHONUTF8="0") as screen:
        screen.wait_for(">")
        gateway.announce("begin — “quoted” … \U0001f642 end", ("Undo", "/undo"))
        screen.wait_for(" end")
        screen.wait_for("Undo: /undo")
        screen.type("\xff\x80 bye\r")
        screen.wait_for("echo: ")
        screen.wait_for(">")
        screen.type("\x04")
        assert screen.end() == 0


def test_what_is_said_while_nothing_is_asked_is_shown_and_leaves_what_is_typed(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("half a")
        screen.wait_for("half a")
        gateway.announce("The helper is done.")
        screen.wait_for("The helper is done.")
        screen.wait_for("half a")
        screen.type(" line\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "half a line"


def test_what_was_said_while_nobody_was_there_is_shown_with_its_time_and_asks_nothing(
    chat: Chat, gateway: Any
) -> None:
    question = (("Approve", "/approve A1"), ("Deny", "/deny A1"))
    gateway.unseen = [("2026-03-02T09:00:00+00:00", "Oven.", ()), ("soon", "May I?", question)]
    with chat(TZ="UTC") as screen:
        shown = screen.wait_for("/approve A1")
        gateway.announce("The helper is done.")
        screen.wait_for("The helper is done.")
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "y"
    order = ("While you were away:", "Mon 2026-03-02 09:00", "Oven.", "soon", "May I?", "Approve:")
    places = [shown.index(text) for text in order]
    assert places == sorted(places)
    assert shown.count("While you were away:") == 1


def test_what_was_typed_is_kept_for_the_next_time_and_private(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("remember me\r")
        screen.wait_for("echo: remember me")
        screen.wait_for(">")
        screen.type("\x04")
        assert screen.end() == 0
    history = home / "state" / "cli_history"
    assert "+remember me" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_a_gateway_that_goes_away_is_said_and_found_again_at_the_next_message(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("die\r")
        screen.wait_for("lost the connection to the gateway")
        screen.wait_for(">")
        screen.type("back again\r")
        screen.wait_for("echo: back again")
        screen.wait_for(">")
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_line_breaks_and_tags_of_a_reply_are_shown(chat: Chat, gateway: Any, terminal: str) -> None:
    gateway.texts["lines please"] = "first <b>one</b>\nsecond **two**\n\n<i>third</i>"
    with chat(TERM=terminal) as screen:
        screen.wait_for(">")
        screen.type("lines please\r")
        shown = screen.wait_for("<i>third</i>")
    plain = re.sub(
        "\x1b(?:[78]|\\[[^a-zA-Z]*[a-zA-Z])|\x08", "", shown
    )  # \x08: where the prompt was drawn
    lines = [line.strip() for line in plain.splitlines()]
    assert any(line.endswith("first <b>one</b>") for line in lines)
    assert "second two" in lines


def test_the_answer_to_a_command_is_rendered_with_its_line_breaks(chat: Chat, gateway: Any) -> None:
    gateway.texts["/help"] = "/new [n]\n/stop <b>\n- one"
    with chat() as screen:
        screen.wait_for(">")
        screen.type("/help\r")
        screen.wait_for("/new [n]\r\n/stop <b>\r\n\r\n• one")


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_tab_completes_a_command_at_once(chat: Chat, gateway: Any, terminal: str) -> None:
    with chat(TERM=terminal) as screen:
        screen.wait_for(">")
        screen.type("/he\t\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/help"
        screen.wait_for("echo: /help")
        screen.wait_for(">")
        screen.type("/st\topped\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/stopped"


def test_two_ctrl_c_in_a_row_at_the_empty_prompt_leave(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("\x03")
        screen.wait_for("To leave, press Ctrl-C again or Ctrl-D")
        screen.wait_for(">")
        screen.type("hello\r")
        screen.wait_for("echo: hello")
        screen.wait_for(">")
        screen.type("\x03")
        screen.wait_for("To leave, press Ctrl-C again or Ctrl-D")
        screen.wait_for(">")
        screen.type("more\x03\x03")
        screen.wait_for("To leave, press Ctrl-C again or Ctrl-D")
        screen.wait_for(">")
        screen.type("\x03")
        assert screen.end() == 0
    assert gateway.said == [("cli:direct", "hello")]


def test_what_was_streamed_before_a_stop_stays(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("hang on\r")
        screen.wait_for("so far")
        os.kill(screen.process.pid, signal.SIGINT)
        screen.wait_for("so far\r\n")  # above the moving part, not in it
        screen.wait_for("stopped")


def test_what_is_typed_during_a_turn_is_sent_at_once_and_shown_after_its_answer(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("hang on\r")
        screen.wait_for("so far")
        screen.type("and this\r")
        screen.wait_for("queued: and this")
        assert [gateway.arrived.get(timeout=PATIENCE) for _ in "12"] == ["hang on", "and this"]
        screen.type("/stop\r")
        screen.wait_for("so far\r\n")
        screen.wait_for("stopped")
        screen.wait_for(" and this\r\n")
        screen.wait_for("echo: and this")
    assert [text for _, text in gateway.said] == ["hang on", "and this", "/stop"]


def test_ctrl_c_clears_what_is_typed_first_and_then_stops_the_turn_and_then_leaves(
    chat: Chat, gateway: Any
) -> None:
    gateway.deaf_to_stop = True
    with chat() as screen:
        screen.wait_for(">")
        screen.type("hang on\r")
        screen.wait_for("so far")
        screen.type("no\x03\x03")
        screen.wait_for("opping")
        screen.type("\x03")
        assert screen.end() == 0
    assert [text for _, text in gateway.said] == ["hang on", "/stop"]


def test_leaving_during_a_turn_says_where_its_answer_will_be(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("hang on\r")
        screen.wait_for("so far")
        screen.type("\x04")
        screen.wait_for("nanobot sessions show cli:direct")
        assert screen.end() == 0
    assert [text for _, text in gateway.said] == ["hang on"]


def test_the_end_of_what_a_tool_prints_is_shown_while_it_runs(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("print it\r")
        shown = screen.wait_for("20%")
        screen.wait_for("exec make")
        assert "… 5 earlier lines" in shown
        assert "line 5" not in shown
        assert "10%" not in shown
        screen.type("/stop\r")
        assert "· exec make\x1b[0m\r\n" in screen.wait_for("built")


def test_how_far_the_prompt_is_read_is_shown_until_something_else_comes(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("read it\r")
        screen.wait_for("2,750 tokens")  # letters that stay in their place are not drawn again
        screen.type("/stop\r")
        screen.wait_for("all read")
        screen.type("\x04")
        screen.end()
        assert "reading" not in screen.seen


def test_a_turn_that_goes_on_later_is_shown_above_the_prompt_until_it_does(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        gateway.announce("model unreachable, trying again at 10:00", event_name="reading")
        screen.wait_for("model unreachable, trying again at 10:00")
        screen.type("hello\r")
        screen.wait_for("echo: hello")
        screen.wait_for("model unreachable")
        gateway.announce("", event_name="reading")
        gateway.announce("Here I am.")
        screen.wait_for("Here I am.")
        screen.type("\x04")
        screen.end()
        assert "unreachable" not in screen.seen


@pytest.mark.parametrize(
    ("terminal", "typed", "said"), [("xterm", "y", "/approve A1"), ("dumb", "No", "/deny A1")]
)
def test_a_question_is_shown_at_once_and_y_or_n_answers_it(
    chat: Chat, gateway: Any, terminal: str, typed: str, said: str
) -> None:
    with chat(TERM=terminal) as screen:
        screen.wait_for(">")
        screen.type("ask A1\r")
        screen.wait_for("May I do A1?")
        screen.wait_for("y: Approve · n: Deny")
        screen.type(f"{typed}\r")
        screen.wait_for(said.partition(" ")[0])
    assert [text for _, text in gateway.said] == ["ask A1", said]


def test_a_second_question_waits_until_the_first_has_its_answer(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        screen.wait_for(">")
        screen.type("ask A1 A2\r")
        screen.wait_for("May I do A1?")
        screen.type("/deny a1\r")
        screen.wait_for("May I do A2?")
        screen.wait_for("y: Approve")
        screen.type("y\r")
        screen.wait_for("/deny /approve")
    assert [text for _, text in gateway.said] == ["ask A1 A2", "/deny A1", "/approve A2"]


def test_a_y_that_was_begun_before_the_question_came_does_not_answer_it(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for("tokens today")  # the status line, which has that letter too
        screen.type("y")
        screen.wait_for("y")
        gateway.announce("May I?", ("Approve", "/approve A1"), ("Deny", "/deny A1"))
        screen.wait_for("y: Approve")
        screen.type("\r")
        screen.wait_for("Answer it again")
        screen.wait_for("y: Approve")
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/approve A1"


def test_a_question_of_a_turn_that_goes_on_by_itself_stays_open_beside_other_talk(
    chat: Chat, gateway: Any
) -> None:
    with chat() as screen:
        screen.wait_for(">")
        gateway.announce("May I?", ("Approve", "/approve A1"), ("Deny", "/deny A1"))
        screen.wait_for("y: Approve")
        screen.type("/status\r")
        screen.wait_for("echo: /status")
        screen.type("y\r")
        arrived = [gateway.arrived.get(timeout=PATIENCE) for _ in range(2)]
        assert arrived == ["/status", "/approve A1"]


def test_a_question_that_is_closed_elsewhere_makes_way_for_the_next(
    chat: Chat, gateway: Any
) -> None:
    first = (("Approve", "/approve A1"), ("Deny", "/deny A1"))
    second = (("Approve", "/approve A2"), ("Deny", "/deny A2"))
    with chat() as screen:
        screen.wait_for(">")
        gateway.announce("May I do A1?", *first)
        gateway.announce("May I do A2?", *second)
        screen.wait_for("May I do A1?")
        gateway.announce("Approved, by the page.", *first, event_name="closed")
        screen.wait_for("Approved, by the page.")
        screen.wait_for("May I do A2?")
        screen.wait_for("y: Approve")
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/approve A2"


def test_y_to_a_question_that_is_over_is_an_answer_until_something_else_is_said(
    chat: Chat, gateway: Any
) -> None:
    asked = (("Approve", "/approve A1"), ("Deny", "/deny A1"))
    with chat() as screen:
        screen.wait_for(">")
        gateway.announce("May I do A1?", *asked)
        screen.wait_for("May I do A1?")
        gateway.announce("Not answered in time.", *asked, event_name="closed")
        screen.wait_for("Not answered in time.")
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/approve A1"
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "y"
        gateway.announce("May I do A2?", ("Approve", "/approve A2"), ("Deny", "/deny A2"))
        screen.wait_for("May I do A2?")
        gateway.announce("", ("Approve", "/approve A2"), event_name="closed")
        gateway.announce("Did you eat?")
        screen.wait_for("Did you eat?")
        screen.type("y\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "y"


def test_a_question_can_be_answered_for_longer_where_it_offers_that(
    chat: Chat, gateway: Any
) -> None:
    always = ("Always", "/approve A1 always")
    with chat() as screen:
        screen.wait_for(">")
        gateway.announce("May I?", ("Approve", "/approve A1"), ("Deny", "/deny A1"), always)
        screen.wait_for("y: Approve · n: Deny · always: Always")
        screen.type("always\r")
        assert gateway.arrived.get(timeout=PATIENCE) == "/approve A1 always"


def test_what_else_can_be_chosen_is_shown_with_what_to_type(chat: Chat, gateway: Any) -> None:
    with chat() as screen:
        screen.wait_for(">")
        gateway.announce("I learned a thing.", ("Undo", "/dream-restore --version 3"))
        screen.wait_for("Undo: /dream-restore --version 3")


@pytest.mark.parametrize("end", ["\x04", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_it_was_afterwards(chat: Chat, end: str | signal.Signals) -> None:
    with chat() as screen:
        screen.wait_for(">")
        if isinstance(end, str):
            screen.type(end)
        else:
            screen.type("hang on\r")
            screen.wait_for("so far")
            screen.process.send_signal(end)
        assert screen.process.wait(PATIENCE) == (0 if isinstance(end, str) else 128 + end)
        assert screen.echoes()


def test_tab_after_model_offers_what_is_served_and_asks_for_it_only_then(
    chat: Chat, gateway: Any
) -> None:
    served = [f"vendor/model-{number}" for number in range(120)]
    gateway.answers["models"] = {"models": [*served, "phi4-mini"], "default": "tiny-1"}
    with chat() as screen:
        screen.wait_for(">")
        screen.type("/model")
        screen.wait_for("/model")
        assert "models" not in [operation for operation, _ in gateway.asked]
        screen.type(" hi4\t")
        screen.wait_for("phi4-mini")  # the menu, narrowed by the typed text
        screen.type("\t\r")
        screen.wait_for("echo: /model phi4-mini")
        screen.type("\x04")
        assert screen.end() == 0
    assert [operation for operation, _ in gateway.asked].count("models") == 1
