"""Client of the Graph API for one business number.

Invariants: the token is only in a header of the request, never in an error or a log line, and is
sent only to Meta's host (or the configured one). See `nanobot.channel.http` for limits of size and
time.

Answers also update the state of the token and the account for `nanobot status`. A request fails
with an `HttpFault`: `Unconfirmed` also if a proxy answered in place of Meta, and `Refused` if Meta
answered with an error. Errors are classified by the right reaction, from Meta's codes and never
from its texts:
developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes
"""

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
"""Of the Graph API. Meta keeps a version for two years."""

DOWNLOAD_SECONDS = 50.0
"""For a file in all, attempts and pauses included: the core gives up after a minute."""

_CALL_SECONDS = 60.0
_UPLOAD_SECONDS = 600.0
_ANSWER_BYTES = 1_000_000
_ERROR_CHARACTERS = 300
_DOWNLOAD_ATTEMPTS = 3
_DOWNLOAD_PAUSE = 2.0

_TOKEN_LIKE = re.compile(r"EAA[A-Za-z0-9]{12,}")
"""Meta sometimes repeats a token that it does not accept."""
_HOST = re.compile(r"[a-z0-9.-]+", re.ASCII)
_URL = re.compile(r"[!-~]{1,4000}")
_META_HOSTS = (".fbsbx.com", ".fbcdn.net", ".whatsapp.net")
"""Where Meta keeps files."""

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
"""Seconds, where Meta gives none: 131056 is about one recipient, 131048 about complaints."""
_BUSY_WAIT = 5.0
_PERSON_WAIT = 300.0
"""Between attempts where a person has to fix something first."""
_MAX_WAIT = 3600.0

_EXPLAINED = {
    131026: "it cannot be delivered: there may be no WhatsApp at this number, or an old one",
    131030: "a test number sends only to the numbers that were entered for it at Meta",
    131051: "WhatsApp does not carry messages of this kind",
}
"""Where Meta's own text does not help."""

OUTSIDE_WINDOW = (
    "the person has not written for 24 hours, and until they do only templates are accepted"
)


class Refused(HttpFault):
    """Meta's answer was an error. `code` and `subcode` are Meta's, 0 if it gave none; `status` is
    that of HTTP; `seconds` is how long Meta asks to wait, 0.0 if it does not."""

    def __init__(
        self, text: str, *, code: int, status: int, subcode: int = 0, seconds: float = 0.0
    ) -> None:
        super().__init__(text)
        self.code, self.status, self.subcode, self.seconds = code, status, subcode, seconds

    @property
    def kind(self) -> Kind:
        """What to do about it."""
        return kind_of(self.code, self.status)

    @property
    def retry_after(self) -> float:
        """Seconds to wait before the next attempt."""
        if self.kind in {"token", "account"}:
            return _PERSON_WAIT
        return min(self.seconds or _WAITS.get(self.code, _BUSY_WAIT), _MAX_WAIT)

    @property
    def needs_person(self) -> str:
        """What a person has to fix, for `nanobot status`; empty if nothing."""
        if self.kind == "token":
            return f"Meta does not accept the access token: {self}"
        if self.kind == "account":
            return f"Meta has limited the business account: {explain(self.code, str(self))}"
        return ""

    def as_channel_off(self) -> ChannelOff | None:
        """What only a change of the settings fixes; None for refusals that may pass."""
        if self.kind == "token":
            return ChannelOff(
                self.needs_person,
                hint="Make a new one for a system user, with the permission "
                "whatsapp_business_messaging, and put it into channels.whatsapp.access_token.",
            )
        if (self.code, self.subcode) == _NO_SUCH_OBJECT:
            return ChannelOff(
                f"Meta knows no such phone number: {self}",
                hint="Compare channels.whatsapp.phone_number_id with Meta's app dashboard. It is "
                "not the number itself.",
            )
        return None


def kind_of(code: int, status: int = 400) -> Kind:
    """The kind of an error with this code, where `status` is that of HTTP."""
    if status == 401 or (code in _TOKEN and (code or status in {401, 403})):
        return "token"
    for kind, codes in _KINDS.items():
        if code in codes:
            return kind
    if status == 429:
        return "busy"
    return "fault" if code in _FAULT or status >= 500 else "no"


def explain(code: int, meta_text: str) -> str:
    """A reason for people: ours where the code is known, and Meta's text."""
    known = OUTSIDE_WINDOW if code in _WINDOW else _EXPLAINED.get(code, "")
    reported = meta_text or (f"error {code}" if code else "no reason was given")
    if code and meta_text:
        reported = f"{meta_text} ({code})"
    return f"{known}: {reported}" if known else reported


