"""The settings of the API. Its address is in the section `http`."""

from __future__ import annotations

from nanobot.validation import Checked


class ApiSettings(Checked, frozen=True):
    """The API has only the keys of every channel."""
