"""The streams to index, and the passages in their files.

Every file is found, with its state, by one stat. Keys and paths are text that the index can store,
whatever bytes a name on disk has. Long-term files, notes, histories and documents are read whole.
The lines of a session are read one by one, because there may be hundreds of thousands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, tzinfo
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from loguru import logger
from msgspec import Struct

from nanobot.bus.sqlite import storable
from nanobot.io import FileState, lstate_of, open_regular, without_long_lines
from nanobot.memory.digests import digest_lines, first_of, month_of
from nanobot.memory.documents import FACTS, PENDING, RETIRED, text_of
from nanobot.memory.guard import fact_lines, without_list_mark
from nanobot.memory.history import (
    NUMBER_LIMIT,
    READABLE,
    HistoryEntry,
    decode_foreign,
    entry_lines,
    find_unlisted_paragraphs,
)
from nanobot.memory.history import decode as decode_entry
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import is_heading, kind_of, number_blocks
from nanobot.memory.losses import read_retired
from nanobot.memory.pending import pending_blocks
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import OWN_FILE, Source, Sources
from nanobot.memory.search.library import documents, passages
from nanobot.memory.similarity import sentences
from nanobot.memory.store import day_of, is_by_hand
from nanobot.memory.taint import NOTE, OTHERS, is_unconfirmed
from nanobot.messages import Message, speaker_in
from nanobot.security.paths import Place, Root
from nanobot.session.jsonl_reader import place
from nanobot.session.records import Metadata, Retraction, decode_fields
from nanobot.tasks import pace

LONGEST_MESSAGE = 200_000
LONGEST_OUTPUT = 2_000
"""Maximum indexed characters of a message, and of a tool's output: the caller of the tool repeated
its important parts, and the rest would drown them."""

_BLOCK = 1 << 20
_LARGEST = 256 * 1024 * 1024
_ENDS_ASKING = re.compile(r"[?？][^\w]*\Z")
_MINUTE = re.compile(r"[-*] ((?:[01]\d|2[0-3]):[0-5]\d) ", re.ASCII)
_WAITS = ", pending approval"
_SEARCH = "search_memory"  # the tool whose output is never indexed: it repeats indexed text


class SourceFile(Struct, frozen=True):
    """A file below `folder` as it was a moment ago. `name` is relative to the folder."""

    folder: Path
    name: str
    state: FileState

    @property
    def place(self) -> Place:
        """Its location. No link below the folder is followed."""
        return Root(self.folder).place(self.name)

    def text(self) -> str:
        """Return the content. Raise NanobotError."""
        return text_of(self.place.read_bytes(_LARGEST) or b"")


Name = tuple[Source, str, str]
"""Name of a stream: source, scope and key. The scope of a session is empty: a search determines
it."""

Files = tuple[SourceFile, ...]


ASKS, ENDS_ASKING = 1, 2
"""Values of `IndexEntry.asks`: it has a question, or ends with one. 0 for none."""


class IndexEntry(NamedTuple):
    """A passage before it has an id. `seq` is unique in its stream. `moment` is ISO or empty.

    `hash` identifies its line. `first` and `last` are the messages that a history entry
    summarizes, and `lent` are the facts that lend them their words."""

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
    lent: tuple[str, ...] = ()

    @property
    def asks(self) -> int:
        """`ENDS_ASKING` if it ends with a question, `ASKS` if it has one, else 0."""
        if "?" not in self.text and "？" not in self.text:
            return 0
        return ENDS_ASKING if _ENDS_ASKING.search(self.text[-12:]) else ASKS


class Stream(NamedTuple):
    """Any stream but a session: its name, its files, and a reader of its passages, in order, which
    may raise NanobotError."""

    name: Name
    files: Files
    read: Callable[[], Iterator[IndexEntry]]

    def entries(self) -> Iterator[IndexEntry]:
        """Yield its passages, each with its hash."""
        for entry in self.read():
            said = "\0".join(map(str, entry[1:]))
            yield entry._replace(hash=line_hash(said.encode("utf-8", "replace")))


def streams(sources: Sources, zone: tzinfo | None) -> Iterator[Stream]:
    """Yield all current streams except sessions. `zone` is for times without an offset."""
    for scope, folder in sources.memories():
        # The folder's parent is the root, so that a linked memory folder is not followed.
        root, inside = folder.parent, list_files(folder.parent, folder.name)
        yield from list_history_streams(scope, inside, zone)
        facts = [
            SourceFile(root, path, state)
            for path in FACTS
            if (state := lstate_of(f"{root}/{path}"))
        ]
        for file in facts:
            read = partial(read_facts, file, file.name, sources.template.get(file.name, ""))
            yield Stream(("memory", scope, file.name), (file,), read)
        yield from list_document_streams(scope, inside, facts, zone)
    if library := sources.library:
        for place, entry in documents(library):
            name = storable("/".join(place.names[1:]))
            file = SourceFile(
                library.parent, place.relative, FileState(0, entry.size, entry.mtime_ns)
            )
            yield Stream(("library", OWNER, name), (file,), partial(read_document, file))


def list_document_streams(
    scope: str, inside: Mapping[str, SourceFile], facts: Sequence[SourceFile], zone: tzinfo | None
) -> Iterator[Stream]:
    """Yield the notes, digests and other documents of a memory folder."""
    for name, file in inside.items():
        path = storable(f"memory/{name}")
        if day := day_of(name):
            yield Stream(("note", scope, name), (file,), partial(read_notes, file, day, zone))
        elif month_of(name):
            yield Stream(("note", scope, name), (file,), partial(read_digest, file, name, zone))
        elif path == RETIRED:  # a fact that is in the others again is valid again
            files = (file, *facts)
            yield Stream(("memory", scope, path), files, partial(read_outdated, files, zone))
        elif path == PENDING:
            yield Stream(("memory", scope, path), (file,), partial(read_pending, file, zone))
        elif is_by_hand(name):
            yield Stream(("memory", scope, path), (file,), partial(read_facts, file, path, ""))


def list_history_streams(
    scope: str, inside: Mapping[str, SourceFile], zone: tzinfo | None
) -> Iterator[Stream]:
    lines = inside.get("history.jsonl")
    files = (lines,) if lines else ()
    if files:
        yield Stream(("history", scope, scope), files, partial(read_summaries, files, zone))
    if readable := inside.get("HISTORY.md"):
        read = partial(read_paragraphs, readable, files, zone)
        yield Stream(("history", scope, READABLE), (readable, *files), read)


def list_files(root: Path, below: str = "") -> dict[str, SourceFile]:
    """Return the files in a folder by name, without hidden ones, or {} if there is no folder."""
    prefix, found = f"{below}/" if below else "", dict[str, SourceFile]()
    try:
        names = sorted(os.listdir(f"{root}/{below}"))  # noqa: PTH208 - after every turn
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        logger.warning("{} is not searched: {}", root / below, error.strerror)
        return {}
    for name in pace(names):
        state = None if name.startswith(".") else lstate_of(f"{root}/{prefix}{name}")
        if state:
            found[name] = SourceFile(root, f"{prefix}{name}", state)
    return found


def lines_of(file: SourceFile, start: int = 0) -> Iterator[bytes]:
    """Yield the whole lines of a session's file from the offset `start` on.

    Raise NanobotError, and FileNotFoundError if the name is another file's now: the next listing
    finds that one."""
    with open_regular(file.folder / file.name) as descriptor:
        status = os.fstat(descriptor)
        if status.st_ino != file.state.inode:
            raise FileNotFoundError(file.name)
        os.lseek(descriptor, start, os.SEEK_SET)
        is_small = status.st_size - start <= _BLOCK
        small = BytesIO(os.read(descriptor, _BLOCK)) if is_small else None
        with small or open(descriptor, "rb", closefd=False) as lines:
            for raw in lines:
                if raw.endswith(b"\n") or decode_fields(raw) is not None:
                    yield raw


def checksum(file: SourceFile, size: int) -> int:
    """Return a checksum of the first `size` bytes of a file. Raise as `lines_of`."""
    found, left = 0, size
    with open_regular(file.folder / file.name) as descriptor:
        while left and (block := os.read(descriptor, min(left, _BLOCK))):
            found, left = crc32(block, found), left - len(block)
    return found


def line_hash(raw: bytes) -> int:
    """Return a hash of a line without its line end."""
    raw = raw.rstrip(b"\r\n")
    return (len(raw) & 0x7FFFFFFF) << 32 | crc32(raw)


class SessionReader(Struct):
    """Reader of the lines of one session's files in order.

    `number` is that of the last message, for messages without one. Messages covered by one of the
    `retractions` are skipped. `metadata` is the newest one read, as JSON."""

    number: int = 0
    retractions: Sequence[Retraction] = ()
    metadata: str | None = None

    def entry(self, raw: bytes, hash: int) -> IndexEntry | None:
        """Return the passage on a line with this hash, or None if it is not a message to index."""
        placed, number = place(raw.rstrip(b"\r\n"), self.number)
        self.number = number if number < NUMBER_LIMIT else self.number + 1
        record = placed.record
        if isinstance(record, Metadata):
            self.metadata = json.dumps(dict(record.metadata)) if record.metadata else "{}"
        return self._entry(record, hash) if isinstance(record, Message) else None

    def _entry(self, message: Message, hash: int) -> IndexEntry | None:
        text, is_output = message.text, message.role == "tool"
        if not text.strip() or (is_output and message.name == _SEARCH):
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
            hash=hash,
        )


def format_moment(day: date, zone: tzinfo | None, clock: time = time()) -> str:
    return datetime.combine(day, clock, zone).isoformat()


def read_document(file: SourceFile) -> Iterator[IndexEntry]:
    for number, (cited, text) in enumerate(passages(file.place), 1):
        yield IndexEntry(number, text, place=cited)


def read_history(files: Files, zone: tzinfo | None) -> Iterator[HistoryEntry]:
    """Yield the entries of a history file, also in the format of HKUDS/nanobot."""
    unknown = datetime.min.replace(tzinfo=zone)
    for file in files:
        with file.place.open(os.O_RDONLY) as descriptor:
            content = without_long_lines(descriptor)[0]
        for _, raw in pace(entry_lines(content)):
            if entry := decode_entry(raw, zone) or decode_foreign(raw, unknown):
                yield entry


def read_summaries(files: Files, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """Yield an entry for each line: the summary, and below it the key facts."""
    for entry in read_history(files, zone):
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
            lent=facts_of(entry),
        )


def facts_of(entry: HistoryEntry) -> tuple[str, ...]:
    """Return the facts of an entry: its key facts, its long-term lines, and its sentences."""
    lines = (without_list_mark(one.new) for one in entry.operations if one.new)
    return tuple(filter(None, (*entry.key_facts, *lines, *sentences(entry.summary))))


def read_paragraphs(
    readable: SourceFile, files: Files, zone: tzinfo | None
) -> Iterator[IndexEntry]:
    """Yield the paragraphs of HISTORY.md without an entry. Their author is unknown."""
    found = find_unlisted_paragraphs(readable.text(), read_history(files, zone))
    for number, (line, paragraph, stamp) in enumerate(found, 1):
        moment = ""
        with suppress(ValueError):  # no such day
            moment = datetime.fromisoformat(stamp).replace(tzinfo=zone).isoformat()
        shown = paragraph[:LONGEST_MESSAGE]
        yield IndexEntry(number, shown, moment, origin=OWN_FILE, place=f"{READABLE}:{line}")


def read_digest(file: SourceFile, name: str, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """Yield the lines of the digest called `name`, each dated to the first day that it names."""
    month = month_of(name)
    for number, (line, digested) in enumerate(digest_lines(month, file.text()), 1):
        day = min(digested.days, default=first_of(month))
        yield IndexEntry(number, str(digested), format_moment(day, zone), place=f"{name}:{line}")


def read_notes(file: SourceFile, day: date, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """Yield the passages of a day's note: its entries, and other lines."""
    origin, every = "", number_blocks(file.text(), headings=True)
    blocks = (block for block in every if block[1] != f"# {day}")
    for number, (line, passage) in enumerate(blocks, 1):
        minute = _MINUTE.match(passage)
        written = time.fromisoformat(minute[1]) if minute else time()
        if not passage.startswith(" "):  # indented text belongs to the note above
            origin = NOTE if is_unconfirmed(passage) else ""
        moment, place = format_moment(day, zone, written), f"{day}.md:{line}"
        yield IndexEntry(number, passage, moment, origin=origin, place=place)