def as_send_error(error: Exception, *, is_idempotent: bool = False) -> SendError:
    """The port's error for `error`; raise it `from None`.

    `is_idempotent`: the request reaches nobody (an upload), so it can be repeated.
    """
    if isinstance(error, SendError):
        return error
    if isinstance(error, Refused) and error.kind != "fault":
        text = explain(error.code, str(error))
        is_final = error.kind in {"no", "window"}
        return SendRefused(text) if is_final else SendLater(text, retry_after=error.retry_after)
    # Texts of foreign errors are not shown: they may contain anything.
    reason = str(error) if isinstance(error, HttpFault) else type(error).__name__
    if isinstance(error, Refused):
        reason = explain(error.code, reason)
    if is_idempotent or isinstance(error, Unsent | BadAddress):
        return SendLater(f"WhatsApp cannot be reached: {reason}")
    return SendUnknown(f"WhatsApp did not confirm it: {reason}")


class Identity(Struct, frozen=True):
    """Which number this is: its digits, and the name that people see."""

    number: str
    name: str


class Graph:
    """One business number. Close it at the end. Methods raise an `HttpFault` unless they say
    otherwise; refusals that a person has to resolve are reported to `health`."""

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
        """Cut all connections."""
        await self._http.close()

    async def whoami(self) -> Identity:
        """Which number the token may use."""
        query = {"fields": "display_phone_number,verified_name"}
        answer = await self._call("GET", self._number, params=query)
        digits = "".join(filter(str.isdigit, text_in(answer, "display_phone_number")))
        return Identity(digits, text_in(answer, "verified_name"))

    async def send(self, message: Mapping[str, object]) -> str:
        """Send a message; its id. An answer without one counts as `Unconfirmed`."""
        answer = await self._call("POST", f"{self._number}/messages", json=message)
        if self._health is not None:
            self._health.resolve("token")
            self._health.resolve("account")
        ids = [text_in(one, "id") for one in objects_in(answer, "messages")]
        if not ids or not ids[0]:
            raise Unconfirmed("an answer that names no message")
        return ids[0]

    async def upload(self, path: Path, name: str, mime: str) -> str:
        """Upload a file; the id that messages refer to it by. Raises `SendRefused` too, if the file
        is gone."""
        try:
            file = path.open("rb")
        except OSError:
            raise SendRefused(f"the file {name} no longer exists") from None
        fields = {"messaging_product": "whatsapp", "type": mime}
        before = WRITING.set(lambda: None)  # no message is written yet
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
            raise Unconfirmed("an answer that names no file")
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
        """A file that someone sent, of at most `limit` bytes.

        Raises `SendRefused` if it is larger or Meta does not have it, and another `SendError` if it
        does not arrive in time.
        """
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
            raise SendError(f"the file did not come within {DOWNLOAD_SECONDS:.0f} s") from None

    async def _download(self, media_id: str, limit: int) -> bytes:
        """One attempt: the address is good for five minutes only. Raises `SendRefused` for what no
        other attempt changes."""
        path = f"{self._root}/{quote(media_id, safe='')}"
        try:
            known = await self._call(
                "GET", path, params={"phone_number_id": self._options.phone_number_id}
            )
            if (number_in(known, "file_size") or 0.0) > limit:
                raise _too_large(limit)
            url = text_in(known, "url")
            self._check_host(url)
            answer = await self._http.request("GET", url, _CALL_SECONDS, limit)
            if answer.status != HTTPStatus.OK:
                self._result(answer)
                raise Unconfirmed(f"HTTP status {answer.status}")
        except AnswerTooLarge:
            raise _too_large(limit) from None
        except Refused as error:
            if error.kind in {"no", "token", "account"}:
                raise SendRefused(f"WhatsApp does not give this file: {error}") from None
            raise
        return answer.body

    def _check_host(self, url: str) -> None:
        """The token goes along, so only to hosts of Meta's. Raises `SendRefused` for others."""
        try:
            parts = urlsplit(url if _URL.fullmatch(url) else "")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        is_meta = parts.scheme == "https" and port in {None, 443}
        # Where two parsers could disagree about what the host is, the address is rejected.
        is_meta = is_meta and _HOST.fullmatch(host) is not None and host.endswith(_META_HOSTS)
        base = urlsplit(self._options.base_url)
        is_base = (parts.scheme, host, port) == (base.scheme, base.hostname, base.port)
        if not (is_meta or is_base) or parts.username is not None:
            raise SendRefused("WhatsApp names an address for this file that is not Meta's")

    async def _call(
        self, method: str, path: str, seconds: float = _CALL_SECONDS, **content: Any
    ) -> Raw:
        """The answer; `content` is what httpx accepts."""
        url = f"{self._options.base_url}{path}"
        return self._result(
            await self._http.request(method, url, seconds, _ANSWER_BYTES, **content)
        )

    def _result(self, answer: HttpAnswer) -> Raw:
        """The answer's document, unless it is an error."""
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
            raise Unconfirmed("an answer that is not Meta's")
        return document

    def _refusal(self, error: Raw, status: int, seconds: float) -> Refused:
        """Meta's error as ours, without anything that looks like a token; reports it if need be."""
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


def _too_large(limit: int) -> SendRefused:
    return SendRefused(f"the file has more than {limit:,} bytes")
