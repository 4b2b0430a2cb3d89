"""What can be set about the API. Where it listens, the section `http` says."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nanobot.validation import Checked


class ApiSettings(Checked, frozen=True):
    """The keys of `channels.api` beyond those that every channel has."""

    wait_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    """How long a request waits for its answer; the answer is worked on however long it takes."""
    max_megabytes: Annotated[int, Meta(ge=1, le=200)] = 30
    """The largest request, with its files."""
