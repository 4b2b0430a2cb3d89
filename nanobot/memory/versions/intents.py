"""What is about to be written, on the disk before it is.

A crash between a file's change and its version then leaves no doubt whose change it was.
At most one is open at a time, in a file of the repository.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime

from nanobot.memory.versions.git import Repository

_FILE = "intent.json"


@dataclass(frozen=True, slots=True)
class Intent:
    """A change of the file `path`; `before` and `after` are SHA-256 in hex, empty for no file.

    `message` is the message of the version to be, `parent` the commit before it.
    """

    path: str
    before: str
    after: str
    parent: str
    message: str
    when: datetime


def digest(content: bytes | None) -> str:
    """What an intent knows a content by."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def save(repository: Repository, intent: Intent) -> None:
    """Put the intent on the disk."""
    fields = {name: getattr(intent, name) for name in ("path", "before", "after", "parent")}
    fields |= {"message": intent.message, "when": intent.when.isoformat()}
    repository.write_file(_FILE, json.dumps(fields).encode())


def load(repository: Repository) -> Intent | None:
    """The open intent; None where there is none that can be read."""
    try:
        fields = json.loads(repository.read_file(_FILE))
        when = datetime.fromisoformat(fields.pop("when"))
        return Intent(**{name: str(value) for name, value in fields.items()}, when=when)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def drop(repository: Repository) -> None:
    """The change has its version, or did not happen."""
    (repository.path / _FILE).unlink(missing_ok=True)
