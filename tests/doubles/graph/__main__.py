"""Meta on the command line: type to the business, read its answers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

import aiohttp

from tests.doubles.graph import FakeGraphAPI, Sent


async def converse(arguments: argparse.Namespace) -> None:
    """Send each line of standard input to the business, and print its answers."""
    async with FakeGraphAPI(port=arguments.port, receipts=("sent", "delivered", "read")) as graph:
        for key, value in graph.settings().items():
            print(f"{key}: {value}", flush=True)
        await _begin(graph, arguments.webhook)
        async with asyncio.TaskGroup() as group:
            printing = group.create_task(_print_messages(graph))
            lines = asyncio.StreamReader()
            loop = asyncio.get_running_loop()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
            while line := await lines.readline():
                graph.say(line.decode().rstrip("\n"))
            await printing


async def _begin(graph: FakeGraphAPI, url: str) -> None:
    """Subscribe. Messages wait until the webhook exists."""
    graph.webhook.deliver_to(url)
    try:
        status = await graph.webhook.challenge(url, graph.verify_token)
        print(f"the challenge at {url} was answered with {status}", flush=True)
    except aiohttp.ClientError:
        print(f"nothing listens at {url} so far", flush=True)


async def _print_messages(graph: FakeGraphAPI) -> None:
    printed = 0
    while True:
        new = await _after(graph, printed)
        printed += len(new)
        for message in new:
            print(message.text or f"[{message.kind}]", flush=True)


async def _after(graph: FakeGraphAPI, printed: int) -> list[Sent]:
    return await graph.wait_for(lambda: graph.messages()[printed:], patience=None)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.doubles.graph",
        description="Play Meta on a loopback port: type to the business, read its answers.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument(
        "--webhook",
        default="http://127.0.0.1:8087/whatsapp",
        help="where nanobot listens (http.port and the path of channels.whatsapp.webhook_url)",
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(converse(parser.parse_args()))


if __name__ == "__main__":
    main()
