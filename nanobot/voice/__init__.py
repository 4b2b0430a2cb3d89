"""Speech in and out by programs of the owner's choice, on this machine.

A program listens (sound in, text out) or speaks (text in, sound out). What it is given comes from
anybody, and sound is a format that parsers fall over, so it runs in the sandbox (`programs`),
without network, with a folder to itself; what it leaves is checked before it is used (`sound`).
`engines` are the two that the rest of nanobot sees. A server that does the same is in
`nanobot.providers`.
"""

from __future__ import annotations

from nanobot.errors import NanobotError


class VoiceFailed(NanobotError):
    """There is no text, or no sound. What was to be said or heard is not lost by it."""
