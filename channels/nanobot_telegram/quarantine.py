"""Updates that cannot be understood are kept aside for a developer, and never tried again.

The file is for the owner's eyes (0600) and bounded; what does not fit pushes out the oldest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from datetime import datetime
from pathlib import Path

from loguru import logger

_FILE = "quarantine.jsonl"
_FILE_BYTES = 1_000_000
_UPDATE_CHARACTERS = 50_000
_REMEMBERED = 256


class Quarantine:
    """Keeps updates in `folder`, which exists. Never raises for want of space."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def keep(self, update: object, error: Exception, now: datetime) -> None:
        """Put `update` aside and log that once, even if it comes again."""
        text = _as_text(update)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if digest in self._known:
            return
        self._known[digest] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        reason = type(error).__name__
        logger.warning("telegram: put aside an update that is malformed ({}): {}", reason, _FILE)
        entry = {"time": now.isoformat(), "error": reason, "update": text[:_UPDATE_CHARACTERS]}
        try:
            self._append(json.dumps(entry).encode() + b"\n")
        except OSError as failure:
            logger.warning("telegram: cannot write {} ({})", self._path, failure.strerror)

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)
            size = file.tell()
        if size > _FILE_BYTES:
            self._path.replace(self._path.with_suffix(".old.jsonl"))


def _as_text(update: object) -> str:
    try:
        return json.dumps(update)
    except (TypeError, ValueError, RecursionError):
        return repr(update)
