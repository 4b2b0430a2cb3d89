"""Files that came with messages or out of tools: content-hash names, each written once."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import mimetypes
import re
from pathlib import Path

from nanobot.agent.images import image_size
from nanobot.errors import WriteConflict
from nanobot.providers.port import Image
from nanobot.security.paths import Root
from nanobot.tokens import image_tokens

MAX_BYTES = 20 * 1024 * 1024
"""The largest file that is taken in."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
"""The largest image that is put into a prompt."""

_IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")


class MediaStore:
    """The folder `media/` of a home. A name never leaves it, whoever wrote it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = Root(folder, name="media folder")

    def put(self, data: bytes, mime: str) -> str:
        """Keep `data`; its name. The same content has the same name. Raises `StorageError`."""
        suffix = mimetypes.guess_extension(mime) or ".bin"
        name = f"{hashlib.sha256(data).hexdigest()[:32]}{suffix}"
        self._root.create()
        if (self._folder / name).exists():
            return name
        with contextlib.suppress(WriteConflict):  # somebody just kept the same content
            self._root.place(name).write_bytes(data, expected=None)
        return name

    def put_base64(self, data: str, mime: str) -> str:
        """The same for base64 text."""
        return self.put(base64.b64decode(data), mime)

    def image(self, name: str) -> Image | None:
        """A kept image for a prompt; None for other files, and for one that is gone or too big."""
        mime = _IMAGE_TYPES.get(Path(name).suffix)
        if mime is None or not _NAME.fullmatch(name):
            return None
        try:
            data = (self._folder / name).read_bytes()
        except OSError:
            return None
        if len(data) > MAX_IMAGE_BYTES:
            return None
        tokens = image_tokens(*image_size(data))
        return Image(base64.b64encode(data).decode(), mime, tokens)
