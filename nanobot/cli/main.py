"""The entry point: quick for `--version`, and with error messages instead of tracebacks.

Invariants: an error that nanobot foresees is a line or two on standard error and the error's exit
code, never a traceback. Standard output holds only results."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from nanobot import __version__

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

BROKEN_PIPE = 141
"""Exit code if the reader of the output has gone: 128 + SIGPIPE."""

IO_ERROR = 74
"""Exit code if the output cannot be written: EX_IOERR."""

BUG = 70
"""Exit code of an unexpected error: EX_SOFTWARE."""

_BUG_HINT = (
    "This is a bug in nanobot. See `logs/` in its home. Set NANOBOT_DEBUG=1 for a traceback."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return the exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # print any character in any locale
            stream.reconfigure(errors="replace")
    code, message = _run(sys.argv[1:] if argv is None else list(argv))
    try:
        sys.stdout.flush()
    except OSError as error:  # the part that failed before fails again
        # Without this, the interpreter would fail on it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        code, message = IO_ERROR, f"cannot write the output: {error.strerror}"
    if message:
        from nanobot.cli.command import print_text

        print_text(f"error: {message}\n", sys.stderr)
    if argv is None:  # skip the garbage collection at exit
        gc.freeze()
        threads = sys.modules.get("threading")
        if threads is not None and threads.active_count() > 1:
            os._exit(code)  # the interpreter would wait for hanging threads
    return code


def _run(arguments: list[str]) -> tuple[int, str]:
    """Return the exit code, and an error message for people or an empty text."""
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"nanobot {__version__}\n")
        return 0, ""
    from nanobot.cli.search_paths import trust_no_relative_folder

    trust_no_relative_folder()  # before further imports, which may be in one
    from nanobot.errors import NanobotError

    try:
        return _dispatch(arguments), ""
    except NanobotError as error:
        return error.exit_code, error.for_people()
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except BrokenPipeError:
        return BROKEN_PIPE, ""
    except Exception as error:  # noqa: BLE001 - the boundary: a person gets a sentence
        import traceback

        if os.environ.get("NANOBOT_DEBUG"):
            traceback.print_exception(error)
        said = f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return BUG, f"{said}\n  {_BUG_HINT}"


def _dispatch(arguments: list[str]) -> int:
    from nanobot.cli.command import Options, home_of
    from nanobot.cli.parser import build_parser, command_in
    from nanobot.cli.search_paths import trust_nothing_below

    parser = build_parser(command_in(arguments))
    try:
        options = parser.parse_args(arguments, Options())
    except SystemExit as leaving:  # argparse has printed the error or the help
        return leaving.code if isinstance(leaving.code, int) else 2
    if options.command is None:
        parser.print_help()
        return 0
    options.home = home_of(options)
    trust_nothing_below(options.home / "workspace")
    return options.run(options)
