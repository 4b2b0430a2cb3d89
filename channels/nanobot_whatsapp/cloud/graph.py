"""Client of the Graph API for one business number.

Invariants: the token is only in a request header, never in an error or a log line, and is sent only
to Meta's host (or the configured one). See `nanobot.channel.http` for limits of size and time.

Answers also update the state of the token and the account for `nanobot status`. A failed request
raises an `HttpFault`: `Unconfirmed` also if a proxy answered in place of Meta, and `Refused` if
Meta answered with an error. Errors are classified by the right reaction, from Meta's codes and
never from its texts:
developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from msgspec import Struct

from nanobot.channel import WRITING
from nanobot.channel.health import HealthReporter
from nanobot.channel.http import (
    AnswerTooLarge,
    BadAddress,
    HttpAnswer,
    HttpClient,
    HttpFault,
    Unconfirmed,
    Unsent,
)
from nanobot.clock import Clock, SystemClock
from nanobot.errors import ChannelOff, SendError, SendLater, SendRefused, SendUnknown
from nanobot.text import one_line
from nanobot_whatsapp.cloud.payload import Raw, number_in, object_in, objects_in, text_in
from nanobot_whatsapp.settings import WhatsAppSettings

API_VERSION = "v23.0"
"""The version of the Graph API. Meta supports a version for two years."""

DOWNLOAD_SECONDS = 50.0
"""The time limit of a download, with retries and pauses. The core gives up after a minute."""

_CALL_SECONDS = 60.0
_UPLOAD_SECONDS = 600.0
_ANSWER_BYTES = 1_000_000
_ERROR_CHARACTERS = 300
_DOWNLOAD_ATTEMPTS = 3
_DOWNLOAD_PAUSE = 2.0

_TOKEN_LIKE = re.compile(r"EAA[A-Za-z0-9]{12,}")  # Meta sometimes repeats a rejected token
_HOST = re.compile(r"[a-z0-9.-]+", re.ASCII)
_URL = re.compile(r"[!-~]{1,4000}")
_META_HOSTS = (".fbsbx.com", ".fbcdn.net", ".whatsapp.net")  # the hosts of Meta's files

Kind = Literal["token", "account", "busy", "fault", "window", "no"]
"""`token`: a person must fix the token or its rights. `account`: a person must fix the business
account. `busy`: too many requests, or the number is under maintenance. `fault`: a failure at Meta,
which may have acted on the request. `window`: the recipient has not written for 24 hours. `no`: the
request will always be refused."""

_TOKEN = frozenset({0, 3, 10, 102, 190, 463, 467, 131005}) | frozenset(range(200, 300))
_ACCOUNT = frozenset({368, 131031, 131037, 131042, 131045, 133010})
_BUSY = frozenset({4, 17, 32, 613, 80007, 130429, 131048, 131056, 131057})
_FAULT = frozenset({1, 2, 131000, 131016, 133004, 133005})
_WINDOW = frozenset({470, 131047})
_KINDS: Mapping[Kind, frozenset[int]] = {"window": _WINDOW, "account": _ACCOUNT, "busy": _BUSY}
_NO_SUCH_OBJECT = (100, 33)

_WAITS = {4: 60.0, 80007: 60.0, 131048: 600.0, 131056: 10.0, 131057: 60.0}
"""Seconds, if Meta gives none: 131056 is about one recipient, 131048 about complaints."""
_BUSY_WAIT = 5.0
_PERSON_WAIT = 300.0  # the pause between attempts until a person fixes the problem
_MAX_WAIT = 3600.0

_EXPLAINED = {
    131026: "the number may not be on WhatsApp, or its app may be too old",
    131030: "a test number can send only to the numbers registered for it with Meta",
    131051: "WhatsApp does not support this kind of message",
}
"""Explanations for codes whose text from Meta does not help."""

OUTSIDE_WINDOW = (
    "the person has not written for 24 hours. Until they write again, only templates are accepted"
)


class Refused(HttpFault):
    """Meta answered with an error. `code` and `subcode` are Meta's, or 0. `status` is HTTP's.
    `seconds` is the time that Meta asks to wait, or 0.0."""

    def __init__(
        self, text: str, *, code: int, status: int, subcode: int = 0, seconds: float = 0.0
    ) -> None:
        super().__init__(text)
        self.code, self.status, self.subcode, self.seconds = code, status, subcode, seconds

    @property
    def kind(self) -> Kind:
        """The kind of reaction that the error needs."""
        return kind_of(self.code, self.status)

    @property
    def retry_after(self) -> float:
        """Seconds until the next attempt."""
        if self.kind in {"token", "account"}:
            return _PERSON_WAIT
        return min(self.seconds or _WAITS.get(self.code, _BUSY_WAIT), _MAX_WAIT)

    @property
    def needs_person(self) -> str:
        """The problem that a person must fix, for `nanobot status`, or empty."""
        if self.kind == "token":
            return f"Meta does not accept the access token: {self}"
        if self.kind == "account":
            return f"Meta has limited the business account: {explain(self.code, str(self))}"
        return ""

    def as_channel_off(self) -> ChannelOff | None:
        """Return an error that only new settings fix, or None for refusals that may pass."""
        if self.kind == "token":
            return ChannelOff(
                self.needs_person,
                hint="Create a new one for a system user with the whatsapp_business_messaging "
                "permission, and put it into channels.whatsapp.access_token.",
            )
        if (self.code, self.subcode) == _NO_SUCH_OBJECT:
            return ChannelOff(
                f"Meta does not know this phone number: {self}",
                hint="Compare channels.whatsapp.phone_number_id with Meta's app dashboard. It is "
                "an id, not the number itself.",
            )
        return None


def kind_of(code: int, status: int = 400) -> Kind:
    """Return the kind of an error with this code and HTTP status."""
    if status == 401 or (code in _TOKEN and (code or status in {401, 403})):
        return "token"
    for kind, codes in _KINDS.items():
        if code in codes:
            return kind
    if status == 429:
        return "busy"
    return "fault" if code in _FAULT or status >= 500 else "no"


def explain(code: int, meta_text: str) -> str:
    """Return a reason for people: our explanation of a known code, and Meta's text."""
    known = OUTSIDE_WINDOW if code in _WINDOW else _EXPLAINED.get(code, "")
    reported = meta_text or (f"error {code}" if code else "no reason was given")
    if code and meta_text:
        reported = f"{meta_text} ({code})"
    return f"{known}: {reported}" if known else reported


