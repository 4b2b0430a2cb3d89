"""Speech in and out by local programs that the owner chose.

A program transcribes (sound to text) or speaks (text to sound). Its input is untrusted, and sound
formats break parsers. So it runs in the sandbox (`programs`), without network, in its own folder,
and its output is checked (`sound`). The rest of nanobot uses only `engines`. Servers with the same
task are in `nanobot.providers`."""

from __future__ import annotations

from nanobot.errors import NanobotError


class VoiceFailed(NanobotError):
    """No text or no sound was produced. The message itself is not lost."""
