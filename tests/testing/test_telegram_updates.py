"""Updates reach the bot as Telegram delivers them: each until it is confirmed, to one reader."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import aiohttp
from aiohttp import web

from tests.doubles.server import Served
from tests.doubles.telegram.server import FakeTelegram
from tests.doubles.telegram.webhook import SECRET_HEADER
from tests.testing.telegram_support import Api


async def test_an_update_comes_until_a_higher_offset_confirms_it(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.say("one")
    telegram.say("two")
    first, second = (await api("getUpdates")).ids
    assert (await api("getUpdates", offset=first)).ids == [first, second]
    assert (await api("getUpdates", offset=second)).ids == [second]
    assert telegram.pending == 1
    assert (await api("getUpdates", offset=second + 1)).ids == []
    assert telegram.confirmed == second + 1


async def test_a_poll_gives_at_most_its_limit_in_order(telegram: FakeTelegram, api: Api) -> None:
    for number in range(5):
        telegram.say(str(number))
    batch = (await api("getUpdates", limit=2)).result
    assert [update["message"]["text"] for update in batch] == ["0", "1"]


async def test_a_negative_offset_keeps_only_the_newest(telegram: FakeTelegram, api: Api) -> None:
    for text in "abc":
        telegram.say(text)
    [newest] = (await api("getUpdates", offset=-1)).result
    assert newest["message"]["text"] == "c"
    assert telegram.pending == 1


async def test_a_long_poll_returns_as_soon_as_something_comes(
    telegram: FakeTelegram, api: Api
) -> None:
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(api("getUpdates", timeout=600))
        await telegram.wait_for(lambda: telegram.polls)
        telegram.say("now")
    assert [update["message"]["text"] for update in (await poll).result] == ["now"]
    assert telegram.polls == 0


async def test_a_long_poll_without_news_ends_empty(telegram: FakeTelegram, api: Api) -> None:
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(api("getUpdates", timeout=600))
        await telegram.wait_for(lambda: telegram.polls)
        telegram.end_polls()
    assert (await poll).result == []


async def test_a_poll_ends_with_its_client(telegram: FakeTelegram, api: Api) -> None:
    poll = asyncio.get_running_loop().create_task(api("getUpdates", timeout=600))
    await telegram.wait_for(lambda: telegram.polls)
    poll.cancel()
    await telegram.wait_for(lambda: telegram.polls == 0)


async def test_a_new_poll_ends_the_older_one_with_a_conflict(
    telegram: FakeTelegram, api: Api
) -> None:
    async with asyncio.TaskGroup() as group:
        older = group.create_task(api("getUpdates", timeout=600))
        await telegram.wait_for(lambda: telegram.polls)
        newer = group.create_task(api("getUpdates", timeout=600))
        status, description = (await older).error
        telegram.say("hello")
    assert (status, "terminated by other getUpdates" in description) == (409, True)
    assert len((await newer).ids) == 1


async def test_only_allowed_kinds_of_updates_are_kept(telegram: FakeTelegram, api: Api) -> None:
    await api("getUpdates", allowed_updates=["edited_message"])
    message = telegram.say("draft")
    telegram.edit(message, "final")
    [update] = (await api("getUpdates")).result
    assert update["edited_message"]["text"] == "final"


async def test_a_repeated_update_comes_again_although_it_was_confirmed(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.say("once")
    number = telegram.last_update
    await api("getUpdates", offset=number + 1)
    telegram.duplicate(number)
    assert (await api("getUpdates", offset=number + 1)).ids == [number]
    assert (await api("getUpdates", offset=number + 1)).ids == []


async def test_malformed_updates_are_delivered_as_they_are(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.push_raw("not even an object")
    telegram.push_raw({"message": 3})
    number = telegram.push({"message": {"message_id": "seven"}})
    raw = (await api("getUpdates")).result
    assert raw[:2] == ["not even an object", {"message": 3}]
    assert raw[2]["update_id"] == number
    await api("getUpdates", offset=number + 1)
    assert telegram.pending == 0


async def test_all_is_still_there_after_a_restart_on_the_same_port(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.say("before")
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(api("getUpdates", offset=telegram.last_update + 1, timeout=600))
        await telegram.wait_for(lambda: telegram.polls)
        telegram.say("lost in the fall? no")
        await poll
        await telegram.stop()
    where = telegram.base_url
    await telegram.start()
    assert telegram.base_url == where
    [update] = (await api("getUpdates")).result
    assert update["message"]["text"] == "lost in the fall? no"


class Hook:
    """A webhook server that answers with the next of `answers`, then 200."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, object]] = []
        self.url = ""

    async def __aenter__(self) -> Hook:
        app = web.Application()
        app.router.add_post("/telegram", self._handle)
        self._served = await Served.start(app)
        self.url = f"http://127.0.0.1:{self._served.port}/telegram"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._served.stop()

    async def _handle(self, http: web.Request) -> web.Response:
        update = await http.json()
        self.got.append((http.headers.get(SECRET_HEADER, ""), update["message"]["text"]))
        return web.Response(status=self.answers.pop(0) if self.answers else 200)


async def test_a_webhook_gets_updates_with_the_secret_until_it_takes_them() -> None:
    async with (
        Hook(500) as hook,
        FakeTelegram(webhook_retry=600) as telegram,
        aiohttp.ClientSession() as client,
    ):
        api = Api(telegram, client)
        telegram.say("one")
        assert (await api("setWebhook", url=hook.url, secret_token="s3cret")).result is True
        await telegram.wait_for(lambda: telegram.webhook.failures)
        telegram.say("two")
        info = (await api("getWebhookInfo")).result
        assert (info["pending_update_count"], "500" in info["last_error_message"]) == (2, True)
        telegram.webhook.hurry()
        await telegram.wait_for(lambda: telegram.pending == 0)
        assert hook.got == [("s3cret", text) for text in ("one", "one", "two")]


async def test_a_public_webhook_address_can_be_led_to_the_own_machine(
    telegram: FakeTelegram, api: Api
) -> None:
    async with Hook() as hook:
        telegram.webhook.route = hook.url
        await api("setWebhook", url="https://bot.example.org/telegram")
        telegram.say("hello")
        await telegram.wait_for(lambda: telegram.pending == 0)
        assert hook.got == [("", "hello")]


async def test_polling_is_refused_while_a_webhook_is_set(telegram: FakeTelegram, api: Api) -> None:
    telegram.say("waits")
    async with Hook(*[503] * 1000) as hook:
        await api("setWebhook", url=hook.url)
        status, description = (await api("getUpdates")).error
        assert (status, "webhook is active" in description) == (409, True)
        await api("deleteWebhook")
    assert len((await api("getUpdates")).ids) == 1


async def test_dropping_pending_updates_is_done_only_on_demand(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.say("old")
    await api("deleteWebhook")
    assert telegram.pending == 1
    await api("deleteWebhook", drop_pending_updates=True)
    assert telegram.pending == 0


async def test_by_hand_lines_are_said_and_answers_are_printed() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.doubles.telegram"),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    where, token = [(await process.stdout.readline()).decode().split()[1] for _ in range(2)]
    process.stdin.write(b"Hello bot\n")
    async with aiohttp.ClientSession() as client:
        url = f"{where}/bot{token}"
        async with client.post(f"{url}/getUpdates", json={"timeout": 600}) as answer:
            [update] = (await answer.json())["result"]
        assert update["message"]["text"] == "Hello bot"
        async with client.post(f"{url}/sendMessage", json={"chat_id": 7, "text": "Hi"}) as answer:
            assert answer.status == 200
    assert await process.stdout.readline() == b"Hi\n"
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
