"""The entry point: answers `--version` on nothing but `sys`, and turns errors into words.

Invariants: an error that nanobot foresees is a line or two on standard error and the exit
code that the error carries, never a traceback; standard output holds results only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nanobot import __version__

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

BROKEN_PIPE = 141
"""Exit code when nobody reads the output any more: 128 + SIGPIPE."""

IO_ERROR = 74
"""Exit code when the output cannot be written: EX_IOERR."""

BUG = 70
"""Exit code for what should not have happened: EX_SOFTWARE."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments in (["--version"], ["-V"]):
        return _say_version()
    _take_any_text()
    return _guarded(arguments)


def _take_any_text() -> None:
    """Let no character end a command, whatever the locale: what the terminal cannot show, and bytes
    that are no text, become a question mark or something like it."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _say_version() -> int:
    try:
        sys.stdout.write(f"nanobot {__version__}\n")
        sys.stdout.flush()
    except OSError as error:
        return _output_refused(error)
    return 0


def _guarded(arguments: list[str]) -> int:
    from nanobot.errors import NanobotError

    try:
        code = _run(arguments)
        sys.stdout.flush()
    except NanobotError as error:
        _complain(error.for_people())
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _output_refused(error) if _output_is_stuck() else _confess(error)
    except Exception as error:  # noqa: BLE001 - the boundary: a person gets a sentence
        return _confess(error)
    return code


def _run(arguments: list[str]) -> int:
    from nanobot.cli.command import home_of
    from nanobot.cli.parser import build_parser

    parser = build_parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed the help
        return leaving.code if isinstance(leaving.code, int) else 2
    if options.command is None:
        parser.print_help()
        return 0
    options.home = home_of(options)
    return int(options.run(options))


def _complain(message: str, hint: str = "") -> None:
    from nanobot.cli.command import print_text

    if _output_is_stuck():
        _discard_output()
    hint = f"\n  {hint}" if hint else ""
    print_text(f"error: {message}{hint}\n", sys.stderr)


def _confess(error: Exception) -> int:
    import os

    if os.environ.get("NANOBOT_DEBUG"):
        import traceback

        traceback.print_exception(error)
        return BUG
    _complain(
        f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}",
        "This is a bug in nanobot. `logs/` in its home may say more; NANOBOT_DEBUG=1 shows where.",
    )
    return BUG


def _output_is_stuck() -> bool:
    """Whether standard output takes nothing more: what it refused once, it refuses again."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _output_refused(error: OSError) -> int:
    """Nobody reads it any more, which is no error; or the disk is full, say."""
    _discard_output()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    _complain(f"cannot write the output: {error.strerror or error}")
    return IO_ERROR


def _discard_output() -> None:
    """Nobody reads standard output: keep the interpreter from failing on it once more at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
