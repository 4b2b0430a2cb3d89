"""Where the log goes. Set up once per process, by whoever starts it; secrets never get there.

What other packages say through the standard library's `logging` goes the same way.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TextIO
from zoneinfo import ZoneInfo

from loguru import logger

from nanobot.logs.file import LogFile
from nanobot.logs.line import LogLine, level_of

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from loguru import Message, Record

    from nanobot.security.redaction import Redactor

Form = Literal["auto", "text", "json"]
"""`auto`: text in a terminal, JSON elsewhere."""


class Output(Protocol):
    """Takes lines. Never raises."""

    def put(self, line: LogLine) -> None:
        """One more."""
        ...


class Console:
    """A stream that a person looks at, or a machine. Nothing stops where nobody reads it."""

    def __init__(self, stream: TextIO, form: Form) -> None:
        self._stream = stream
        in_terminal = stream.isatty()
        self._colours = in_terminal and not os.environ.get("NO_COLOR")
        self._as_text = form == "text" or (form == "auto" and in_terminal)

    def put(self, line: LogLine) -> None:
        """See `Output`."""
        shown = line.to_text(colours=self._colours) if self._as_text else line.to_json()
        say(self._stream, shown)


class Stored:
    """Files under a folder, as JSON, for `nanobot logs`."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._file = LogFile(path, max_bytes, keep, partial(say, sys.stderr))

    def put(self, line: LogLine) -> None:
        """See `Output`."""
        self._file.write(line.to_json())


def log_to(outputs: Sequence[Output], level: str, redactor: Redactor, zone: str = "") -> None:
    """Everything from `level` on goes to these, and to nothing else any more; times are those of
    `zone`, an IANA name (empty: the system's)."""
    logger.remove()
    threading.excepthook = _log_dead_thread
    _take_over_standard_logging()
    if outputs:
        sink = _Sink(outputs, redactor, ZoneInfo(zone) if zone else None)
        logger.add(sink, level=level.upper(), format=unformatted)


def log_to_console(level: str, redactor: Redactor, zone: str = "") -> None:
    """For a command: everything from `level` on goes to standard error, for people."""
    log_to((Console(sys.stderr, "text"),), level, redactor, zone)


def unformatted(_: Record) -> str:
    """A format of loguru's for sinks that look at the record alone."""
    return ""


def log_warnings(warnings: Sequence[str]) -> None:
    """What the owner should mend in the configuration."""
    for warning in warnings:
        logger.warning("{}", warning)


def say(stream: TextIO, text: str) -> None:
    """Write a line where somebody may read it."""
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except (OSError, ValueError):  # nobody reads it any more
        return


class _Sink:
    """Makes a line of what loguru hands on, once for all outputs."""

    def __init__(self, outputs: Sequence[Output], redactor: Redactor, zone: tzinfo | None) -> None:
        self._outputs, self._redactor, self._zone = outputs, redactor, zone

    def __call__(self, message: Message) -> None:
        try:
            line = LogLine.of(message.record, self._redactor, self._zone)
            for output in self._outputs:
                output.put(line)
        except Exception as error:  # noqa: BLE001 - the boundary: loguru would print it unredacted
            say(sys.stderr, f"a line of the log was lost: {type(error).__name__}")


class _FromStandardLogging(logging.Handler):
    """Hands on what other packages log."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        level = level_of(record.levelno).upper()
        log = logger.patch(partial(_say_where, record)).opt(exception=error)
        log.log(level, "{}", _text_of(record))


def _text_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the boundary: arguments of others that do not fit the text
        return str(record.msg)


def _say_where(standard: logging.LogRecord, record: Record) -> None:
    record["name"], record["line"] = standard.name, standard.lineno


def _log_dead_thread(args: threading.ExceptHookArgs) -> None:
    """A thread that ends by a fault is told in the log, not only on standard error."""
    name = args.thread.name if args.thread else "without a name"
    if args.exc_value is not None:
        logger.opt(exception=args.exc_value).critical("the thread {} died", name)


def _take_over_standard_logging() -> None:
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _FromStandardLogging):
            root.removeHandler(handler)
    root.addHandler(_FromStandardLogging(logging.WARNING))
