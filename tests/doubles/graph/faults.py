"""Every way in which `FakeGraphAPI` can misbehave, on command.

Faults are kept in a list, and a call takes the first for its operation and person. An operation ""
means any. When the server stops, held calls are released."""

from __future__ import annotations

import asyncio

from tests.doubles.graph.errors import reject
from tests.doubles.graph.values import Call, Refusal
from tests.doubles.server import After, Arming, Cut, Hang, Huge, Instead, Late, Reply, Slow, Step


class Faults(Arming[Call]):
    """The part of `FakeGraphAPI` that misbehaves."""

    def fail(
        self,
        operation: str,
        code: int,
        details: str = "",
        *,
        http: int = 0,
        times: int = 1,
        person: str = "",
        after: After = "request",
    ) -> None:
        """Answer the next calls with this error of the Graph API, and with the status `http` if it
        is not the usual one for the code. `after` the effect: Meta documents 131000 as an unknown
        error, and 2 and 131016 only as a service that is down or overloaded (see `errors`)."""
        reply = reject(Refusal(code, details, http=http))
        self._arm(operation, Instead(reply, after == "effect"), times, person)

    def garble(
        self,
        operation: str,
        body: bytes = b"",
        *,
        status: int = 200,
        times: int = 1,
        person: str = "",
        after: After = "request",
    ) -> None:
        """Answer with HTML, as proxies do, or with `body`."""
        page = b"<!doctype html><html><body>Sorry, something went wrong.</body></html>"
        kind = "application/json" if body else "text/html"
        self._arm(
            operation, Instead(Reply(body or page, status, kind), after == "effect"), times, person
        )

    def hang(self, operation: str, times: int = 1, *, person: str = "") -> asyncio.Event:
        """Hold the next calls. They run once the event is set."""
        gate = self._gate()
        self._arm(operation, Hang(gate), times, person)
        return gate

    def cut(
        self,
        operation: str,
        *,
        after: After = "request",
        times: int = 1,
        person: str = "",
    ) -> None:
        """Drop the connection in place of an answer: before the call had its effect, or after it,
        so that the business cannot know."""
        self._arm(operation, Cut(effect=after == "effect"), times, person)

    def late(self, operation: str, seconds: float, *, times: int = 1) -> None:
        """Run the next calls at once, and answer each after this many seconds."""
        self._arm(operation, Late(seconds), times)

    def slow(self, operation: str, times: int = 1) -> asyncio.Event:
        """Send half of each answer, the other half once the event is set."""
        gate = self._gate()
        self._arm(operation, Slow(gate), times)
        return gate

    def huge(self, operation: str, size: int = 200_000_000, *, times: int = 1) -> None:
        """Answer with that many bytes, without announcing the length."""
        self._arm(operation, Huge(size), times)

    def _arm(self, operation: str, step: Step, times: int, person: str = "") -> None:
        def fits(call: Call) -> bool:
            return operation in ("", call.operation) and person in ("", call.person)

        self._arm_for(fits, step, times)
