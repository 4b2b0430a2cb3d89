"""A real HTTP server on a loopback port that speaks the Telegram Bot API, for tests and benches.

    async with FakeTelegram() as telegram:
        # point the bot at telegram.base_url with telegram.token
        question = telegram.say("Hello")
        assert (await telegram.answer_to(question)).text == "Hello yourself."
        assert not telegram.violations

It plays Telegram: it holds the queue of updates with its offsets, the chats with their messages,
and the files. It checks every request (`rules`) and can misbehave on command (`faults`). Methods of
`people` act as people, and methods of `seen` show the bot's actions. Nothing in it sleeps: every
wait is for an event. On the command line

    python -m tests.doubles.telegram --port 8081

serves until it is interrupted. Each line on standard input is sent to the bot, and its answers are
printed."""

from __future__ import annotations

from tests.doubles.telegram.server import TOKEN, FakeTelegram
from tests.doubles.telegram.values import Call, Sent, Violation

__all__ = ["TOKEN", "Call", "FakeTelegram", "Sent", "Violation"]
