"""The log: its lines, its file with rotation, its outputs, and its reader.

Invariants: a line and its traceback are redacted before any output. Lines logged during a turn
carry the turn's id. Writing the log never raises. Warnings from one place in the code are limited
in number.

`nanobot.log` becomes `nanobot.log.1`, that `nanobot.log.2` and so on. The oldest is deleted. Every
line is in exactly one of them. A line that the disk rejects is lost. That is reported once on
standard error, and writing resumes when possible. A torn line never runs into the next one.

A stored line is one JSON object in ASCII: `time` (ISO 8601 with the offset from UTC), `level`
(`debug`, `info`, `warning` or `error`), `turn` (if it was logged during one), `where` (module and
line), `message`, and `error` (the traceback of a defect; expected errors are in the message only).
The command that starts a process sets up its log once. The log also gets the standard library's
logging of other packages.

Reading uses only the files, so no gateway needs to run. Unreadable lines are left out. Files are
identified by their inode, because their names change."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TextIO
from zoneinfo import ZoneInfo

from loguru import logger
from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from nanobot.errors import NanobotError
from nanobot.io import append_line, rotate_files
from nanobot.tasks import TURN
from nanobot.text import escape_invisible

if TYPE_CHECKING:
    from datetime import tzinfo

    from loguru import Message, Record

    from nanobot.security.redaction import Redactor

LOG_FILE = "nanobot.log"
"""The name of the log in a home's `logs/`."""

_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
"""Longer numbers are dates: copies that a person keeps."""


def write_line(stream: TextIO, text: str) -> None:
    """Write a line to a stream that may have lost its reader."""
    with suppress(OSError, ValueError):  # the reader is gone
        stream.write(f"{text}\n")
        stream.flush()


LOG_BYTES, LOGS_KEPT = 10_000_000, 5
"""Weeks of a busy nanobot, in 60 MB."""


class LogFile:
    """The log at `path` as JSON, of up to about `max_bytes`, with `keep` older files next to it.
    Calls come from one thread at a time."""

    def __init__(self, path: Path, max_bytes: int = LOG_BYTES, keep: int = LOGS_KEPT) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._is_failing = False

    def put(self, line: LogLine) -> None:
        """Add a line. Never raises."""
        self.write(line.to_json())

    def write(self, line: str) -> None:
        """Add a line. Never raises: if the disk rejects a new file, the old one grows."""
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)  # never a moved home
            if append_line(self._path, line.encode("utf-8", "backslashreplace")) >= self._max_bytes:
                for surplus in older_files(self._path)[self._keep :]:
                    surplus.unlink(missing_ok=True)  # if `keep` was reduced
                older = (f"{self._path.name}.{number}" for number in range(1, self._keep + 1))
                rotate_files((self._path, *map(self._path.with_name, older)))
        except OSError as error:
            if not self._is_failing:
                reason = error.strerror or error
                write_line(sys.stderr, f"the log {self._path} cannot be written: {reason}")
            self._is_failing = True
        else:
            self._is_failing = False


def older_files(path: Path) -> list[Path]:
    """Return the older files of the log at `path`, the newest first."""
    found = {}
    for file in path.parent.glob(f"{path.name}.*"):
        number = file.name.removeprefix(f"{path.name}.")
        if _NUMBER.fullmatch(number):
            found[int(number)] = file
    return [found[number] for number in sorted(found)]


Level = Literal["debug", "info", "warning", "error"]
LEVELS: Sequence[Level] = ("debug", "info", "warning", "error")
"""From the least to the most important."""

_WARNING, _ERROR, _NOTE = 30, 40, "repeated"
_REPEAT_SECONDS, _MOST_REPEATED = 60.0, 50
_MOST_POSITION = 64
_MOST_MESSAGE = 10_000
_MOST_ERROR = 30_000
_COLOURS = {"debug": "2", "warning": "33", "error": "31"}
_DIM = "2"


