"""What a chat in the terminal prints of the replies."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from nanobot_cli.screen import Surface
from nanobot_cli.transcript import Transcript
from nanobot_cli.wire import (
    Accepted,
    AgentMessage,
    Choice,
    Delta,
    Note,
    Output,
    Refused,
    Reply,
    Taken,
    Tool,
    ToolDone,
)


@pytest.fixture
def transcript(monkeypatch: pytest.MonkeyPatch) -> Transcript:
    monkeypatch.setenv("TERM", "dumb")
    return Transcript(Surface())


def test_a_stop_is_reported_once(
    transcript: Transcript, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript.note_sent("2", "/stop")
    transcript.reply(Reply("1", "", "turn-1", outcome="stopped"))
    transcript.reply(Reply("2", "Stopped."))
    assert capsys.readouterr().out.lower().count("stopped") == 1


def test_an_answer_after_a_stop_is_never_left_out(
    transcript: Transcript, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript.note_sent("2", "say it")
    transcript.reply(Reply("1", "", "turn-1", outcome="stopped"))
    transcript.reply(Reply("2", "Stopped.", "turn-2", prompt_tokens=9))
    assert capsys.readouterr().out.lower().count("stopped") == 2


Script = Callable[..., str]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Return the permanent text after these events. A text is a message that was queued."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    transcript = Transcript(Surface())

    def tell(*events: object) -> str:
        for event in events:
            match event:
                case str():
                    transcript.note_sent(event, event)
                    transcript.queue(event, event)
                case Reply():
                    transcript.reply(event)
                case AgentMessage():
                    transcript.print_message(event, datetime(2026, 3, 2, tzinfo=UTC))
                case Refused():
                    transcript.print_error(event.error, event.hint, event.id)
                case Note():
                    transcript.note(event.text)
                case Accepted():
                    transcript.interrupt()
                case Taken() | Delta() | Tool() | ToolDone() | Output():
                    transcript.progress(event)
        return re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)

    return tell


def test_complete_blocks_are_printed_once_and_the_reply_adds_the_rest(tell: Script) -> None:
    assert tell(Delta("1", "# One\n\n"), Delta("1", "two **th")) == "One\n"
    assert tell(Delta("1", "ree**\n\nfo")) == "\ntwo three\n"
    assert tell(Delta("1", "ur\n")) == ""
    assert tell(Reply("1", "# One\n\ntwo **three**\n\nfour", "t1")) == "\nfour\n"


def test_a_stopped_answer_keeps_its_text(tell: Script) -> None:
    assert tell(Delta("1", "one **tw"), Reply("1", "", "t1", outcome="stopped")) == (
        "one **tw\nstopped\n"
    )


def test_a_reply_that_differs_from_the_printed_text_is_printed(tell: Script) -> None:
    tell(Delta("1", "wrong\n\nand\n"))
    shown = tell(Reply("1", "right", "t1"))
    assert shown == "(the final answer is different)\nright\n"


def test_an_answer_that_starts_again_says_so_only_if_some_of_it_was_printed(tell: Script) -> None:
    assert tell(Delta("1", "live"), Delta("1", "new", restart=True)) == ""
    assert tell(Delta("1", "\n\nmore\n")) == "new\n"
    assert tell(Delta("1", "third", restart=True)) == "(the answer starts again)\n"
    assert tell(Reply("1", "third", "t1")) == "third\n"


def test_a_lost_connection_ends_the_text_so_far_and_the_whole_reply_follows(tell: Script) -> None:
    assert tell(Delta("1", "one\n\ntwo\n"), Accepted("1")) == (
        "one\n\ntwo\n(connection lost, the answer starts again)\n"
    )
    assert tell(Reply("1", "one\n\nthree", "t1")) == "one\n\nthree\n"


def test_a_queued_message_moves_down_when_its_turn_takes_it(tell: Script) -> None:
    tell(Delta("1", "one"))
    assert tell("more") == ""
    assert tell(Reply("1", "one", "t1")) == "one\n"
    assert tell(Taken("more", "t2")) == "\n> more\n"
    assert tell(Reply("more", "two", "t2")) == "two\n"


def test_a_message_that_joins_a_turn_comes_before_the_answer_to_both(tell: Script) -> None:
    shown = tell("1", Taken("1", "t1"), "2", Tool("1", "read a"), ToolDone("1", "read a", 5))
    assert shown == "> 1\n· read a — 5 bytes\n"
    assert tell(Taken("2", "t1"), Delta("1", "both")) == "\n> 2\n"
    assert tell(Reply("1", "both", "t1"), Reply("2", "both", "t1")) == "both\n"


def test_a_turn_that_begins_before_the_reply_of_the_last_one_comes_after_it(tell: Script) -> None:
    tell("1", "2", Taken("1", "t1"))
    assert tell(Taken("2", "t2")) == ""
    assert tell(Reply("1", "one", "t1")) == "one\n\n> 2\n"
    tell("3", Delta("2", "two"), Taken("3", "t3"))
    assert tell(Delta("3", "three")) == "two\n\n> 3\n"
    assert tell(Reply("2", "two", "t2"), Reply("3", "three", "t3")) == "three\n"


def test_other_texts_wait_for_the_end_of_an_answer(tell: Script) -> None:
    tell(Delta("1", "one"))
    assert tell(Note("1", "disk full"), AgentMessage("w", "by the way"), Reply("9", "ok")) == ""
    assert tell(Reply("1", "one", "t1")) == "one\ndisk full\n\nby the way\nok\n"


def test_a_question_does_not_wait_and_the_answer_goes_on(tell: Script) -> None:
    asked = (Choice("Approve", "/approve A"), Choice("Deny", "/deny A"))
    tell(Delta("1", "one "))
    assert tell(AgentMessage("1", "May I?", choices=asked)) == "one\nMay I?\n"
    assert tell(Delta("1", "two"), Reply("1", "one two", "t1")) == "\ntwo\n"


def test_an_error_during_an_answer_does_not_print_it_again(tell: Script) -> None:
    tell(Delta("1", "one "))
    assert tell(Refused("9", "not today", "Try tomorrow.")) == "one\nnot today\nTry tomorrow.\n"
    assert tell(Delta("1", "two"), Reply("1", "one two", "t1")) == "\ntwo\n"


def test_a_tool_is_one_line_with_the_size_of_its_result(tell: Script) -> None:
    assert tell(Tool("1", "a"), Tool("1", "b"), Output("1", "text\n")) == ""
    assert tell(ToolDone("1", "b", 12_345, failed=True)) == "· b — failed, 12 kB\n"
    assert tell(Delta("1", "done")) == "· a\n"


def test_an_answer_that_repeats_a_message_is_not_printed(tell: Script) -> None:
    tell(AgentMessage("1", "one\n\ntwo"), Delta("1", "one\n\ntwo\n"))
    assert tell(Reply("1", "", "t1")) == ""


def test_the_answer_to_a_command_is_rendered_like_any_other(
    transcript: Transcript, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript.note_sent("1", "/memory")
    transcript.reply(Reply("1", "## Facts\n- tea"))
    assert capsys.readouterr().out == "Facts\n\n• tea\n"


def test_a_message_of_another_conversation_says_so(
    transcript: Transcript, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    transcript.print_message(AgentMessage("w", "the oven is hot", chat="direct"), now)
    assert "In another conversation:\nthe oven is hot\n" in capsys.readouterr().out
