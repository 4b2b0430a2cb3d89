"""Every way in which `FakeTelegram` can misbehave, on command.

Faults are kept in a list, and a call takes the first for its method and chat. "file" is the method
of downloads. A method "" means any but `getUpdates`. When the server stops, held calls are
released."""

from __future__ import annotations

import asyncio

from tests.doubles.server import After, Arming, Cut, Hang, Huge, Instead, Late, Reply, Slow, Step
from tests.doubles.telegram.answers import reject
from tests.doubles.telegram.updates import TERMINATED, Updates
from tests.doubles.telegram.values import Call, Json, Refusal


class Faults(Arming[Call]):
    """The part of `FakeTelegram` that misbehaves."""

    def __init__(self, updates: Updates) -> None:
        super().__init__()
        self._updates = updates

    def fail(
        self,
        method: str,
        code: int,
        description: str = "",
        *,
        parameters: Json | None = None,
        times: int = 1,
        chat: int | None = None,
        after: After = "request",
    ) -> None:
        """Answer the next calls with this error: 5xx, 429 with `{"retry_after": 3}`, and so on.
        `after` the effect: a server that ends answers running requests with 500 (`Client.cpp` of
        tdlib/telegram-bot-api, `get_closing_error`), and people saw messages of failed calls arrive
        (python-telegram-bot#1045)."""
        refusal = Refusal(code, description or _WORDS.get(code, "Error"), parameters)
        self._arm(method, Instead(reject(refusal), after == "effect"), times, chat)

    def flood(self, chat: int, retry_after: int, *, times: int = 1) -> None:
        """Answer the next calls for this chat with 429."""
        words = f"Too Many Requests: retry after {retry_after}"
        self.fail("", 429, words, parameters={"retry_after": retry_after}, times=times, chat=chat)

    def hang(self, method: str, times: int = 1, *, chat: int | None = None) -> asyncio.Event:
        """Hold the next calls. They run once the event is set."""
        gate = self._gate()
        self._arm(method, Hang(gate), times, chat)
        return gate

    def half_open(self, count: int = 1) -> asyncio.Event:
        """Accept the next polls and never answer them. The event ends their connections."""
        gate = self._gate()
        self._arm("getUpdates", Hang(gate, honest=False), count, None)
        return gate

    def cut(
        self,
        method: str,
        *,
        after: After = "request",
        times: int = 1,
        chat: int | None = None,
    ) -> None:
        """Drop the connection in place of an answer: before the call had its effect, or after it,
        so that the bot cannot know."""
        self._arm(method, Cut(effect=after == "effect"), times, chat)

    def garble(
        self,
        method: str,
        body: bytes = b"",
        *,
        status: int = 200,
        times: int = 1,
        chat: int | None = None,
        after: After = "request",
    ) -> None:
        """Answer with HTML, as captive portals and proxies do, or with `body`."""
        page = b"<!doctype html><html><body>Please sign in.</body></html>"
        kind = "application/json" if body else "text/html"
        reply = Reply(body or page, status, kind)
        self._arm(method, Instead(reply, after == "effect"), times, chat)

    def late(self, method: str, seconds: float, *, times: int = 1) -> None:
        """Run the next calls at once, and answer each after this many seconds."""
        self._arm(method, Late(seconds), times, None)

    def slow(self, method: str, times: int = 1) -> asyncio.Event:
        """Send half of each answer, the other half once the event is set."""
        gate = self._gate()
        self._arm(method, Slow(gate), times, None)
        return gate

    def huge(self, method: str, size: int = 100_000_000, *, times: int = 1) -> None:
        """Answer with that many bytes, without announcing the length."""
        self._arm(method, Huge(size), times, None)

    def second_poller(self, times: int = 1) -> None:
        """Poll with the same token like another program: the waiting poll ends with 409, and so do
        the next ones, `times` in all."""
        waiting = 1 if self._updates.polls else 0
        self._updates.conflict()
        if times > waiting:
            self.fail("getUpdates", 409, TERMINATED, times=times - waiting)

    def _arm(self, method: str, step: Step, times: int, chat: int | None) -> None:
        def fits(call: Call) -> bool:
            is_meant = method == call.method or (not method and call.method != "getUpdates")
            return is_meant and chat in (None, call.chat_id)

        self._arm_for(fits, step, times)


_WORDS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: TERMINATED,
    429: "Too Many Requests: retry after 1",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
