"""The Graph API for the rest of this transport: what is asked of Meta, in words of ours.

What an answer says about the token and the account is told to whoever asked for it, and to
`HealthReporter`, so that `nanobot status` knows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from nanobot.channel.health import HealthReporter
from nanobot.clock import Clock
from nanobot.errors import SendError, SendRefused
from nanobot_whatsapp.cloud.failures import (
    GraphError,
    MaybeSent,
    Refused,
    as_send_error,
    trouble_of,
)
from nanobot_whatsapp.cloud.reading import Raw, number_in, objects_in, text_in
from nanobot_whatsapp.cloud.wire import TooLarge, Wire
from nanobot_whatsapp.settings import WhatsAppSettings

DOWNLOAD_SECONDS = 50.0
"""For a file in all, attempts and pauses included: the core gives up after a minute."""

_DOWNLOAD_TRIES = 3
_PAUSE = 2.0
_HOST = re.compile(r"[a-z0-9.-]+", re.ASCII)
_ADDRESS = re.compile(r"[!-~]{1,4000}")
_META = (".fbsbx.com", ".fbcdn.net", ".whatsapp.net")
"""Where Meta keeps files. The token goes along, so nobody else is asked."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which number this is: its digits, and the name that people see."""

    number: str
    name: str


async def identify(wire: Wire, number: str) -> Identity:
    """Which number is at the path `number`. Raises the errors of `failures`."""
    answer = await wire.get(number, {"fields": "display_phone_number,verified_name"})
    shown = text_in(answer, "display_phone_number")
    digits = "".join(filter(str.isdigit, shown))
    return Identity(digits, text_in(answer, "verified_name"))


def path_of(options: WhatsAppSettings) -> str:
    """Where the Graph API has the number of these settings."""
    return f"/{options.api_version}/{quote(options.phone_number_id, safe='')}"


class Graph:
    """One business number. Raises the errors of `failures`."""

    def __init__(
        self, wire: Wire, options: WhatsAppSettings, clock: Clock, health: HealthReporter
    ) -> None:
        self._wire, self._clock, self._health = wire, clock, health
        self._root = f"/{options.api_version}"
        self._number = path_of(options)
        self._phone_number_id = options.phone_number_id
        self._base = urlsplit(options.base_url)

    async def whoami(self) -> Identity:
        """Which number the token may use."""
        return await identify(self._wire, self._number)

    async def send(self, message: Mapping[str, object]) -> str:
        """Send a message; its id. An answer without one counts as `MaybeSent`."""
        try:
            answer = await self._wire.post(f"{self._number}/messages", message)
        except Refused as error:
            self._heed(error)
            raise
        self._health.resolve("token")
        self._health.resolve("account")
        ids = [text_in(one, "id") for one in objects_in(answer, "messages")]
        if not ids or not ids[0]:
            raise MaybeSent("an answer that names no message")
        return ids[0]

    async def upload(self, path: Path, name: str, mime: str) -> str:
        """Hand a file over to Meta; the id that a message names it by. Raises `SendRefused` where
        the file is gone."""
        try:
            file = path.open("rb")
        except OSError:
            raise SendRefused(f"the file {name} is gone") from None
        fields = {"messaging_product": "whatsapp", "type": mime}
        with file:
            try:
                answer = await self._wire.upload(f"{self._number}/media", fields, name, mime, file)
            except Refused as error:
                self._heed(error)
                raise
        id = text_in(answer, "id")
        if not id:
            raise MaybeSent("an answer that names no file")
        return id

    async def seen(self, message_id: str, *, typing: bool) -> None:
        """Mark a message as read and, if wanted, show that an answer is being written (Meta takes
        that away after 25 seconds, or when something is sent)."""
        body: dict[str, object] = {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message_id,
        }
        if typing:
            body["typing_indicator"] = {"type": "text"}
        await self._wire.post(f"{self._number}/messages", body)

    async def download(self, media_id: str, limit: int) -> bytes:
        """A file that someone sent, of at most `limit` bytes.

        Raises `SendRefused` for one that is larger or that Meta does not have, and another
        `SendError` where it does not come in time.
        """
        try:
            async with asyncio.timeout(DOWNLOAD_SECONDS):
                return await self._insist_on_file(media_id, limit)
        except TimeoutError:
            raise SendError(f"the file did not come within {DOWNLOAD_SECONDS:.0f} s") from None

    async def _insist_on_file(self, media_id: str, limit: int) -> bytes:
        for attempt in range(1, _DOWNLOAD_TRIES + 1):
            try:
                return await self._download(media_id, limit)
            except TooLarge:
                raise _too_large(limit) from None
            except GraphError as error:
                final = isinstance(error, Refused) and error.kind in {"no", "token", "account"}
                if isinstance(error, Refused):
                    self._heed(error)
                if final:
                    raise SendRefused(f"WhatsApp does not give this file: {error}") from None
                if attempt == _DOWNLOAD_TRIES:
                    raise as_send_error(error, harmless=True) from None
            await self._clock.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable")

    async def _download(self, media_id: str, limit: int) -> bytes:
        # The address is good for five minutes only, so each attempt asks for a new one.
        known = await self._wire.get(
            f"{self._root}/{quote(media_id, safe='')}", {"phone_number_id": self._phone_number_id}
        )
        if (number_in(known, "file_size") or 0.0) > limit:
            raise _too_large(limit)
        return await self._wire.download(self._checked(known), limit)

    def _checked(self, known: Raw) -> str:
        """Where the file is, if that is a place of Meta's."""
        url = text_in(known, "url")
        url = url if _ADDRESS.fullmatch(url) else ""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port, parts = "", None, urlsplit("")
        is_meta = parts.scheme == "https" and port in {None, 443}
        # Where two parsers could disagree about what the host is, it is nobody's.
        is_meta = is_meta and _HOST.fullmatch(host) is not None and host.endswith(_META)
        own = (parts.scheme, host, port) == (
            self._base.scheme,
            self._base.hostname,
            self._base.port,
        )
        if not (is_meta or own) or parts.username is not None:
            raise SendRefused("WhatsApp names an address for this file that is not Meta's")
        return url

    def _heed(self, error: Refused) -> None:
        if trouble := trouble_of(error):
            self._health.report("token" if error.kind == "token" else "account", trouble)


def _too_large(limit: int) -> SendRefused:
    return SendRefused(f"the file has more than {limit:,} bytes")