def read_facts(file: SourceFile, path: str, template: str) -> Iterator[IndexEntry]:
    """Yield the facts in the file at `path` that are not in its template, each under its
    heading."""
    heading, origin = "", "" if path in FACTS else OWN_FILE
    for number, (line, passage) in enumerate(join_wrapped_items(file.text()), 1):
        if is_heading(passage):
            heading = f"{passage.strip('# ')}\n"
        elif fact_lines(passage, template):
            fact = f"{heading}{without_importance(passage)}"[:LONGEST_MESSAGE]
            yield IndexEntry(number, fact, origin=origin, place=f"{path}:{line}")


def join_wrapped_items(text: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a file of facts. A wrapped list item is one line."""
    at, item, end = 0, "", 0
    for line, block in number_blocks(text, headings=True):
        if item and line == end and kind_of(block.lstrip()) == "text":
            item += f"\n{block}"
        else:
            if item:
                yield at, item
            at, item = line, block
        end = line + 1 + block.count("\n") if kind_of(item) == "item" else 0
    if item:
        yield at, item


def read_pending(file: SourceFile, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """Yield the pending facts. Each has an origin, so that none is trusted."""
    for number, (block, fact) in enumerate(pending_blocks(file.text()), 1):
        if fact:
            origin, place = ",".join(fact.origins) or OTHERS, f"{PENDING} {fact.number}{_WAITS}"
            moment = format_moment(fact.day, zone)
            yield IndexEntry(number, fact.description, moment, origin=origin, place=place)
        elif block.strip() and not is_heading(block):
            place = f"{PENDING}{_WAITS}"
            yield IndexEntry(number, block.strip(), origin=OTHERS, place=place)


def read_outdated(files: Files, zone: tzinfo | None) -> Iterator[IndexEntry]:
    """Yield the retired facts, each with the day of its retirement."""
    text, *facts = (file.text() for file in files)
    for number, (day, line) in enumerate(read_retired(text, facts), 1):
        place = f"{RETIRED}, no longer true since {day}"
        yield IndexEntry(number, line, format_moment(day, zone), place=place)
