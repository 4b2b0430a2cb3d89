"""The meaning of failures for the core, downloads, and the secrecy of the token."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable

import pytest

from nanobot.channel.health import HealthReporter
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown
from nanobot_telegram.client import Identity, TelegramClient, as_send_error, parse_wait
from tests.channels.telegram.support import RecordingHost, WatchedClock, options_for
from tests.doubles.telegram import FakeTelegram

PERSON = 7


@pytest.fixture
async def client(telegram: FakeTelegram, clock: WatchedClock) -> AsyncIterator[TelegramClient]:
    opened = TelegramClient(options_for(telegram), clock)
    yield opened
    await opened.aclose()


async def catch_send_error(client: TelegramClient) -> Exception:
    """Return the error of sending a message."""
    try:
        await client.bot.send_message(PERSON, "hello")
    except Exception as error:  # noqa: BLE001 - which one is what the test is about
        return error
    raise AssertionError("it was sent")


FAULTS: dict[str, tuple[Callable[[FakeTelegram], object], type[SendError]]] = {
    "429": (lambda telegram: telegram.flood(PERSON, 4), SendLater),
    "5xx": (lambda telegram: telegram.fail("sendMessage", 502), SendUnknown),
    "403": (lambda telegram: telegram.fail("sendMessage", 403), SendRefused),
    "400": (lambda telegram: telegram.fail("sendMessage", 400), SendRefused),
    "413": (lambda telegram: telegram.fail("sendMessage", 413), SendRefused),
    "cut": (lambda telegram: telegram.cut("sendMessage"), SendUnknown),
    "cut after it": (lambda telegram: telegram.cut("sendMessage", after="effect"), SendUnknown),
    "HTML with 200": (lambda telegram: telegram.garble("sendMessage"), SendUnknown),
    "a list": (lambda telegram: telegram.garble("sendMessage", b"[]"), SendUnknown),
    "no message": (
        lambda telegram: telegram.garble("sendMessage", b'{"ok":true,"result":5}'),
        SendUnknown,
    ),
    "endless": (lambda telegram: telegram.huge("sendMessage", 6_000_000), SendUnknown),
}


@pytest.mark.parametrize(("fault", "kind"), FAULTS.values(), ids=FAULTS)
async def test_what_a_failure_means_for_a_part(
    fault: Callable[[FakeTelegram], object],
    kind: type[SendError],
    telegram: FakeTelegram,
    client: TelegramClient,
) -> None:
    telegram.say("hello")
    fault(telegram)
    error = as_send_error(await catch_send_error(client))
    assert type(error) is kind
    if isinstance(error, SendLater):
        assert error.retry_after == 4.0


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (7, 7),
        ("7", 7),
        (10**9, 3600),
        pytest.param(10**400, 5, id="no float"),
        (-1, 5),
        (float("nan"), 5),
        ("soon", 5),
        (None, 5),
    ],
)
def test_a_pause_is_reasonable_whatever_is_asked_for(asked: object, seconds: float) -> None:
    assert parse_wait(asked) == seconds


async def test_what_never_left_may_be_sent_again(
    telegram: FakeTelegram, client: TelegramClient
) -> None:
    await telegram.stop()
    assert type(as_send_error(await catch_send_error(client))) is SendLater


async def test_a_wedged_poll_does_not_keep_messages_from_being_sent(
    telegram: FakeTelegram, client: TelegramClient
) -> None:
    telegram.say("hello")
    telegram.half_open(3)
    async with asyncio.TaskGroup() as group:
        polls = [group.create_task(client.get_updates(None, 30)) for _ in range(3)]
        await telegram.wait_for(lambda: len(telegram.calls_of("getUpdates")) == 3)
        await client.bot.send_message(PERSON, "hello yourself")
        for poll in polls:
            poll.cancel()
    assert telegram.texts(PERSON) == ["hello yourself"]


async def test_the_token_is_in_no_log_line_and_no_error(
    telegram: FakeTelegram,
    client: TelegramClient,
    log: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    telegram.say("hello")
    secret = telegram.token.partition(":")[2]
    for fault, _ in FAULTS.values():
        fault(telegram)
        assert secret not in everything_in(await catch_send_error(client))
    telegram.fail("sendMessage", 400, f"no such bot: {telegram.token}")
    assert secret not in everything_in(await catch_send_error(client))
    await telegram.stop()
    assert secret not in everything_in(await catch_send_error(client))
    await client.aclose()
    assert secret not in everything_in(await catch_send_error(client))
    assert secret not in repr(client.bot)
    assert secret not in "".join(log) + caplog.text


def everything_in(error: BaseException) -> str:
    """Return everything that a traceback could show, hidden contexts included."""
    texts, seen = [repr(error), str(error), *map(repr, error.args)], error
    texts += traceback.format_exception(error)
    while (under := seen.__cause__ or seen.__context__) is not None:
        texts += [repr(under), str(under), repr(vars(under))]
        texts += [str(getattr(getattr(under, "_request", None), "url", ""))]
        seen = under
    return "\n".join(texts) + "\n" + as_send_error(error).for_people()  # type: ignore[arg-type]


async def test_a_bot_api_server_may_say_little_about_the_bot(
    telegram: FakeTelegram, client: TelegramClient, log: list[str], host: RecordingHost
) -> None:
    telegram.garble("getMe", b'{"ok":true,"result":{"id":5,"username":"small_bot"}}')
    assert await client.identify(HealthReporter("telegram", host)) == Identity(5, "small_bot")
    assert any("connected as @small_bot" in line for line in log)


async def test_the_environment_names_no_proxy(
    telegram: FakeTelegram,
    clock: WatchedClock,
    host: RecordingHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    client = TelegramClient(options_for(telegram), clock)
    assert (await client.identify(HealthReporter("telegram", host))).username == telegram.username
    await client.aclose()


async def test_a_proxy_that_is_set_is_used(telegram: FakeTelegram, clock: WatchedClock) -> None:
    telegram.say("hello")
    client = TelegramClient(options_for(telegram, proxy="http://127.0.0.1:1"), clock)
    assert type(as_send_error(await catch_send_error(client))) is SendLater
    await client.aclose()
    assert telegram.calls == []


async def receive_file(telegram: FakeTelegram, client: TelegramClient, content: bytes) -> str:
    """Return the id of a file that a person sends."""
    telegram.document(content)
    (update,) = await client.get_updates(None, 0)
    (message,) = [] if not isinstance(update, dict) else [update["message"]]
    return str(message["document"]["file_id"])


async def test_a_file_comes_whole(telegram: FakeTelegram, client: TelegramClient) -> None:
    file_id = await receive_file(telegram, client, b"x" * 1000)
    assert await client.download(file_id, 1000) == b"x" * 1000


async def test_a_file_that_is_too_large_is_not_asked_for(
    telegram: FakeTelegram, client: TelegramClient
) -> None:
    file_id = await receive_file(telegram, client, b"x" * 1001)
    with pytest.raises(SendRefused, match="1,001 bytes, but the limit is 1,000"):
        await client.download(file_id, 1000)
    assert telegram.calls_of("file") == []


async def test_a_file_that_grows_while_it_comes_is_given_up(
    telegram: FakeTelegram, client: TelegramClient, clock: WatchedClock
) -> None:
    file_id = await receive_file(telegram, client, b"x" * 1000)
    telegram.huge("file", 1_000_000)
    with pytest.raises(SendRefused, match="larger than 1,000"):
        await client.download(file_id, 1000)


async def test_a_file_that_is_gone_is_refused(
    telegram: FakeTelegram, client: TelegramClient
) -> None:
    file_id = await receive_file(telegram, client, b"x")
    telegram.fail("file", 404)
    with pytest.raises(SendRefused):
        await client.download(file_id, 1000)


async def test_a_file_in_a_place_that_is_none_is_refused(
    telegram: FakeTelegram, client: TelegramClient
) -> None:
    place = b'{"ok":true,"result":{"file_id":"1","file_unique_id":"1","file_path":"a\\nb"}}'
    telegram.garble("getFile", place)
    with pytest.raises(SendRefused, match="an invalid address"):
        await client.download("1", 100)


async def test_a_download_that_trickles_ends_in_time(
    telegram: FakeTelegram, client: TelegramClient
) -> None:
    file_id = await receive_file(telegram, client, b"x" * 1000)
    telegram.slow("file", times=3)
    with pytest.raises(SendError, match="did not arrive within"):
        await client.download(file_id, 1000, seconds=0.05)


async def test_a_download_that_breaks_off_is_tried_again(
    telegram: FakeTelegram, client: TelegramClient, clock: WatchedClock
) -> None:
    file_id = await receive_file(telegram, client, b"x" * 1000)
    telegram.cut("file")
    async with asyncio.TaskGroup() as group:
        download = group.create_task(client.download(file_id, 1000))
        await clock.until_asked(1.0)
        await clock.advance(1.0)
    assert download.result() == b"x" * 1000