class LogLine(Struct, frozen=True):
    """A redacted line. `turn` and `error` may be empty."""

    time: str
    level: Level
    where: str
    message: str
    turn: str = ""
    error: str = ""

    @classmethod
    def of(cls, record: Record, redactor: Redactor, zone: tzinfo | None = None) -> LogLine:
        """Return loguru's record as a line, with its time in `zone` (None: the system's). Long
        texts are shortened after redaction."""
        error = record["exception"].value if record["exception"] else None
        message, trace = record["message"], ""
        if isinstance(error, NanobotError):  # needs no traceback
            text = str(error) if str(error) not in message else ""
            message = f"{message}{': ' if text else ''}{text} {error.hint}".rstrip()
        elif error is not None:
            trace = "".join(traceback.format_exception(error)).rstrip()
        message, trace = redactor.redact(message), redactor.redact(trace)
        if len(message) > _MOST_MESSAGE:
            message = f"{message[:_MOST_MESSAGE]}… ({len(message):,} characters)"
        if len(trace) > _MOST_ERROR:
            trace = f"… ({len(trace):,} characters)\n{trace[-_MOST_ERROR:]}"
        return cls(
            record["time"].astimezone(zone).isoformat(timespec="milliseconds"),
            level_of(record["level"].no),
            f"{record['name']}:{record['line']}",
            message,
            redactor.redact(TURN.get()),
            trace,
        )

    @classmethod
    def parse(cls, stored: bytes) -> LogLine | None:
        """Parse a line of `to_json`. Return None for anything else."""
        try:
            return convert(json.loads(stored), cls)
        except (ValueError, RecursionError, ValidationError):
            return None

    def to_json(self) -> str:
        """Return the stored form, without the end of the line."""
        fields = {"time": self.time, "level": self.level, "turn": self.turn}
        fields |= {"where": self.where, "message": self.message, "error": self.error}
        return json.dumps({k: v for k, v in fields.items() if v or k == "message"})

    def to_text(self, *, colours: bool = False) -> str:
        """Return the line for people. Further lines and tracebacks are indented, so that no message
        looks like a separate line. Nothing in it can control a terminal."""
        turn = _safe(f"[{self.turn}] " if self.turn else "")
        where = _safe("" if self.level == "info" else f"  ({self.where})")
        level = self.level.upper().ljust(7)
        time, message = _safe(self.time[:19].replace("T", " ")), _safe(self.message)
        error = _safe(f"\n{self.error}" if self.error else "")
        if colours:
            level = _in_colour(level, _COLOURS.get(self.level, ""))
            time, turn, where, error = (_in_colour(t, _DIM) for t in (time, turn, where, error))
        return f"{time} {level} {turn}{message}{where}{error}"


