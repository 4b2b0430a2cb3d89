"""An application of aiohttp's on loopback, as the fake servers use it."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

_TURNS = 3
"""So often the loop turns until aiohttp has a connection that was just taken."""


class Served:
    """An application that is served, until `stop`. Made by `start`."""

    def __init__(self, runner: web.AppRunner, listener: socket.socket) -> None:
        self._runner, self._listener = runner, listener
        self.port: int = listener.getsockname()[1]

    @classmethod
    async def start(
        cls,
        app: web.Application,
        port: int = 0,
        *,
        shutdown_timeout: float = 0.5,
        handler_cancellation: bool = False,
    ) -> Served:
        """Serve; on any free port if `port` is 0. Requests under way may end within
        `shutdown_timeout` seconds after `stop`, then within as many after they were cancelled."""
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=shutdown_timeout,
            handler_cancellation=handler_cancellation,
        )
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", port))
        await web.SockSite(runner, listener).start()
        return cls(runner, listener)

    async def stop(self) -> None:
        """Serve no more, and close every connection.

        asyncio (up to Python 3.11 at least) drops a connection, unclosed, whose server ends between
        taking it and making its transport. So nobody is taken any more first, and the server ends
        when those who were are with aiohttp.
        """
        asyncio.get_running_loop().remove_reader(self._listener)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await self._runner.cleanup()
