"""What there is to index, and from the files to passages.

Every file is found, with its state, by one stat. Keys and paths are text that the index can hold,
whatever bytes a name on disk is made of. Long-term files, notes, histories and documents are read
whole; the lines of a session one by one, because there may be hundreds of thousands.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, tzinfo
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from loguru import logger
from msgspec import Struct

from nanobot.bus.sqlite import storable
from nanobot.io import FileState, lstate_of, opened, without_long_lines
from nanobot.memory.digests import digest_lines, first_of, month_of
from nanobot.memory.documents import FACTS, PENDING, RETIRED
from nanobot.memory.files import text_of
from nanobot.memory.guard import fact_lines
from nanobot.memory.history import (
    NUMBER_LIMIT,
    READABLE,
    HistoryEntry,
    decode_foreign,
    entry_lines,
    paragraphs_beside,
)
from nanobot.memory.history import decode as decode_entry
from nanobot.memory.importance import without_importance
from nanobot.memory.lines import is_heading, kind_of, numbered_blocks
from nanobot.memory.losses import retired_in
from nanobot.memory.pending import pending_blocks
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import OWN_FILE, Source, Sources
from nanobot.memory.search.library import documents, passages
from nanobot.memory.store import day_of, is_by_hand
from nanobot.memory.taint import NOTE, OTHERS, is_unconfirmed
from nanobot.messages import TURN_FAILED, TURN_STOPPED, Message, speaker_in
from nanobot.security.paths import Place, Root
from nanobot.session.jsonl_reader import place
from nanobot.session.records import Metadata, Retraction, decode_fields
from nanobot.tasks import paced

LONGEST_MESSAGE = 200_000
LONGEST_OUTPUT = 2_000
"""Characters of a message, and of a tool's output, that are indexed: who called the tool said what
mattered, and the rest drowns it."""

_BLOCK = 1 << 20
_LARGEST = 256 * 1024 * 1024
_ENDS_ASKING = re.compile(r"[?？][^\w]*\Z")
_MINUTE = re.compile(r"[-*] ((?:[01]\d|2[0-3]):[0-5]\d) ", re.ASCII)
_NOTICES = {"", TURN_FAILED, TURN_STOPPED}
_WAITS = ", waits for the person's word"
_SEARCH = "search_memory"
"""The tool whose output is never indexed: it repeats what is."""


class SourceFile(Struct, frozen=True):
    """A file below `folder` as it was a moment ago; `name` is relative to the folder."""

    folder: Path
    name: str
    state: FileState

    @property
    def place(self) -> Place:
        """Where it is; no link below the folder is followed."""
        return Root(self.folder).place(self.name)

    def read(self) -> bytes:
        """The content. Raises NanobotError."""
        return self.place.read_bytes(_LARGEST) or b""

    def lines(self) -> bytes:
        """The content without the rest of lines that are too long. Raises NanobotError."""
        with self.place.opened(os.O_RDONLY) as descriptor:
            return without_long_lines(descriptor)[0]


Name = tuple[Source, str, str]
"""Source, scope and key: what a stream is called. The scope of a session is empty: it is asked for
at a search."""

Files = tuple[SourceFile, ...]


def streams(sources: Sources) -> Iterator[tuple[Name, Files]]:
    """All streams there are now, but sessions."""
    for scope, folder in sources.memories():
        yield from _memory(scope, folder)
    if library := sources.library:
        for place, entry in documents(library):
            state = FileState(0, entry.size, entry.mtime_ns)
            name = storable("/".join(place.names[1:]))
            yield ("library", OWNER, name), (SourceFile(library.parent, place.relative, state),)


def _memory(scope: str, folder: Path) -> Iterator[tuple[Name, Files]]:
    # The folder's parent is the root, so that a memory folder which is a link is not followed.
    root, inside = folder.parent, _listed(folder.parent, folder.name)
    yield from _histories(scope, inside)
    facts = tuple(
        SourceFile(root, path, state) for path in FACTS if (state := lstate_of(f"{root}/{path}"))
    )
    for file in facts:
        yield ("memory", scope, file.name), (file,)
    for name, file in inside.items():
        path = f"memory/{name}"
        if day_of(name) or month_of(name):
            yield ("note", scope, name), (file,)
        elif path == RETIRED:  # what stands in the others again is true again
            yield ("memory", scope, path), (file, *facts)
        elif path == PENDING or is_by_hand(name):
            yield ("memory", scope, storable(path)), (file,)


def _histories(scope: str, inside: Mapping[str, SourceFile]) -> Iterator[tuple[Name, Files]]:
    lines = inside.get("history.jsonl")
    files = (lines,) if lines else ()
    if files:
        yield ("history", scope, scope), files
    if paragraphs := inside.get("HISTORY.md"):
        yield ("history", scope, READABLE), (paragraphs, *files)


def _listed(root: Path, below: str = "") -> dict[str, SourceFile]:
    """What lies in a folder by name, hidden files left out; nothing where there is no folder."""
    prefix, found = f"{below}/" if below else "", dict[str, SourceFile]()
    try:
        names = sorted(os.listdir(f"{root}/{below}"))  # noqa: PTH208 - after every turn
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        logger.warning("{} is not searched: {}", root / below, error.strerror)
        return {}
    for name in paced(names):
        state = None if name.startswith(".") else lstate_of(f"{root}/{prefix}{name}")
        if state:
            found[name] = SourceFile(root, f"{prefix}{name}", state)
    return found


def lines_of(file: SourceFile, start: int = 0) -> Iterator[bytes]:
    """The whole lines of a session's file from the offset `start` on.

    Raises NanobotError, and FileNotFoundError where another file has the name by now: the next
    listing sees that one.
    """
    with opened(file.folder / file.name) as descriptor:
        status = os.fstat(descriptor)
        if status.st_ino != file.state.inode:
            raise FileNotFoundError(file.name)
        with os.fdopen(os.dup(descriptor), "rb") as lines:
            lines.seek(start)
            for raw in paced(lines):
                if raw.endswith(b"\n") or decode_fields(raw) is not None:
                    yield raw


def checksum(file: SourceFile, size: int) -> int:
    """Stands for the first `size` bytes of a file. Raises like `lines_of`."""
    found, left = 0, size
    with opened(file.folder / file.name) as descriptor:
        while left and (block := os.read(descriptor, min(left, _BLOCK))):
            found, left = crc32(block, found), left - len(block)
    return found


ASKS, ENDS_ASKING = 1, 2
"""Values of `IndexEntry.asks`: a question stands in it, or at its end; 0 for none."""


class IndexEntry(NamedTuple):
    """A passage before it has an id. `seq` is unique in its stream; `moment` is ISO or empty.

    `hash` stands for the line it came from. `first` and `last` are what a history entry sums up.
    """

    seq: int
    text: str
    moment: str = ""
    role: str = ""
    speaker: str = ""
    origin: str = ""
    turn: str = ""
    place: str = ""
    hash: int = 0
    first: int = 0
    last: int = 0

    @property
    def asks(self) -> int:
        """Whether a question stands in it, or at its end."""
        if "?" not in self.text and "？" not in self.text:
            return 0
        return ENDS_ASKING if _ENDS_ASKING.search(self.text[-12:]) else ASKS


def line_hash(raw: bytes) -> int:
    """Stands for a line, whatever ends it."""
    raw = raw.rstrip(b"\r\n")
    return (len(raw) & 0x7FFFFFFF) << 32 | crc32(raw)


class SessionReader(Struct):
    """Reads the lines of one session's files in order.

    `number` is that of the last message, for messages without one; a message that one of the
    `retractions` covers is passed over; `metadata` is the newest that was seen, as JSON.
    """

    number: int = 0
    retractions: Sequence[Retraction] = ()
    metadata: str | None = None

    def entry(self, raw: bytes) -> IndexEntry | None:
        """The passage on a line; None where it is no message of interest."""
        placed, number = place(raw.rstrip(b"\r\n"), self.number)
        self.number = number if number < NUMBER_LIMIT else self.number + 1
        record = placed.record
        if isinstance(record, Metadata):
            self.metadata = json.dumps(dict(record.metadata or {}))
        return self._entry(record, raw) if isinstance(record, Message) else None

    def _entry(self, message: Message, raw: bytes) -> IndexEntry | None:
        text, is_output = message.content, message.role == "tool"
        if text.strip() in _NOTICES or (is_output and message.name == _SEARCH):
            return None
        if any(gone.covers(message) for gone in self.retractions):
            return None
        return IndexEntry(
            self.number,
            text[: LONGEST_OUTPUT if is_output else LONGEST_MESSAGE],
            message.timestamp.isoformat() if message.timestamp else "",
            message.role,
            message.name or speaker_in(text) or message.role,
            message.origin,
            message.turn_id,
            hash=line_hash(raw),
        )


def entries_of(
    name: Name, files: Files, template: Mapping[str, str], zone: tzinfo | None
) -> Iterator[IndexEntry]:
    """The passages of any stream but a session, in order. `template` is what long-term files say
    before anything was learned, `zone` for times without an offset. Raises NanobotError."""
    source, _, key = name
    found: Iterator[IndexEntry]
    if source == "history" and key == READABLE:
        entries = chain.from_iterable(_history(file.lines(), zone) for file in files[1:])
        found = _paragraphs(text_of(files[0].read()), entries, zone)
    elif source == "history":
        found = chain.from_iterable(_history_passages(file.lines(), zone) for file in files)
    elif source == "library":
        cited = enumerate(passages(files[0].place), 1)
        found = (IndexEntry(number, text, place=place) for number, (place, text) in cited)
    else:
        found = _document_passages(name, files, template, zone)
    for entry in found:
        said = "\0".join(map(str, entry[1:]))
        yield entry._replace(hash=line_hash(said.encode("utf-8", "replace")))


def _document_passages(
    name: Name, files: Files, template: Mapping[str, str], zone: tzinfo | None
) -> Iterator[IndexEntry]:
    source, _, key = name
    text, *others = (text_of(file.read()) for file in files)
    if source == "note":
        day = day_of(key)
        return _note_passages(day, text, zone) if day else _digest_passages(key, text, zone)
    if key == PENDING:
        return _held_passages(text, zone)
    if key == RETIRED:
        return _past_passages(text, others, zone)
    return _fact_passages(key, text, template.get(key, ""))


def _history_passages(content: bytes, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """An entry for each line: the summary, and under it the key facts."""
    for entry in _history(content, zone):
        if not entry.cursor:
            continue
        facts = [f"- {fact}" for fact in entry.key_facts]
        yield IndexEntry(
            seq=entry.cursor,
            text="\n".join([entry.summary.strip(), *facts])[:LONGEST_MESSAGE],
            moment=entry.timestamp.isoformat(),
            origin=",".join(entry.origin),
            turn=entry.session,
            place=f"history {entry.cursor}",
            first=entry.first,
            last=entry.last,
        )


def _history(content: bytes, zone: tzinfo | None) -> Iterator[HistoryEntry]:
    """Yield the entries of a history file, also in the format of HKUDS/nanobot."""
    for _, raw in paced(entry_lines(content)):
        if entry := decode_entry(raw, zone) or decode_foreign(
            raw, datetime.min.replace(tzinfo=zone)
        ):
            yield entry


def _paragraphs(
    text: str, entries: Iterator[HistoryEntry], zone: tzinfo | None
) -> Iterator[IndexEntry]:
    """Yield the paragraphs of HISTORY.md without an entry. Their author is unknown."""
    found = paragraphs_beside(text, entries)
    for number, (line, paragraph, stamp) in enumerate(found, 1):
        moment = ""
        with suppress(ValueError):  # no such day
            moment = datetime.fromisoformat(stamp).replace(tzinfo=zone).isoformat()
        shown = paragraph[:LONGEST_MESSAGE]
        yield IndexEntry(number, shown, moment, origin=OWN_FILE, place=f"{READABLE}:{line}")


def _digest_passages(name: str, text: str, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """The lines of the digest called `name`, each dated to the first day that it names."""
    month = month_of(name)
    for number, (line, digested) in enumerate(digest_lines(month, text), 1):
        day = min(digested.days, default=first_of(month))
        moment = datetime.combine(day, time(), zone).isoformat()
        yield IndexEntry(number, str(digested), moment, place=f"{name}:{line}")


def _note_passages(day: date, text: str, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """The passages of a day's note: its entries, and other lines."""
    origin = ""
    blocks = (one for one in numbered_blocks(text, headings=True) if one[1] != f"# {day}")
    for number, (line, passage) in enumerate(blocks, 1):
        minute = _MINUTE.match(passage)
        written = time.fromisoformat(minute[1]) if minute else time()
        moment = datetime.combine(day, written, zone).isoformat()
        if not passage.startswith(" "):  # what is indented belongs to the note above
            origin = NOTE if is_unconfirmed(passage) else ""
        yield IndexEntry(number, passage, moment, origin=origin, place=f"{day}.md:{line}")


