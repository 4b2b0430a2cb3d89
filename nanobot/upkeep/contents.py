"""The values that a backup is described in, and how they are written down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

FORMAT = 1
"""The layout of a backup: `backup.json`, the files below `home/`, `manifest.json`."""

Kind = Literal["file", "folder", "link"]
_KINDS: tuple[Kind, ...] = ("file", "folder", "link")


@dataclass(frozen=True, slots=True)
class Item:
    """Something that goes into a backup. `path` is relative to the home, and so is `source`: where
    the first `size` bytes of a file are read, if not at `path`. `target` is what a link says;
    `modified` is in seconds since 1970."""

    path: str
    kind: Kind
    mode: int
    modified: int
    size: int = 0
    source: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """What a backup says first. `journal` is the format of its journal; `live`: a gateway ran when
    it was made; `files` and `size` (in bytes) are what it holds; `left_out` is what of the home is
    not in it and may be missed, the first of it."""

    nanobot: str
    journal: int
    made_at: datetime
    live: bool
    media: bool
    files: int
    size: int
    left_out: tuple[str, ...] = ()
    format: int = FORMAT

    def encoded(self) -> bytes:
        """As it is stored."""
        return json.dumps({**asdict(self), "made_at": self.made_at.isoformat()}, indent=1).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Head:
        """What `encoded` made, of this format or another. Raises `ValueError` for what is none."""
        match json.loads(data):
            case {
                "format": int(format_),
                "nanobot": str(nanobot),
                "journal": int(journal),
                "made_at": str(made_at),
                "live": bool(live),
                "media": bool(media),
                "files": int(files),
                "size": int(size),
                "left_out": list(left_out),
            }:
                when = datetime.fromisoformat(made_at)
                if when.tzinfo is None or files < 0 or size < 0:
                    raise ValueError("no head of a backup")
                names = tuple(str(name) for name in left_out)
                return cls(nanobot, journal, when, live, media, files, size, names, format_)
        raise ValueError("no head of a backup")


def encode_sums(sums: Mapping[str, str]) -> bytes:
    """`manifest.json`: the SHA-256 of each file, in hex."""
    return json.dumps({"sha256": sums}, indent=0).encode()


def decode_sums(data: bytes) -> dict[str, str]:
    """What `encode_sums` made. Raises `ValueError` for anything else."""
    match json.loads(data):
        case {"sha256": dict(sums)} if all(isinstance(value, str) for value in sums.values()):
            return sums
    raise ValueError("no manifest of a backup")


def encode_items(items: Iterable[Item]) -> Iterator[bytes]:
    """One line for each, to hand them to another process."""
    for item in items:
        yield json.dumps(asdict(item)).encode() + b"\n"


def decode_items(lines: Iterable[bytes]) -> Iterator[Item]:
    """What `encode_items` made. Raises `ValueError` for anything else."""
    for line in lines:
        match json.loads(line):
            case {
                "path": str(path),
                "kind": str(kind),
                "mode": int(mode),
                "modified": int(modified),
                "size": int(size),
                "source": str(source),
                "target": str(target),
            } if kind in _KINDS:
                yield Item(path, kind, mode, modified, size, source, target)
            case _:
                raise ValueError("no item of a snapshot")
