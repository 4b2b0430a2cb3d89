"""Posts to the webhook of the business, as Meta does.

Requests are sent one at a time and in order. A request leaves the queue after a 200, and is sent
again after any other answer. After a failure there is a pause of `retry` seconds, which `hurry`
ends. The signature is of the sent bytes, in which slashes and non-ASCII characters are escaped."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from tests.doubles.server import Changes

SIGNATURE = "X-Hub-Signature-256"
CHALLENGE = "1158201444"

_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A body with its signature, or None for none."""

    body: bytes
    signature: str | None


class Webhook:
    """`url` is the target, or "" to send nothing. `answers` are the received statuses in order, 0
    without a connection."""

    def __init__(self, secret: str, changes: Changes, retry: float) -> None:
        self._secret = secret
        self._changes = changes
        self._retry = retry
        self._queue: list[Delivery] = []
        self._last: Delivery | None = None
        self._hurry = asyncio.Event()
        self.url = ""
        self.answers: list[int] = []

    @property
    def pending(self) -> int:
        """The number of requests without a 200."""
        return len(self._queue)

    def sign(self, body: bytes) -> str:
        """Return Meta's signature."""
        return "sha256=" + hmac.digest(self._secret.encode(), body, "sha256").hex()

    def add(self, payload: object) -> None:
        """Queue any JSON, however malformed."""
        body = as_meta_writes(payload)
        self._queue.append(Delivery(body, self.sign(body)))
        self._changes.tell()

    def again(self) -> None:
        """Queue the last delivered payload once more."""
        if self._last is None:
            raise LookupError("nothing was delivered so far")
        self._queue.append(self._last)
        self._changes.tell()

    def deliver_to(self, url: str) -> None:
        """Post to this address from now on. "" ends it."""
        self.url = url
        self.hurry()

    def hurry(self) -> None:
        """Try again now."""
        self._hurry.set()
        self._changes.tell()

    async def challenge(self, url: str, verify_token: str) -> int:
        """Ask for confirmation of `url`. Return the status of the answer, or 0 if it does not
        repeat the challenge."""
        query = {
            "hub.mode": "subscribe",
            "hub.challenge": CHALLENGE,
            "hub.verify_token": verify_token,
        }
        async with _client() as client, client.get(url, params=query) as answer:
            good = answer.status != 200 or await answer.read() == CHALLENGE.encode()
            return answer.status if good else 0

    async def post(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Return the status of one request from anyone, independent of the queue."""
        async with (
            _client() as client,
            client.post(self.url, data=body, headers={**_HEADERS, **headers}) as answer,
        ):
            await answer.read()
            return answer.status

    async def deliver(self) -> None:
        """Run until cancelled."""
        async with _client() as client:
            while True:
                delivery = await self._changes.until(
                    lambda: self._queue[0] if self.url and self._queue else None
                )
                assert delivery is not None
                self._hurry.clear()
                status = await self._post(client, delivery)
                if status == 200:
                    self._last = self._queue.pop(0)
                self.answers.append(status)
                self._changes.tell()
                if status != 200:
                    await self._pause()

    async def _post(self, client: aiohttp.ClientSession, delivery: Delivery) -> int:
        signed = {} if delivery.signature is None else {SIGNATURE: delivery.signature}
        try:
            async with client.post(
                self.url, data=delivery.body, headers={**_HEADERS, **signed}
            ) as answer:
                await answer.read()
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._retry):
                await self._hurry.wait()
        except TimeoutError:
            pass


def as_meta_writes(payload: object) -> bytes:
    """Encode JSON with Meta's escapes."""
    return json.dumps(payload, separators=(",", ":")).replace("/", "\\/").encode()


def _client() -> aiohttp.ClientSession:  # no egress
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT))


_HEADERS = {"Content-Type": "application/json", "User-Agent": "facebookexternalua"}