def level_of(number: int) -> Level:
    """Return the level for a number of loguru or the standard library."""
    return LEVELS[max(0, min(number // 10, 4) - 1)]


def _safe(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return escape_invisible(text).replace("\n", "\n    ")


def _in_colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if text and colour else text


Form = Literal["auto", "text", "json"]
"""`auto`: text in a terminal, JSON elsewhere."""


class Console:
    """An output stream for a person or a program. A lost reader stops nothing."""

    def __init__(self, stream: TextIO, form: Form) -> None:
        self._stream = stream
        in_terminal = stream.isatty()
        self._colours = in_terminal and not os.environ.get("NO_COLOR")
        self._as_text = form == "text" or (form == "auto" and in_terminal)

    def put(self, line: LogLine) -> None:
        """Show a line. Never raises."""
        shown = line.to_text(colours=self._colours) if self._as_text else line.to_json()
        write_line(self._stream, shown)


class RepeatLimit:
    """Limits the warnings and errors of one place in the code per minute, and counts the rest. A
    lack of descriptors or a full disk can fail thousands of times a second. Calls come from one
    thread at a time."""

    def __init__(self) -> None:
        self._places: dict[tuple[str | None, int], tuple[float, int]] = {}
        """The start of the count of a place's lines, and their number."""

    def note(self, record: Record) -> str | None:
        """Return a note to add to the line, or None if the line is left out."""
        if record["level"].no < _WARNING:
            return ""
        now, place = record["elapsed"].total_seconds(), (record["name"], record["line"])
        since, lines = self._places.get(place, (now, 0))
        if now - since < _REPEAT_SECONDS:
            self._places[place] = since, lines + 1
            if lines + 1 == _MOST_REPEATED:
                return " (further similar lines are omitted for a minute)"
            return "" if lines + 1 < _MOST_REPEATED else None
        self._places[place] = now, 1
        left_out = max(0, lines - _MOST_REPEATED)
        return f" (and {left_out:,} similar lines were omitted)" if left_out else ""


def log_to(
    outputs: Sequence[Console | LogFile], level: str, redactor: Redactor, zone: str = ""
) -> None:
    """Log everything from `level` up to these outputs only. Times are in `zone`, an IANA name
    (empty: the system's)."""
    logger.remove()
    threading.excepthook = _log_dead_thread
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _FromStandardLogging):
            root.removeHandler(handler)
    root.addHandler(_FromStandardLogging(logging.WARNING))
    times = ZoneInfo(zone) if zone else None
    least, repeated = logger.level(level.upper()).no, RepeatLimit()

    def sink(message: Message) -> None:
        try:
            line = LogLine.of(message.record, redactor, times)
            if note := message.record["extra"].get(_NOTE):
                line = replace(line, message=f"{line.message}{note}")
            for output in outputs:
                output.put(line)
        except Exception as error:  # noqa: BLE001 - the boundary: loguru would print it unredacted
            write_line(sys.stderr, f"a log line was lost: {type(error).__name__}")

    def is_wanted(record: Record) -> bool:
        note = repeated.note(record) if record["level"].no >= least else None
        if note:
            record["extra"][_NOTE] = note
        return note is not None

    if outputs:
        # A filter runs before loguru formats a traceback, which takes milliseconds. `LogCounter`
        # gets all warnings.
        logger.add(sink, level=min(least, _WARNING), format=omit_format, filter=is_wanted)


def log_to_console(level: str, redactor: Redactor, zone: str = "") -> None:
    """Log everything from `level` up to standard error, for people. For commands."""
    log_to((Console(sys.stderr, "text"),), level, redactor, zone)


def omit_format(_: Record) -> str:
    """Format nothing, for loguru sinks that only use the record."""
    return ""


class _FromStandardLogging(logging.Handler):
    """Forwards the log records of other packages."""

    def emit(self, standard: logging.LogRecord) -> None:
        try:
            text = standard.getMessage()
        except Exception:  # noqa: BLE001 - the boundary: arguments of others that do not fit the text
            text = str(standard.msg)

        def set_origin(record: Record) -> None:
            record["name"], record["line"] = standard.name, standard.lineno

        error = standard.exc_info[1] if standard.exc_info else None
        log = logger.patch(set_origin).opt(exception=error)
        log.log(level_of(standard.levelno).upper(), "{}", text)


def _log_dead_thread(args: threading.ExceptHookArgs) -> None:
    """Log a crashed thread, in addition to standard error."""
    name = args.thread.name if args.thread else "without a name"
    if args.exc_value is not None:
        logger.opt(exception=args.exc_value).critical("the thread {} crashed", name)


class LogCounter:
    """Counts the log's warnings and errors from `begin` to `close`, at any log level."""

    def __init__(self) -> None:
        self.warnings = 0
        self.errors = 0

    def begin(self) -> None:
        logger.configure(patcher=self._count)  # one more sink would take 3 ms to make

    async def close(self) -> None:
        logger.configure(patcher=lambda _: None)

    def _count(self, record: Record) -> None:
        number = record["level"].no
        self.errors += number >= _ERROR
        self.warnings += _WARNING <= number < _ERROR


class LogReader:
    """Reads the log at `path`: its newest lines, and then added ones. Raises `OSError`."""

    def __init__(self, path: Path, position: str = "") -> None:
        """Continue at the `position` of an earlier reader."""
        self._path = path
        inode, _, offset = position.partition(":")
        known = inode.isdecimal() and offset.isdecimal() and len(position) < _MOST_POSITION
        self._inode, self._offset = (int(inode), int(offset)) if known else (0, 0)
        """Position of the reader: the file and the bytes in it."""

    @property
    def position(self) -> str:
        """Position of the reader, for a later one."""
        return f"{self._inode}:{self._offset}"

    def newest_lines(self, wanted: Callable[[LogLine], bool], limit: int) -> list[LogLine]:
        """Return the last `limit` lines that are `wanted`, the oldest first. `new_lines` continues
        there."""
        lines = list(filter(wanted, self.new_lines()))
        for file in older_files(self._path):
            if len(lines) >= limit:
                break
            with suppress(FileNotFoundError), file.open("rb") as stream:
                if os.fstat(stream.fileno()).st_ino != self._inode:  # not just renamed to this
                    lines[:0] = filter(wanted, _lines(stream.read()))
        return lines[max(0, len(lines) - limit) :]

    def new_lines(self) -> list[LogLine]:
        """Return the lines added since the last call, from any number of files. The first call
        returns the newest file's."""
        unread: dict[int, BinaryIO] = {}
        with ExitStack() as stack:
            for file in (self._path, *older_files(self._path)):
                with suppress(FileNotFoundError):
                    stream = stack.enter_context(file.open("rb"))
                    unread.setdefault(os.fstat(stream.fileno()).st_ino, stream)
                if self._inode in unread:
                    break
            else:  # the last read file is gone
                self._inode = 0
                unread = dict(list(unread.items())[:1])
            files = reversed(unread.items())
            return [line for inode, stream in files for line in self._rest(inode, stream)]

    def _rest(self, inode: int, stream: BinaryIO) -> Iterator[LogLine]:
        """Return the unread whole lines of a file, or all if it was truncated."""
        if inode != self._inode or os.fstat(stream.fileno()).st_size < self._offset:
            self._inode, self._offset = inode, 0
        stream.seek(self._offset)
        content = stream.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return _lines(whole)


def _lines(content: bytes) -> Iterator[LogLine]:
    return filter(None, map(LogLine.parse, content.split(b"\n")))
