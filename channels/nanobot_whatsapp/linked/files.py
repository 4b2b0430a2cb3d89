"""Files that people sent: the helper downloads and decrypts, we read and remove what it wrote.

A name that the helper gives is not trusted to stay in its folder. What nobody waits for any more is
removed: at the next start, or when another file is fetched.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from nanobot.bus.events import Media
from nanobot.clock import Clock
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown
from nanobot_whatsapp.linked.outbound import Link

_FOLDER = "downloads"
_PATH = re.compile(r"downloads/([A-Za-z0-9_-][A-Za-z0-9._-]{0,200})", re.ASCII)
_TRIES = 4
_LONGEST_PAUSE = 5.0
_SECONDS = 300.0
_LATE = 2 * _SECONDS
"""Seconds after which nobody waits for a file any more."""

Helper = Callable[[], Awaitable[Link]]
"""Gives the helper that runs, once there is one and WhatsApp is connected."""


class Downloads:
    """Gets files through the helper of `folder`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock

    def sweep(self, seconds: float | None = None) -> None:
        """Remove what is that old; without `seconds` everything, for a time when no helper runs."""
        now = self._clock.now().timestamp()
        with suppress(OSError):
            for file in (self._folder / _FOLDER).iterdir():
                with suppress(FileNotFoundError):  # another fetch was faster
                    if seconds is None or now - file.lstat().st_mtime > seconds:
                        file.unlink()

    async def fetch(self, helper: Helper, media: Media, limit: int) -> bytes:
        """The content of a file of at most `limit` bytes, through whichever helper runs.

        Raises `SendRefused` for one that is larger or cannot be had, and another `SendError` where
        WhatsApp cannot be reached.
        """
        if media.size > limit:
            raise SendRefused(f"the file has {media.size:,} bytes, more than {limit:,}")
        params = {"ref": _ref(media), "limit": limit}
        await asyncio.to_thread(self.sweep, _LATE)
        data = await self._insist(helper, params)
        path = _PATH.fullmatch(str(data.get("path")))
        if path is None:
            raise SendRefused("the WhatsApp helper put the file where it does not belong")
        return await asyncio.to_thread(self._read, path[1], limit)

    async def _insist(self, helper: Helper, params: Mapping[str, object]) -> Mapping[str, object]:
        for _ in range(_TRIES - 1):
            try:
                return await (await helper()).request("download", params, _SECONDS)
            except SendLater as error:
                await self._clock.sleep(min(error.retry_after, _LONGEST_PAUSE))
            except SendUnknown:  # this helper ended, and the next one can do it as well
                await self._clock.sleep(_LONGEST_PAUSE)
        return await (await helper()).request("download", params, _SECONDS)

    def _read(self, name: str, limit: int) -> bytes:
        path = self._folder / _FOLDER / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(limit + 1)
            path.unlink()
        except OSError as error:
            raise SendError(f"the file was downloaded and cannot be read: {error}") from error
        if len(content) > limit:
            raise SendRefused(f"the file has more than {limit:,} bytes")
        return content


def _ref(media: Media) -> Mapping[str, object]:
    try:
        ref = json.loads(media.ref)
    except ValueError:
        ref = None
    if not isinstance(ref, dict):
        raise SendRefused("the file is not one of this linked device")
    return ref
