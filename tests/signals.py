"""Signal dispositions of a program that a person starts in a terminal."""

from __future__ import annotations

import signal

IGNORED_BY_SHELLS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""`nohup` ignores the last, and a script the others for programs started with `&`. Their children
inherit that, and a test would wait forever for one to end at Ctrl-C."""


def give_back() -> None:
    """Give programs started by tests the usual dispositions. A handler becomes the default in a new
    program, and this process still outlives the terminal."""
    for number in IGNORED_BY_SHELLS:
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else _stay)


def _stay(number: int, frame: object) -> None:
    """Do nothing, as when the signal was ignored."""
