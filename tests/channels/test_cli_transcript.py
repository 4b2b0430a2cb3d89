"""What a chat in the terminal prints of the replies."""

from __future__ import annotations

import pytest

from nanobot_cli.screen import Surface
from nanobot_cli.transcript import Transcript
from nanobot_cli.wire import Reply


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
