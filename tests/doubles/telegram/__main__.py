"""Telegram on the command line: type to the bot, read its answers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

from tests.doubles.telegram import TOKEN, FakeTelegram, Sent


async def converse(arguments: argparse.Namespace) -> None:
    """Send each line of standard input to the bot, and print its answers."""
    async with FakeTelegram(arguments.token, port=arguments.port) as telegram:
        print(f"base_url: {telegram.base_url}\ntoken: {telegram.token}", flush=True)
        async with asyncio.TaskGroup() as group:
            printing = group.create_task(_print_messages(telegram))
            lines = asyncio.StreamReader()
            loop = asyncio.get_running_loop()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
            while line := await lines.readline():
                telegram.say(line.decode().rstrip("\n"))
            await printing


async def _print_messages(telegram: FakeTelegram) -> None:
    printed: set[int] = set()
    while True:
        for message in await _after(telegram, printed):
            print(message.text or f"[{message.kind}]", flush=True)
            printed.add(message.message_id)


async def _after(telegram: FakeTelegram, printed: set[int]) -> list[Sent]:
    """Return new messages, without streamed replies that are not complete: those are sent
    silently."""

    def new() -> list[Sent]:
        standing = (sent for sent in telegram.messages() if not sent.silent)
        return [sent for sent in standing if sent.message_id not in printed]

    return await telegram.wait_for(new, patience=None)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.doubles.telegram",
        description="Play Telegram on a loopback port: type to the bot, read its answers.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--token", default=TOKEN, help="the token of the bot")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(converse(parser.parse_args()))


if __name__ == "__main__":
    main()
