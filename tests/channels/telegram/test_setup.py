"""The setup of the bot with a person: the questions, and no changes at Telegram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from nanobot.channel import SetupRequest
from nanobot.errors import NanobotError
from nanobot.testing import ScriptedPerson
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.setup import setup, writers
from tests.channels.telegram.support import WatchedClock, options_for
from tests.doubles.telegram.server import FakeTelegram

WRONG = f"123456789:{'W' * 35}"


def request_setup(
    telegram: FakeTelegram, person: ScriptedPerson, clock: WatchedClock, **given: str
) -> SetupRequest:
    where = {"base_url": telegram.base_url}
    return SetupRequest(person, None, (), where | given, clock)


async def test_the_owner_is_who_says_so_and_their_message_is_left_for_the_gateway(
    telegram: FakeTelegram, clock: WatchedClock
) -> None:
    telegram.person(7, first_name="Ada", username="ada")
    telegram.person(8, first_name="Mallory\x1b[2J")
    telegram.say("it is me", user=7)
    telegram.say("let me in", user=8)
    person = ScriptedPerson(telegram.token, "", "n", "y")
    result = await setup(request_setup(telegram, person, clock))
    assert result is not None
    assert result.owners == ["7"]
    assert result.secrets == {"token": telegram.token}
    assert result.who == f"@{telegram.username}"
    assert "Ada (@ada) (id 7) wrote: “it is me” — is that you?" in person.said
    client = TelegramClient(options_for(telegram), clock)
    try:
        assert [one.id for one in writers(await client.get_updates(None, 0))] == ["8", "7"]
    finally:
        await client.aclose()


async def test_who_was_not_the_owner_is_asked_about_again_once_they_write_again(
    telegram: FakeTelegram, clock: WatchedClock
) -> None:
    class Forgetful(ScriptedPerson):
        """Presses Enter at first, and writes again on request."""

        def say(self, text: str) -> None:
            super().say(text)
            if "write to the bot again" in text:
                telegram.say("hello bot")

    telegram.say("hello bot")
    person = Forgetful("", "", "", "y")
    result = await setup(request_setup(telegram, person, clock, token=telegram.token))
    assert result is not None
    assert result.owners == ["7"]
    assert sum("is that you?" in said for said in person.said) == 2
    assert not any("BotFather" in said for said in person.said)


async def test_where_telegram_cannot_be_reached_the_token_need_not_be_typed_again(
    telegram: FakeTelegram, clock: WatchedClock
) -> None:
    class Mending(ScriptedPerson):
        async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
            given["base_url"] = telegram.base_url
            return await super().choose(question, choices, default)

    given = {"base_url": "http://127.0.0.1:9"}
    person = Mending(telegram.token, "", "77")
    result = await setup(SetupRequest(person, None, (), given, clock))
    assert result is not None
    assert result.owners == ["77"]
    assert "--no-test" not in "\n".join(person.said)


async def test_while_telegram_cannot_be_reached_the_token_can_be_kept_unchecked(
    clock: WatchedClock,
) -> None:
    token = f"123456789:{'A' * 35}"
    given = {"base_url": "http://127.0.0.1:9"}
    person = ScriptedPerson(token, "Keep the token", "77")
    result = await setup(SetupRequest(person, None, (), given, clock))
    assert result is not None
    assert (result.secrets, result.owners) == ({"token": token}, ["77"])
    assert result.unchecked
    leaving = ScriptedPerson(token, "Leave Telegram")
    assert await setup(SetupRequest(leaving, None, (), given, clock)) is None


async def test_a_wrong_token_is_asked_for_again_and_nothing_leaves_it_out(
    telegram: FakeTelegram, clock: WatchedClock
) -> None:
    person = ScriptedPerson("my token", WRONG, "")
    assert await setup(request_setup(telegram, person, clock)) is None
    said = "\n".join(person.said)
    assert "look like a BotFather token" in said
    assert "Telegram does not accept the bot token" in said
    assert WRONG not in said


async def test_an_id_can_be_typed_and_a_name_cannot(
    telegram: FakeTelegram, clock: WatchedClock
) -> None:
    person = ScriptedPerson("@ada", "77")
    result = await setup(request_setup(telegram, person, clock, token=telegram.token))
    assert result is not None
    assert result.owners == ["77"]
    assert person.remaining == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": WRONG}, "Telegram does not accept"),
        ({"owner": "@ada"}, "your Telegram id must be a number"),
    ],
)
async def test_where_nobody_is_asked_what_is_wrong_is_an_error(
    telegram: FakeTelegram, clock: WatchedClock, given: Mapping[str, str], message: str
) -> None:
    everything = {"token": telegram.token, "base_url": telegram.base_url, **given}
    request = SetupRequest(ScriptedPerson(), None, (), everything, clock, attended=False)
    with pytest.raises(NanobotError, match=message):
        await setup(request)
