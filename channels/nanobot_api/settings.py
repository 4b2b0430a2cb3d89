"""What can be set about the API. Where it listens, the section `http` says."""

from __future__ import annotations

from nanobot.validation import Checked


class ApiSettings(Checked, frozen=True):
    """The API has no keys beyond those that every channel has."""
