"""The server: requests in, answers out. See the package."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

from aiohttp import web

from nanobot.clock import Clock, SystemClock
from nanobot.tasks import Background
from tests.doubles.server import Answer, Changes, Exchange, Reply, Served
from tests.doubles.telegram.answers import reject
from tests.doubles.telegram.events import Events
from tests.doubles.telegram.faults import Faults
from tests.doubles.telegram.methods import Methods
from tests.doubles.telegram.people_files import PeopleWithFiles
from tests.doubles.telegram.requests import read_call
from tests.doubles.telegram.rules import first_problem
from tests.doubles.telegram.schema import DOCUMENTED, load_schema
from tests.doubles.telegram.seen import Seen
from tests.doubles.telegram.updates import Updates
from tests.doubles.telegram.values import Call, Json, Refusal, Violation
from tests.doubles.telegram.webhook import Webhook
from tests.doubles.telegram.world import World

TOKEN = "123456789:AAFakeFakeFakeFakeFakeFakeFakeFake0"  # opens nothing
_LARGEST_REQUEST = 64 * 1024 * 1024
_TOKEN_SHAPE = re.compile(r"\d+:[\w-]{35}")


class FakeTelegram(PeopleWithFiles, Events, Faults, Seen):
    """An async context manager. `token` is the only valid one, and `username` the bot's name.

    `schema` is a machine-readable copy of the documentation, used if the file exists. `clock` dates
    messages. `webhook_retry` is the pause in seconds before an update is delivered again. `without`
    are methods that this server is too old for. After `stop` it may be started again, on the same
    port and with its state."""

    def __init__(
        self,
        token: str = TOKEN,
        *,
        username: str = "nanobot_test_bot",
        schema: Path | None = DOCUMENTED,
        clock: Clock | None = None,
        port: int = 0,
        webhook_retry: float = 0.05,
        without: Collection[str] = (),
    ) -> None:
        self.token = token
        self.username = username
        self._without = frozenset(without)
        self._port = port
        self._schema = load_schema(schema)
        self._changes = Changes()
        bot: Json = {
            "id": self.bot_id,
            "is_bot": True,
            "first_name": "Nanobot",
            "username": username,
            "can_join_groups": True,
            "can_read_all_group_messages": False,
            "supports_inline_queries": False,
        }
        world = World(bot, clock or SystemClock("UTC"), self._changes)
        updates = Updates(self._changes)
        self.webhook = Webhook(updates, self._changes, webhook_retry)
        self._methods = Methods(world, updates, self.webhook)
        self._served: Served | None = None
        self._background = Background()
        self._stopping = False
        PeopleWithFiles.__init__(self, world, updates)
        Events.__init__(self, world, updates)
        Faults.__init__(self, updates)
        Seen.__init__(self, world, updates)

    @property
    def base_url(self) -> str:
        """The address for clients: "http://127.0.0.1:8081"."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def bot_id(self) -> int:
        """The id of the bot, at the beginning of its token."""
        return int(self.token.partition(":")[0])

    async def start(self) -> None:
        """Serve, on the previous port after a stop."""
        self._stopping = False
        app = web.Application(client_max_size=_LARGEST_REQUEST)
        app.router.add_route("*", "/bot{token}/{method}", self._handle)
        app.router.add_route("*", "/file/bot{token}/{path:.+}", self._download)
        self._served = await Served.start(app, self._port, handler_cancellation=True)
        self._port = self._served.port
        self._background.start(self.webhook.deliver(), name="fake Telegram webhook")

    async def stop(self) -> None:
        """Stop serving. Polls and held requests end."""
        self._stopping = True
        self._let_go()
        self._updates.end_polls()
        if self._served is not None:
            await self._served.stop()
            self._served = None
        self._background.cancel()
        await self._background.drain(1.0)

    async def __aenter__(self) -> FakeTelegram:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def revoke_token(self, new: str = "") -> None:
        """Replace the token by `new`."""
        self.token = new or f"{self.bot_id}:{'R' * 35}"

    def end_polls(self) -> None:
        """Answer the waiting polls, as if their time were over."""
        self._updates.end_polls()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        method = http.match_info["method"]
        try:
            self._authorize(http)
            call = await read_call(http, method, self._schema)
        except Refusal as refusal:
            return _response(reject(refusal))
        return await self._exchange(http, call, lambda: self._answer(call))

    async def _download(self, http: web.Request) -> web.StreamResponse:
        call = Call("file", {"file_path": http.match_info["path"]})
        try:
            self._authorize(http)
        except Refusal as refusal:
            return _response(reject(refusal))
        return await self._exchange(http, call, lambda: self._file_content(call))

    def _authorize(self, http: web.Request) -> None:
        token = http.match_info["token"]
        if not _TOKEN_SHAPE.fullmatch(token):
            raise Refusal(404, "Not Found")
        if token != self.token:
            raise Refusal(401, "Unauthorized")

    async def _exchange(self, http: web.Request, call: Call, answer: Answer) -> web.StreamResponse:
        self.calls.append(call)
        self._changes.tell()
        step = self._take(call)
        exchange = Exchange(http, answer, lambda: self._stopping)
        playing = step.play(exchange) if step else answer()
        if call.method == "getUpdates":
            reply = await playing
        else:  # it has its effect even if the client hangs up; a poll is over then
            work = self._background.start(playing, name=f"fake Telegram {call.method}")
            reply = await asyncio.shield(work)
        return web.Response() if reply is None else _response(reply)

    async def _answer(self, call: Call) -> Reply:
        try:
            self._check(call)
            result = await self._methods.answer(call)
        except Refusal as refusal:
            return reject(refusal)
        return Reply(json.dumps({"ok": True, "result": result}, ensure_ascii=False).encode())

    def _check(self, call: Call) -> None:
        if call.method in self._without:
            raise Refusal(404, "Not Found: method not found")
        if call.method not in self._methods:
            self.violations.append(Violation(call, "this double has no such method"))
            raise Refusal(404, "Not Found: method not found")
        if problem := first_problem(call, self._schema):
            self.violations.append(Violation(call, problem))
            raise Refusal(400, f"Bad Request: {problem}")

    async def _file_content(self, call: Call) -> Reply:
        file = self._world.file_at(call.text("file_path"))
        if file is None:
            return reject(Refusal(404, "Not Found"))
        return Reply(file.upload.content, content_type="application/octet-stream")


def _response(reply: Reply) -> web.Response:
    return web.Response(body=reply.body, status=reply.status, content_type=reply.content_type)
