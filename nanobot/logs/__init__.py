"""The log: where lines go, what one looks like, and reading it again.

What always holds: a line is redacted before it goes anywhere, with its traceback; what is logged
during a turn carries the turn's id; writing the log never raises, whatever the disk does.
"""

from nanobot.logs.output import Console, Counted, Stored, log_to, log_to_console, log_warnings

__all__ = [
    "LOG_FILE",
    "Console",
    "Counted",
    "Stored",
    "log_to",
    "log_to_console",
    "log_warnings",
]

LOG_FILE = "nanobot.log"
"""The name of the log in a home's `logs/`."""