def as_send_error(error: Exception, *, is_idempotent: bool = False) -> SendError:
    """Return the port's error for `error`. Raise it `from None`.

    `is_idempotent`: the request delivers nothing (an upload), so it can be repeated."""
    if isinstance(error, SendError):
        return error
    if isinstance(error, Refused) and error.kind != "fault":
        text = explain(error.code, str(error))
        is_final = error.kind in {"no", "window"}
        return SendRefused(text) if is_final else SendLater(text, retry_after=error.retry_after)
    # Don't show texts of foreign errors: they may contain anything.
    reason = str(error) if isinstance(error, HttpFault) else type(error).__name__
    if isinstance(error, Refused):
        reason = explain(error.code, reason)
    if is_idempotent or isinstance(error, Unsent | BadAddress):
        return SendLater(f"WhatsApp cannot be reached: {reason}")
    return SendUnknown(f"WhatsApp did not confirm it: {reason}")


class Identity(Struct, frozen=True):
    """The business number: its digits, and its display name."""

    number: str
    name: str


class Graph:
    """Client for one business number. Close it at the end. Methods raise an `HttpFault` unless
    documented otherwise. Refusals that a person must resolve are reported to `health`."""

    def __init__(
        self,
        options: WhatsAppSettings,
        clock: Clock | None = None,
        health: HealthReporter | None = None,
    ) -> None:
        self._options, self._clock, self._health = options, clock or SystemClock(), health
        self._root = f"/{API_VERSION}"
        self._number = f"{self._root}/{quote(options.phone_number_id, safe='')}"
        token = options.access_token.get_secret_value()
        headers, proxy = {"Authorization": f"Bearer {token}"}, options.proxy.get_secret_value()
        self._http = HttpClient(token, headers=headers, proxy=proxy)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def whoami(self) -> Identity:
        """Return the number that the token may use."""
        query = {"fields": "display_phone_number,verified_name"}
        answer = await self._call("GET", self._number, params=query)
        digits = "".join(filter(str.isdigit, text_in(answer, "display_phone_number")))
        return Identity(digits, text_in(answer, "verified_name"))

    async def send(self, message: Mapping[str, object]) -> str:
        """Send a message and return its id. An answer without one counts as `Unconfirmed`."""
        answer = await self._call("POST", f"{self._number}/messages", json=message)
        if self._health is not None:
            self._health.resolve("token")
            self._health.resolve("account")
        ids = [text_in(one, "id") for one in objects_in(answer, "messages")]
        if not ids or not ids[0]:
            raise Unconfirmed("the answer contains no message id")
        return ids[0]

    async def upload(self, path: Path, name: str, mime: str) -> str:
        """Upload a file and return its media id. Raises `SendRefused` too, if the file no longer
        exists."""
        try:
            file = path.open("rb")
        except OSError:
            raise SendRefused(f"the file {name} no longer exists") from None
        fields = {"messaging_product": "whatsapp", "type": mime}
        before = WRITING.set(lambda: None)  # an upload delivers no message
        try:
            with file:
                answer = await self._call(
                    "POST",
                    f"{self._number}/media",
                    _UPLOAD_SECONDS,
                    data=fields,
                    files={"file": (name, file, mime)},
                )
        finally:
            WRITING.reset(before)
        id = text_in(answer, "id")
        if not id:
            raise Unconfirmed("the answer contains no file id")
        return id

    async def mark_read(self, message_id: str, *, typing: bool) -> None:
        """Mark a message as read and, with `typing`, show that an answer is being written (Meta
        hides that after 25 seconds, or when something is sent)."""
        body: dict[str, object] = {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message_id,
        }
        if typing:
            body["typing_indicator"] = {"type": "text"}
        await self._call("POST", f"{self._number}/messages", json=body)

    async def download(self, media_id: str, limit: int) -> bytes:
        """Return an inbound file of at most `limit` bytes.

        Raises `SendRefused` if it is larger or unavailable, and another `SendError` if it does not
        arrive in time."""
        try:
            async with asyncio.timeout(DOWNLOAD_SECONDS):
                for attempt in range(_DOWNLOAD_ATTEMPTS):
                    await self._clock.sleep(_DOWNLOAD_PAUSE * attempt)
                    try:
                        return await self._download(media_id, limit)
                    except HttpFault as error:
                        failure = as_send_error(error, is_idempotent=True)
                raise failure
        except TimeoutError:
            raise SendError(f"the file did not arrive within {DOWNLOAD_SECONDS:.0f} s") from None

    async def _download(self, media_id: str, limit: int) -> bytes:
        """Make one attempt: an address is valid for only five minutes. Raises `SendRefused` if a
        retry is pointless."""
        path = f"{self._root}/{quote(media_id, safe='')}"
        try:
            known = await self._call(
                "GET", path, params={"phone_number_id": self._options.phone_number_id}
            )
            if (number_in(known, "file_size") or 0.0) > limit:
                raise too_large(limit)
            url = text_in(known, "url")
            self._check_host(url)
            answer = await self._http.request("GET", url, _CALL_SECONDS, limit)
            if answer.status != HTTPStatus.OK:
                self._result(answer)
                raise Unconfirmed(f"HTTP status {answer.status}")
        except AnswerTooLarge:
            raise too_large(limit) from None
        except Refused as error:
            if error.kind in {"no", "token", "account"}:
                raise SendRefused(f"WhatsApp can't provide this file: {error}") from None
            raise
        return answer.body

    def _check_host(self, url: str) -> None:
        """Check that the host is Meta's, because the token is sent to it. Raises `SendRefused` for
        others."""
        try:
            parts = urlsplit(url if _URL.fullmatch(url) else "")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        is_meta = parts.scheme == "https" and port in {None, 443}
        # Reject an address if two parsers could disagree about its host.
        is_meta = is_meta and _HOST.fullmatch(host) is not None and host.endswith(_META_HOSTS)
        base = urlsplit(self._options.base_url)
        is_base = (parts.scheme, host, port) == (base.scheme, base.hostname, base.port)
        if not (is_meta or is_base) or parts.username is not None:
            raise SendRefused("WhatsApp gave an address for this file that is not Meta's")

    async def _call(
        self, method: str, path: str, seconds: float = _CALL_SECONDS, **content: Any
    ) -> Raw:
        """Return the answer. `content` are arguments of `HttpClient.request`."""
        url = f"{self._options.base_url}{path}"
        return self._result(
            await self._http.request(method, url, seconds, _ANSWER_BYTES, **content)
        )

    def _result(self, answer: HttpAnswer) -> Raw:
        """Return the answer's document, or raise its error."""
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            document = None
        status = answer.status
        seconds = max(0.0, number_in({"": answer.retry_after}, "") or 0.0)
        error = object_in(document, "error") if isinstance(document, dict) else {}
        if number_in(error, "code") is not None:
            raise self._refusal(error, status, seconds)
        if status in {413, 429}:
            raise Refused(f"HTTP status {status}", code=0, status=status, seconds=seconds)
        if not 200 <= status < 300:
            raise Unconfirmed(f"HTTP status {status}")
        if not isinstance(document, dict):
            raise Unconfirmed("the answer did not come from Meta")
        return document

    def _refusal(self, error: Raw, status: int, seconds: float) -> Refused:
        """Return Meta's error as ours, without anything that looks like a token. Reports it if a
        person must act."""
        details = text_in(object_in(error, "error_data"), "details")
        text = details or text_in(error, "message") or f"HTTP status {status}"
        refused = Refused(
            one_line(_TOKEN_LIKE.sub("…", self._http.redact(text)), _ERROR_CHARACTERS).rstrip("."),
            code=int(number_in(error, "code") or 0),
            subcode=int(number_in(error, "error_subcode") or 0),
            status=status,
            seconds=seconds,
        )
        if self._health is not None and (problem := refused.needs_person):
            self._health.report("token" if refused.kind == "token" else "account", problem)
        return refused


def too_large(limit: int) -> SendRefused:
    return SendRefused(f"the file is larger than the limit of {limit:,} bytes")
