"""The server: requests in, answers out. See the package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from types import TracebackType

from aiohttp import web

from nanobot.clock import Clock, SystemClock
from nanobot.tasks import Background
from tests.doubles.graph.errors import BAD_PARAMETER, TOKEN_INVALID, reject
from tests.doubles.graph.faults import Faults
from tests.doubles.graph.notices import Notices
from tests.doubles.graph.operations import Operations
from tests.doubles.graph.people import People
from tests.doubles.graph.requests import read_message, read_query, read_upload
from tests.doubles.graph.rules import message_problem, number_problem, upload_problem
from tests.doubles.graph.seen import Seen
from tests.doubles.graph.values import Call, Json, Refusal, Violation
from tests.doubles.graph.webhook import Webhook
from tests.doubles.graph.world import World
from tests.doubles.server import Answer, Changes, Exchange, Reply, Served

_LARGEST_REQUEST = 128 * 1024 * 1024
_NO_TOKEN = 104

_Act = Callable[[], Reply]


class FakeGraphAPI(People, Faults, Seen):
    """An async context manager. `token` is the only valid one. `number` is the number of the
    business for people, and `phone_number_id` its id in the API.

    `clock` dates messages and closes windows. `receipts` are the automatic statuses of each
    message, such as `("sent", "delivered", "read")`. `retry` is the pause in seconds before a
    repeated post. After `stop` it may be started again, on the same port and with its state."""

    def __init__(
        self,
        *,
        token: str = "EAAfakefakefakefakefake",  # opens nothing
        phone_number_id: str = "100000000000001",
        number: str = "15550001111",
        name: str = "Nanobot",
        app_secret: str = "0123456789abcdef0123456789abcdef",
        verify_token: str = "agreed-beforehand",
        version: str = "v23.0",
        clock: Clock | None = None,
        receipts: Sequence[str] = (),
        port: int = 0,
        retry: float = 0.05,
    ) -> None:
        self.token, self.phone_number_id = token, phone_number_id
        self.app_secret, self.verify_token, self.version = app_secret, verify_token, version
        self._port = port
        self._changes = Changes()
        self._background = Background()
        self._served: Served | None = None
        self._stopping = False
        self._knows = World(clock or SystemClock("UTC"), self._changes)
        self.webhook = Webhook(app_secret, self._changes, retry)
        metadata: Json = {"display_phone_number": number, "phone_number_id": phone_number_id}
        notices = Notices(self.webhook, metadata)
        self._operations = Operations(self._knows, notices, receipts, number, name)
        People.__init__(self, self._knows, notices, number)
        Faults.__init__(self)
        Seen.__init__(self, self._knows)

    @property
    def base_url(self) -> str:
        """The address for clients: "http://127.0.0.1:8082"."""
        return f"http://127.0.0.1:{self._port}"

    def settings(self) -> dict[str, str]:
        """Return the keys of `channels.whatsapp` that lead here."""
        return {
            "transport": "cloud",
            "base_url": self.base_url,
            "phone_number_id": self.phone_number_id,
            "access_token": self.token,
            "app_secret": self.app_secret,
            "verify_token": self.verify_token,
        }

    async def subscribe(self, url: str, *, verify_token: str = "") -> int:
        """Post all events to `url` if it confirms the challenge. Return the status of its answer,
        or 0 for a wrong one."""
        status = await self.webhook.challenge(url, verify_token or self.verify_token)
        if status == 200:
            self.webhook.deliver_to(url)
        return status

    async def start(self) -> None:
        """Serve, on the previous port after a stop."""
        self._stopping = False
        app = web.Application(client_max_size=_LARGEST_REQUEST)
        root = r"/{version:v\d+\.\d+}/{id:\w+}"
        app.router.add_post(f"{root}/messages", self._messages)
        app.router.add_post(f"{root}/media", self._upload)
        app.router.add_get(root, self._object, allow_head=False)
        app.router.add_get("/whatsapp_business/attachments/", self._download, allow_head=False)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        self._served = await Served.start(app, self._port)
        self._port = self._served.port
        self._knows.base_url = self.base_url
        self._background.start(self.webhook.deliver(), name="fake Graph API webhook")

    async def stop(self) -> None:
        """Stop serving and posting. Held requests end."""
        self._stopping = True
        self._let_go()
        if self._served is not None:
            await self._served.stop()
            self._served = None
        self._background.cancel()
        await self._background.drain(1.0)

    async def __aenter__(self) -> FakeGraphAPI:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def revoke_token(self, new: str = "EAAanother") -> None:
        """Replace the token by `new`."""
        self.token = new

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        try:
            call = await read_message(http)
        except Refusal as refusal:
            return self._reject(Call("messages"), refusal)
        problem = message_problem(dict(call.fields))
        if http.content_type != "application/json":
            problem = "the body must be application/json"
        act = self._operations.read if call.operation == "read" else self._operations.send
        return await self._exchange(http, call, problem, lambda: _json(act(call)))

    async def _upload(self, http: web.Request) -> web.StreamResponse:
        try:
            call = await read_upload(http)
        except Refusal as refusal:
            return self._reject(Call("upload"), refusal)
        problem = upload_problem(dict(call.fields))
        return await self._exchange(
            http, call, problem, lambda: _json(self._operations.upload(call))
        )

    async def _object(self, http: web.Request) -> web.StreamResponse:
        name = http.match_info["id"]
        if name == self.phone_number_id:
            call = read_query(http, "number")
            problem = number_problem(dict(call.fields))
            return await self._exchange(
                http, call, problem, lambda: _json(self._operations.number(call, name))
            )
        call = read_query(http, "media")
        return await self._exchange(http, call, "", lambda: _json(self._operations.media(name)))

    async def _download(self, http: web.Request) -> web.StreamResponse:
        call = read_query(http, "file")

        def content() -> Reply:
            file = self._operations.file(call)
            return Reply(file.content, content_type=file.mime.partition(";")[0])

        return await self._exchange(http, call, "", content)

    async def _unknown(self, http: web.Request) -> web.StreamResponse:
        refusal = Refusal(BAD_PARAMETER, f"this double has no {http.method} {http.path}", http=404)
        return self._reject(Call("unknown", {"path": http.path}), refusal)

    def _reject(self, call: Call, refusal: Refusal) -> web.Response:
        """Return the answer to a request that is not part of this API."""
        self.calls.append(call)
        self.violations.append(Violation(call, refusal.details))
        self._changes.tell()
        return _response(reject(refusal))

    async def _exchange(
        self, http: web.Request, call: Call, problem: str, act: _Act
    ) -> web.StreamResponse:
        self.calls.append(call)
        self._changes.tell()

        async def answer() -> Reply:
            try:
                self._check(http, call, problem)
                return act()
            except Refusal as refusal:
                return reject(refusal)

        reply = await self._play(http, call, answer)
        return web.Response() if reply is None else _response(reply)

    async def _play(self, http: web.Request, call: Call, answer: Answer) -> Reply | None:
        step = self._take(call)
        exchange = Exchange(http, answer, lambda: self._stopping)
        playing = step.play(exchange) if step else answer()
        # it has its effect even if the client hangs up
        work = self._background.start(playing, name=f"fake Graph API {call.operation}")
        return await asyncio.shield(work)

    def _check(self, http: web.Request, call: Call, problem: str) -> None:
        name = http.match_info.get("id", self.phone_number_id)
        if http.method == "POST" and name != self.phone_number_id:
            problem = f"Object with ID '{name}' does not exist"
        given = http.headers.get("Authorization", "")
        if not given.startswith("Bearer ") or "access_token" in http.query:
            self.violations.append(Violation(call, "the token must be in the Authorization header"))
            raise Refusal(_NO_TOKEN)
        if given != f"Bearer {self.token}":
            raise Refusal(TOKEN_INVALID)
        if problem:
            self.violations.append(Violation(call, problem))
            raise Refusal(BAD_PARAMETER, problem)


def _json(value: Json) -> Reply:
    return Reply(json.dumps(value).encode())


def _response(reply: Reply) -> web.Response:
    return web.Response(body=reply.body, status=reply.status, content_type=reply.content_type)
