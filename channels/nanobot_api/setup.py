"""The check of the API for `nanobot doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nanobot.channel import CheckFinding, CheckRequest
from nanobot.channel.keys import ApiKeys
from nanobot.text import pluralize


async def check(request: CheckRequest) -> Sequence[CheckFinding]:
    """Check that there are keys. Raises `StorageError`."""
    keys = await asyncio.to_thread(ApiKeys(request.state_folder).all)
    if not keys:
        hint = "To create a key for a program, run `nanobot api keys add NAME`."
        return [CheckFinding("warn", "the API is on, but it has no keys", hint)]
    return [CheckFinding("ok", f"{pluralize(len(keys), 'key')} for programs")]