def _fact_passages(path: str, text: str, template: str) -> Iterator[IndexEntry]:
    """The facts in the file at `path` beyond its template, each under its heading."""
    heading, origin = "", "" if path in FACTS else OWN_FILE
    for number, (line, passage) in enumerate(_facts_whole(text), 1):
        if is_heading(passage):
            heading = f"{passage.strip('# ')}\n"
        elif fact_lines(passage, template):
            fact = f"{heading}{without_importance(passage)}"[:LONGEST_MESSAGE]
            yield IndexEntry(number, fact, origin=origin, place=f"{path}:{line}")


def _facts_whole(text: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a file of facts. A wrapped list item is one line."""
    at, item, end = 0, "", 0
    for line, block in numbered_blocks(text, headings=True):
        if item and line == end and kind_of(block.lstrip()) == "text":
            item += f"\n{block}"
        else:
            if item:
                yield at, item
            at, item = line, block
        end = line + 1 + block.count("\n") if kind_of(item) == "item" else 0
    if item:
        yield at, item


def _held_passages(text: str, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """The facts that wait for the person's word; each has an origin, so that none is trusted."""
    for number, (block, fact) in enumerate(pending_blocks(text), 1):
        if fact:
            moment = datetime.combine(fact.day, time(), zone).isoformat()
            origin, place = ",".join(fact.origins) or OTHERS, f"{PENDING} {fact.number}{_WAITS}"
            yield IndexEntry(number, fact.shown, moment, origin=origin, place=place)
        elif block.strip() and not is_heading(block):
            text = block.strip()
            yield IndexEntry(number, text, origin=OTHERS, place=f"{PENDING}{_WAITS}")


def _past_passages(text: str, facts: Sequence[str], zone: tzinfo | None) -> Iterator[IndexEntry]:
    """The facts that are no longer true, each with the day on which it was retired."""
    for number, (day, line) in enumerate(retired_in(text, facts), 1):
        moment = datetime.combine(day, time(), zone).isoformat()
        yield IndexEntry(number, line, moment, place=f"{RETIRED}, no longer true since {day}")
