"""The grammar of `nanobot onboard`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, count, home_of, words

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands

_EPILOG = """\
Without --non-interactive everything is asked for, and nothing is written before you have seen it.
Secrets are never given on the command line, which other users can read: name a variable."""

_TEXTS = (
    ("--model-name", "NAME", "the model, as its server knows it"),
    ("--base-url", "URL", "where its API is, such as http://127.0.0.1:11434/v1"),
    ("--api-key-env", "VARIABLE", "the environment variable that holds the API key"),
    ("--telegram-token-env", "VARIABLE", "the environment variable that holds the bot's token"),
    ("--telegram-base-url", "URL", "where the Bot API is, for a server of your own"),
    ("--owner-telegram", "ID", "your id at Telegram, a number"),
    ("--owner-whatsapp", "NUMBER", "set WhatsApp up as a linked device; your number, in digits"),
    ("--owner-name", "NAME", "what you are called"),
    ("--timezone", "ZONE", "your time zone, such as Europe/Berlin"),
)


def add_onboard(commands: Commands) -> None:
    """`nanobot onboard`."""
    parser = add(commands, "onboard", "set nanobot up, or change how it is set up", _onboard)
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--non-interactive", action="store_true", help="ask nothing; do what the options say"
    )
    for name, metavar, summary in _TEXTS:
        parser.add_argument(name, type=words, metavar=metavar, help=summary)
    parser.add_argument(
        "--api-key-stdin", action="store_true", help="read the API key from standard input"
    )
    parser.add_argument(
        "--context-window", type=count, default=0, metavar="TOKENS", help="what the model takes"
    )
    parser.add_argument(
        "--offline", action="store_true", help="the small built-in model, to try nanobot out"
    )
    parser.add_argument(
        "--no-test", action="store_true", help="write everything down without trying it"
    )
    parser.add_argument(
        "--restart", action="store_true", help="restart the gateway if one is running"
    )
    add_json(parser)


def _onboard(options: argparse.Namespace) -> int:
    from nanobot.cli.onboard.options import OnboardOptions
    from nanobot.cli.onboard.run import onboard

    texts = {name: getattr(options, name) or "" for name in _names()}
    return onboard(
        OnboardOptions(
            home=home_of(options),
            home_is_chosen=bool(options.home or os.environ.get("NANOBOT_HOME")),
            attended=not options.non_interactive,
            as_json=options.json,
            test=not options.no_test,
            offline=options.offline,
            restart=options.restart,
            context_window=options.context_window,
            api_key_stdin=options.api_key_stdin,
            **texts,
        )
    )


def _names() -> list[str]:
    return [name.removeprefix("--").replace("-", "_") for name, _, _ in _TEXTS]
