"""A real HTTP server on a loopback port that speaks the Telegram Bot API, for tests and benches.

    async with FakeTelegram() as telegram:
        # point the bot at telegram.base_url with telegram.token
        question = telegram.say("Hello")
        assert (await telegram.answer_to(question)).text == "Hello yourself."
        assert not telegram.violations

It plays Telegram's part: it keeps the queue of updates with its offsets, the chats with their
messages, and the files. It checks every request (`rules`) and can misbehave on
command (`faults`). People act through the methods of `people`; what the bot
did is seen through those of `seen`. Nothing in it sleeps: whatever waits, waits for
something to happen. By hand:

    python -m tests.doubles.telegram --port 8081

serves until it is interrupted: each line on standard input is said to the bot, and what the bot
answers is printed.
"""

from __future__ import annotations

from tests.doubles.telegram.server import TOKEN, FakeTelegram
from tests.doubles.telegram.values import Call, Sent, Violation

__all__ = ["TOKEN", "Call", "FakeTelegram", "Sent", "Violation"]
